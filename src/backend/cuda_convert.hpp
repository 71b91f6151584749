// Conversions and magnitudes in device memory; bits as src/core/convert.hpp has them. Everything is enqueued on the
// stream.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "core/types.hpp"

namespace crimp::cuda {

void widen(Dtype from, const void* in, float* out, std::uint64_t count, cudaStream_t);
// Loads narrow()'s kernel, which has no way back when it fails, into the current context.
void load_narrow(Dtype to);
void narrow(Dtype to, const float* in, void* out, std::uint64_t count, cudaStream_t);

// Elements [offset, offset + count) of a buffer, which belong to the group.
struct ElementRange {
  std::uint64_t offset;
  std::uint32_t count, group;
};
inline constexpr std::uint32_t kRangeElements = 65536;
// tops[group] = max(tops[group], bits of |x| in the type's own bits) over the stretches, which lie in device memory, as
// tops do.
void magnitudes(Dtype, const void* values, const ElementRange* stretches, std::uint32_t count, unsigned long long* tops,
                cudaStream_t);

}  // namespace crimp::cuda
