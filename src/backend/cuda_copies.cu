#include "backend/cuda_copies.hpp"

#include <algorithm>

#include "backend/cuda_memory.hpp"
#include "codec/device/block.cuh"
#include "core/types.hpp"

namespace crimp::cuda {
namespace {

constexpr std::uint64_t kBlockElements = 8 * 4 * device::kThreads;  // of a copy, to a block at least
constexpr std::uint64_t kMostBlocks = 4096;                         // of a launch, about

struct Copies {
  FloatCopy of[kCopiesAtOnce];
};
static_assert(sizeof(Copies) <= 4096 - 16);

// `each` blocks for every copy.
__global__ void __launch_bounds__(device::kThreads) copy_floats(Copies copies, std::uint32_t each) {
  const FloatCopy copy = copies.of[blockIdx.x / each];
  float* const to = device::global(copy.to);
  const float* const from = device::global(copy.from);
  const std::uint64_t first = std::uint64_t{blockIdx.x % each} * device::kThreads + threadIdx.x,
                      step = std::uint64_t{each} * device::kThreads,
                      quads = device::aligned16(to, from) ? copy.count / 4 : 0;
#pragma unroll 4
  for (std::uint64_t q = first; q < quads; q += step) device::store<4>(to + 4 * q, device::load<4>(from + 4 * q));
  for (std::uint64_t i = 4 * quads + first; i < copy.count; i += step) to[i] = from[i];
}

}  // namespace

void load_copies() { check_cuda(static_cast<cudaError_t>(device::load(&copy_floats, 0)), "the loading of a kernel"); }

void copy_all(std::span<const FloatCopy> all, cudaStream_t stream) {
  while (!all.empty()) {
    const auto some = all.first(std::min(all.size(), kCopiesAtOnce));
    all = all.subspan(some.size());
    Copies copies{};
    std::copy(some.begin(), some.end(), copies.of);
    std::uint64_t most = 0;
    for (const FloatCopy& copy : some) most = std::max(most, copy.count);
    if (most == 0) continue;
    const std::uint64_t each =
        std::clamp<std::uint64_t>(div_up(most, kBlockElements), 1, div_up(kMostBlocks, some.size()));
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(each * some.size()));
    config.blockDim = dim3(device::kThreads);
    config.stream = stream;
    CRIMP_CUDA(cudaLaunchKernelEx(&config, copy_floats, copies, static_cast<std::uint32_t>(each)));
  }
}

}  // namespace crimp::cuda
