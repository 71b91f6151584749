#include "backend/cuda_copies.hpp"

#include <algorithm>

#include "backend/cuda_memory.hpp"
#include "codec/device/block.cuh"
#include "core/types.hpp"

namespace crimp::cuda {
namespace {

constexpr std::uint64_t kBlockElements = 8 * 4 * device::kThreads;  // of a copy, to a block
constexpr std::uint64_t kMostElements =
    16 * kBlockElements;  // of a copy; larger ones would leave the others' blocks idle

struct Copies {
  FloatCopy of[kCopiesAtOnce];
};
static_assert(sizeof(Copies) <= 4096 - 16);  // kernel arguments

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
  Copies copies{};
  std::uint32_t n = 0;
  std::uint64_t most = 0;
  const auto launch = [&] {
    if (n == 0) return;
    const auto each = static_cast<std::uint32_t>(div_up(most, kBlockElements));
    check_cuda(
        static_cast<cudaError_t>(device::launch<copy_floats>(n * each, device::kThreads, 0, stream, copies, each)),
        "a launch of copies");
    n = 0, most = 0;
  };
  for (const FloatCopy& copy : all) {
    if (copy.count == 0) continue;
    if (copy.count > kMostElements) {
      CRIMP_CUDA(cudaMemcpyAsync(copy.to, copy.from, copy.count * sizeof(float), cudaMemcpyDeviceToDevice, stream));
      continue;
    }
    if (n == kCopiesAtOnce) launch();
    copies.of[n++] = copy;
    most = std::max(most, copy.count);
  }
  launch();
}

}  // namespace crimp::cuda
