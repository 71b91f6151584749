#include <algorithm>

#include "backend/cuda_convert.hpp"
#include "backend/cuda_memory.hpp"
#include "core/half.hpp"

namespace crimp::cuda {
namespace {

constexpr unsigned kLanes = 256;

struct F32 {
  using Bits = std::uint32_t;
  static constexpr Bits kMask = 0x7fffffff;
};
struct F64 {
  using Bits = unsigned long long;
  static constexpr Bits kMask = 0x7fffffffffffffff;
  static __device__ float wide(Bits x) { return static_cast<float>(std::bit_cast<double>(x)); }
  static __device__ Bits narrow(float x) { return std::bit_cast<Bits>(static_cast<double>(x)); }
};
struct F16 {
  using Bits = std::uint16_t;
  static constexpr Bits kMask = 0x7fff;
  static __device__ float wide(Bits x) { return float_from_half(x); }
  static __device__ Bits narrow(float x) { return half_from_float(x); }
};
struct Bf16 {
  using Bits = std::uint16_t;
  static constexpr Bits kMask = 0x7fff;
  static __device__ float wide(Bits x) { return float_from_bfloat(x); }
  static __device__ Bits narrow(float x) { return bfloat_from_float(x); }
};

template <class Type>
__global__ void __launch_bounds__(kLanes) widen_all(const typename Type::Bits* in, float* out, std::uint64_t count) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    out[i] = Type::wide(in[i]);
}

template <class Type>
__global__ void __launch_bounds__(kLanes) narrow_all(const float* in, typename Type::Bits* out, std::uint64_t count) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    out[i] = Type::narrow(in[i]);
}

// One block per stretch. The maximum of bits is the same in any order; lanes that see a larger one already leave the
// word alone.
template <class Type>
__global__ void __launch_bounds__(kLanes)
    magnitude_of(const typename Type::Bits* values, const ElementRange* stretches, unsigned long long* tops) {
  const ElementRange s = stretches[blockIdx.x];
  unsigned long long top = 0;
  for (std::uint32_t i = threadIdx.x; i < s.count; i += blockDim.x) {
    const unsigned long long x = values[s.offset + i] & Type::kMask;
    top = x > top ? x : top;
  }
  if (top > *static_cast<volatile unsigned long long*>(tops + s.group)) atomicMax(tops + s.group, top);
}

template <class... Expected, class... Actual>
void launch(void (*kernel)(Expected...), std::uint64_t blocks, cudaStream_t stream, Actual... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kLanes);
  config.stream = stream;
  CRIMP_CUDA(cudaLaunchKernelEx(&config, kernel, arguments...));
}

std::uint64_t blocks_for(std::uint64_t count) { return std::clamp<std::uint64_t>(div_up(count, 4 * kLanes), 1, 4096); }

template <class Type>
const typename Type::Bits* bits(const void* p) {
  return static_cast<const typename Type::Bits*>(p);
}

}  // namespace

void widen(Dtype from, const void* in, float* out, std::uint64_t count, cudaStream_t stream) {
  switch (from) {
    case Dtype::f32:
      CRIMP_CUDA(cudaMemcpyAsync(out, in, count * sizeof(float), cudaMemcpyDeviceToDevice, stream));
      return;
    case Dtype::f64: return launch(widen_all<F64>, blocks_for(count), stream, bits<F64>(in), out, count);
    case Dtype::f16: return launch(widen_all<F16>, blocks_for(count), stream, bits<F16>(in), out, count);
    case Dtype::bf16: return launch(widen_all<Bf16>, blocks_for(count), stream, bits<Bf16>(in), out, count);
  }
}

void narrow(Dtype to, const float* in, void* out, std::uint64_t count, cudaStream_t stream) {
  switch (to) {
    case Dtype::f32:
      CRIMP_CUDA(cudaMemcpyAsync(out, in, count * sizeof(float), cudaMemcpyDeviceToDevice, stream));
      return;
    case Dtype::f64: return launch(narrow_all<F64>, blocks_for(count), stream, in, static_cast<F64::Bits*>(out), count);
    case Dtype::f16: return launch(narrow_all<F16>, blocks_for(count), stream, in, static_cast<F16::Bits*>(out), count);
    case Dtype::bf16:
      return launch(narrow_all<Bf16>, blocks_for(count), stream, in, static_cast<Bf16::Bits*>(out), count);
  }
}

void magnitudes(Dtype type, const void* values, const ElementRange* stretches, std::uint32_t count,
                unsigned long long* tops, cudaStream_t stream) {
  if (count == 0) return;
  switch (type) {
    case Dtype::f32: return launch(magnitude_of<F32>, count, stream, bits<F32>(values), stretches, tops);
    case Dtype::f64: return launch(magnitude_of<F64>, count, stream, bits<F64>(values), stretches, tops);
    case Dtype::f16: return launch(magnitude_of<F16>, count, stream, bits<F16>(values), stretches, tops);
    case Dtype::bf16: return launch(magnitude_of<Bf16>, count, stream, bits<Bf16>(values), stretches, tops);
  }
}

}  // namespace crimp::cuda
