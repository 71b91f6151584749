#include <algorithm>

#include "backend/cuda_convert.hpp"
#include "backend/cuda_memory.hpp"
#include "codec/device/block.cuh"
#include "core/half.hpp"

namespace crimp::cuda {
namespace {

constexpr unsigned kLanes = 256;
struct MagnitudeShared {
  unsigned long long warps[kLanes / device::kWarp];
};

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

// Sixteen bytes.
template <class Type>
struct alignas(16) Vector {
  static constexpr std::uint32_t kCount = 16 / sizeof(typename Type::Bits);
  typename Type::Bits of[kCount];
};

// One block per stretch: a thread has four vectors on their way at once, and the block says once what its largest is.
// The maximum of bits is the same in any order.
template <class Type>
__global__ void __launch_bounds__(kLanes)
    magnitude_of(const typename Type::Bits* values, const ElementRange* stretches, unsigned long long* tops) {
  using Bits = typename Type::Bits;
  constexpr std::uint32_t n = Vector<Type>::kCount, at_once = 4;
  const ElementRange s = stretches[blockIdx.x];
  values += s.offset;
  Bits top = 0;
  const auto look = [&](Bits x) {
    const Bits magnitude = x & Type::kMask;
    top = magnitude > top ? magnitude : top;
  };
  const auto ahead = static_cast<std::uint32_t>(-reinterpret_cast<std::uintptr_t>(values) % 16 / sizeof(Bits)),
             head = ahead < s.count ? ahead : s.count, vectors = (s.count - head) / n, tail = head + vectors * n;
  const auto* vector = reinterpret_cast<const Vector<Type>*>(values + head);
  for (std::uint32_t v = threadIdx.x; v < vectors; v += at_once * kLanes) {
    Vector<Type> x[at_once] = {};
#pragma unroll
    for (std::uint32_t j = 0; j < at_once; ++j)
      if (v + j * kLanes < vectors) x[j] = vector[v + j * kLanes];
#pragma unroll
    for (std::uint32_t j = 0; j < at_once; ++j)
#pragma unroll
      for (std::uint32_t k = 0; k < n; ++k) look(x[j].of[k]);
  }
  if (threadIdx.x < head) look(values[threadIdx.x]);
  if (threadIdx.x < s.count - tail) look(values[tail + threadIdx.x]);
  auto& shared = device::shared_memory<MagnitudeShared>();
  unsigned long long most = top;
  const auto of_warp = [&] {
#pragma unroll
    for (std::uint32_t by = device::kWarp / 2; by > 0; by /= 2) {
      const unsigned long long other = __shfl_xor_sync(device::kAllLanes, most, static_cast<int>(by));
      most = other > most ? other : most;
    }
  };
  of_warp();
  if (device::lane() == 0) shared.warps[device::warp()] = most;
  __syncthreads();
  if (device::warp() != 0) return;
  most = device::lane() < kLanes / device::kWarp ? shared.warps[device::lane()] : 0;
  of_warp();
  if (threadIdx.x == 0 && most != 0) atomicMax(tops + s.group, most);
}

template <class... Expected, class... Actual>
void launch(void (*kernel)(Expected...), std::uint64_t blocks, std::size_t shared_bytes, cudaStream_t stream,
            Actual... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kLanes);
  config.dynamicSmemBytes = shared_bytes;
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
    case Dtype::f64: return launch(widen_all<F64>, blocks_for(count), 0, stream, bits<F64>(in), out, count);
    case Dtype::f16: return launch(widen_all<F16>, blocks_for(count), 0, stream, bits<F16>(in), out, count);
    case Dtype::bf16: return launch(widen_all<Bf16>, blocks_for(count), 0, stream, bits<Bf16>(in), out, count);
  }
}

void load_narrow(Dtype to) {
  const auto load = [](auto* kernel) {
    check_cuda(static_cast<cudaError_t>(device::load(kernel, 0)), "the loading of a kernel");
  };
  switch (to) {
    case Dtype::f32: return;
    case Dtype::f64: return load(&narrow_all<F64>);
    case Dtype::f16: return load(&narrow_all<F16>);
    case Dtype::bf16: return load(&narrow_all<Bf16>);
  }
}

void narrow(Dtype to, const float* in, void* out, std::uint64_t count, cudaStream_t stream) {
  switch (to) {
    case Dtype::f32:
      CRIMP_CUDA(cudaMemcpyAsync(out, in, count * sizeof(float), cudaMemcpyDeviceToDevice, stream));
      return;
    case Dtype::f64:
      return launch(narrow_all<F64>, blocks_for(count), 0, stream, in, static_cast<F64::Bits*>(out), count);
    case Dtype::f16:
      return launch(narrow_all<F16>, blocks_for(count), 0, stream, in, static_cast<F16::Bits*>(out), count);
    case Dtype::bf16:
      return launch(narrow_all<Bf16>, blocks_for(count), 0, stream, in, static_cast<Bf16::Bits*>(out), count);
  }
}

void magnitudes(Dtype type, const void* values, const ElementRange* stretches, std::uint32_t count,
                unsigned long long* tops, cudaStream_t stream) {
  if (count == 0) return;
  switch (type) {
    case Dtype::f32:
      return launch(magnitude_of<F32>, count, sizeof(MagnitudeShared), stream, bits<F32>(values), stretches, tops);
    case Dtype::f64:
      return launch(magnitude_of<F64>, count, sizeof(MagnitudeShared), stream, bits<F64>(values), stretches, tops);
    case Dtype::f16:
      return launch(magnitude_of<F16>, count, sizeof(MagnitudeShared), stream, bits<F16>(values), stretches, tops);
    case Dtype::bf16:
      return launch(magnitude_of<Bf16>, count, sizeof(MagnitudeShared), stream, bits<Bf16>(values), stretches, tops);
  }
}

}  // namespace crimp::cuda
