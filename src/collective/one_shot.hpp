// What who starts an exchange of algorithm one_shot has to know of it (collective/one_shot.cpp).
#pragma once
#include <cstdint>

#include "collective/plan.hpp"

namespace crimp {

// Of a route of Algorithm::one_shot: bytes of the frame that a rank sends every rank. The first thing that its exchange
// takes of CallBuffers::arena are this rank's frame and then all ranks', so that with the same arena they lie where
// they lay before.
std::uint64_t frame_bytes(const RoutePlan&);

}  // namespace crimp
