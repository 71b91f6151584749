// What one rank would send for a call, from an encode of its own data: libcrimp.so keeps its counters to itself until
// MPI_Finalize.
#pragma once
#include <cstdint>

#include "codec/codec.hpp"
#include "core/settings.hpp"

namespace crimp::tools {

struct LocalCalls {
  const float* values;  // the same in every call
  std::uint64_t count;
  int before, calls;  // with error feedback: calls that are not counted, and those that are
};
// Bytes of headers and bodies per call, on average.
double payload_bytes(const Codec&, const Settings&, int ranks, const LocalCalls&);

}  // namespace crimp::tools
