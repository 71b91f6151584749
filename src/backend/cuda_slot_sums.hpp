// Sums of floats that lie in the memories of several devices.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <span>

namespace crimp::cuda {

// Loads the kernel into the current context.
void load_slot_sums();
// to[i] = from[0][i] + from[1][i] + ..., added in that order. `to` may be the first of them; all are aligned to 16
// bytes.
void add_slots(float* to, std::span<const float* const> from, std::uint64_t count, cudaStream_t);

}  // namespace crimp::cuda
