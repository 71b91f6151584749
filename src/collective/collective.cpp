#include "collective/collective.hpp"

#include "collective/algorithms.hpp"

namespace crimp {

CollectiveResult allreduce_compressed(Transport& transport, const RoutePlan& route, const CallBuffers& buffers,
                                      Workers& workers, Trace* trace) {
  const auto exchange = route.exchange(transport, buffers, workers, trace);
  exchange->start();
  return exchange->finish();
}

void decline(CallBuffers& buffers) {
  buffers.flags |= kFlagNoMemory;
  buffers.arena = buffers.values = nullptr;
}

std::uint64_t chunk_elements(std::uint64_t setting, const Codec& codec, int ranks, Algorithm algorithm) {
  return entry_of(algorithm).chunk_elements(setting ? setting : kDefaultChunk, codec, ranks);
}

}  // namespace crimp
