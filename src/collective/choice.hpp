// What a call takes: an algorithm, and why.
#pragma once
#include <cstdint>
#include <span>

#include "codec/codec.hpp"
#include "collective/shares.hpp"
#include "core/reserve.hpp"
#include "core/types.hpp"

namespace crimp {

// How a part is carried: what is chosen, tried, recorded and repeated.
struct Carriage {
  Algorithm algorithm = Algorithm::allgather;  // that carries the payloads
  bool nodes = false;  // between the leaders of nodes, whose ranks add exactly before (algorithm hierarchical); else
                       // among all ranks
  std::uint64_t chunk_setting = 0;  // as CRIMP_CHUNK's, for chunk_elements(); 0: left to the settings
  int radix = 0;                    // as CRIMP_RADIX's, where the algorithm can be relayed; 0: likewise
  bool halves = false;              // ChoiceQuery::halves carries it, in place of its codec
  bool operator==(const Carriage&) const = default;
};

struct Choice {
  Carriage carriage = {};
  bool plain = false;    // MPI_Allreduce is predicted to be faster than any
  bool early = false;    // as `plain`, because this communicator is too young to measure anything for it
  bool instead = false;  // of the one that CRIMP_ALGORITHM names, which runs the codec but cannot carry the call
  bool trial = false;    // taken to learn its time, whatever is predicted
  const char* why = "";
  double predicted_s = 0, plain_s = 0;  // 0: not predicted
  bool limited = false;                 // CRIMP_QUALITY has left an algorithm out
};

// One call's part to one codec.
struct ChoiceQuery {
  const Codec* codec;
  std::uint64_t count, chunk_setting;  // chunk_setting: CRIMP_CHUNK; 0: what is predicted to take least
  std::uint64_t plain_bytes;           // of the same elements in the caller's type
  double quality = 3;                  // AlgorithmEntry::error up to which algorithms are considered (CRIMP_QUALITY)
  int radix = 0;                       // CRIMP_RADIX; 0: what is predicted to take least; 1: directly
  bool controlled = false;  // CRIMP_CONTROL follows what calls take: nothing is tried, left to plain MPI, or stands in
  bool alone = false;       // nothing else of weight is in the call, which plain MPI may carry to see how long it takes
  // Likewise, of 16 bits a value, which may carry the call in place of `codec` where that is faster; null: none may.
  // Which one follows from `codec`, and whether there is one from the members before this.
  const Codec* halves = nullptr;
  bool exact = false;  // node_sum, which encodes nothing, may carry the call where that is faster
  // Bytes of a rank's frame where one exchange carries the call (one_shot), and where one carries `halves`; 0: none
  // can.
  std::uint64_t frame_bytes = 0, halves_frame_bytes = 0;
  // Of a collective but allreduce: which, and the most elements that a rank receives.
  Collective collective = Collective::allreduce;
  std::uint64_t largest_share = 0;

  // The same call by `halves`, which is not null.
  ChoiceQuery in_halves() const {
    ChoiceQuery query = *this;
    query.codec = halves;
    query.frame_bytes = halves_frame_bytes;
    query.exact = false;
    return query;
  }
  // Whether so many ranks can exchange frames of so many bytes at once, so that a rank without memory takes part from
  // its reserve.
  static constexpr bool fits_one_exchange(std::uint64_t frame, int ranks) {
    return frame != 0 && frame <= kReserveBytes / 2 / (static_cast<std::uint64_t>(ranks) + 1);
  }
};

// Of one or more candidates (src/collective/candidates.hpp); or plain MPI. The same makes the tables of `crimp model`.
Choice cheapest(std::span<const Choice>);

}  // namespace crimp
