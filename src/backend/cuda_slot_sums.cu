#include "backend/cuda_slot_sums.hpp"

#include <algorithm>

#include "backend/cuda_memory.hpp"
#include "codec/device/block.cuh"
#include "core/types.hpp"

namespace crimp::cuda {
namespace {

constexpr unsigned kLanes = 256;
constexpr int kAtOnce = 8;  // slots that one launch adds

struct Slots {
  const float* of[kAtOnce];
};
struct alignas(16) Quad {
  float of[4];
};

__global__ void __launch_bounds__(kLanes) sum_of_slots(Slots from, int slots, float* to, std::uint64_t count) {
  const std::uint64_t quads = count / 4, step = std::uint64_t{gridDim.x} * blockDim.x,
                      first = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (std::uint64_t q = first; q < quads; q += step) {
    Quad x[kAtOnce] = {};
#pragma unroll
    for (int s = 0; s < kAtOnce; ++s)
      if (s < slots) x[s] = device::global(reinterpret_cast<const Quad*>(from.of[s]))[q];
    Quad sum = x[0];
#pragma unroll
    for (int s = 1; s < kAtOnce; ++s)
      if (s < slots)
#pragma unroll
        for (int k = 0; k < 4; ++k) sum.of[k] += x[s].of[k];
    reinterpret_cast<Quad*>(to)[q] = sum;
  }
  if (first < count % 4) {
    const std::uint64_t i = 4 * quads + first;
    float sum = device::global(from.of[0])[i];
#pragma unroll
    for (int s = 1; s < kAtOnce; ++s)
      if (s < slots) sum += device::global(from.of[s])[i];
    to[i] = sum;
  }
}

}  // namespace

void load_slot_sums() {
  check_cuda(static_cast<cudaError_t>(device::load(&sum_of_slots, 0)), "the loading of a kernel");
}

void add_slots(float* to, std::span<const float* const> from, std::uint64_t count, cudaStream_t stream) {
  if (count == 0 || from.empty()) return;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(std::clamp<std::uint64_t>(div_up(count, 4 * kLanes), 1, 4096)));
  config.blockDim = dim3(kLanes);
  config.stream = stream;
  // What is added already stands in for the slots that it is of.
  for (std::size_t first = 0; first < from.size();) {
    Slots slots{};
    std::size_t n = 0;
    if (first > 0) slots.of[n++] = to;
    for (; n < kAtOnce && first < from.size(); ++n) slots.of[n] = from[first++];
    CRIMP_CUDA(cudaLaunchKernelEx(&config, sum_of_slots, slots, static_cast<int>(n), to, count));
  }
}

}  // namespace crimp::cuda
