// What who starts an exchange of algorithm one_shot has to know of it (collective/one_shot.cpp).
#pragma once
#include <cstdint>

#include "collective/plan.hpp"

namespace crimp {

// Of a route of Algorithm::one_shot: bytes of the frame that a rank sends every rank, or the largest. The first thing
// that its exchange takes of CallBuffers::arena are the frames that leave and then those that arrive, so that with the
// same arena they lie where they lay before.
std::uint64_t frame_bytes(const RoutePlan&);

// Of a call that blocks, which may go by it where this fits (AlgorithmEntry::fits()); the setting is CRIMP_CHUNK's. 0:
// the call is longer than a chunk, so that its results would not be allgather's.
std::uint64_t frame_bytes(const Codec&, const Layout&, std::uint64_t chunk_setting);

// Bytes of a call, equal on all ranks.
struct OneShotTraffic {
  std::uint64_t moved;   // what the rank with the most to do sends, or receives, where that is more
  std::uint64_t plain;   // likewise of plain MPI, at least. Of sums for all ranks both are n / (n - 1) times as many
  std::uint64_t frames;  // room for those that a rank receives, at most
};
OneShotTraffic one_shot_traffic(const RoutePlan&);

}  // namespace crimp
