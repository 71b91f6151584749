// Primitives of a warp and of a block, the only ones that kernels use. Compiled by nvcc, and by the host compiler for
// the executor (tests/support/simt): the code that is tested is the code that runs, so CUB does not stand behind them.
//
// Every function is called by all lanes of a warp (warp_*) or all threads of a block (block_*, copy_bytes). Blocks have
// kThreads threads in one dimension unless a kernel says otherwise.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "core/types.hpp"

namespace crimp::device {

inline constexpr std::uint32_t kWarp = 32, kThreads = 512, kWarps = kThreads / kWarp, kAllLanes = 0xffffffff;

// Blocks of kThreads that a kernel with so much shared memory is compiled for, on one multiprocessor, `most` or three:
// two with up to 64 registers (half of its warps), three with up to 40 or four with up to 32. Four have 56 KiB each on
// sm_90, 40 KiB on sm_80.
__host__ __device__ constexpr std::uint32_t blocks_with(std::size_t shared_bytes, std::uint32_t most) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  return shared_bytes <= 56 << 10 || most < 3 ? most : 3;
#else
  return shared_bytes <= 40 << 10 || most < 3 ? most : 3;
#endif
}

__device__ inline std::uint32_t lane() { return threadIdx.x % kWarp; }
__device__ inline std::uint32_t warp() { return threadIdx.x / kWarp; }

// A block's dynamic shared memory; T has no constructor that matters. Kernels have no other, so that the executor can
// poison it.
template <class T>
__device__ inline T& shared_memory() {
#ifdef CRIMP_SIMT
  return *static_cast<T*>(simt::shared_memory());
#else
  extern __shared__ __align__(16) unsigned char crimp_shared[];
  return *reinterpret_cast<T*>(crimp_shared);
#endif
}

// ---- a thread

// n elements from one alignment, which is that of n floats; arrays of them stay in registers when unrolled.
template <int n>
struct alignas(4 * n) Floats {
  float v[n];
};
template <int n>
__device__ inline Floats<n> load(const float* p) {
  return *reinterpret_cast<const Floats<n>*>(p);
}
template <int n>
__device__ inline void store(float* p, const Floats<n>& x) {
  *reinterpret_cast<Floats<n>*>(p) = x;
}

// ---- warps

// Inclusive scan in lane order; op is associative.
template <class T, class Op>
__device__ inline T warp_scan(T v, Op op) {
#pragma unroll
  for (std::uint32_t by = 1; by < kWarp; by *= 2) {
    const T below = __shfl_up_sync(kAllLanes, v, by);
    if (lane() >= by) v = op(below, v);
  }
  return v;
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Greatest {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

// Likewise of sums, by the predicate that the instruction gives, one instruction a step less.
__device__ inline std::uint32_t warp_sums(std::uint32_t v) {
#ifdef CRIMP_SIMT
  return warp_scan(v, Plus());
#else
#pragma unroll
  for (std::uint32_t by = 1; by < kWarp; by *= 2)
    asm volatile(
        "{\n.reg .pred there;\n.reg .u32 below;\nshfl.sync.up.b32 below|there, %0, %1, 0, 0xffffffff;\n"
        "@there add.u32 %0, %0, below;\n}"
        : "+r"(v)
        : "r"(by));
  return v;
#endif
}

// The sum of WIRE_FORMAT.md, section 4.0, of 64 lanes: `low` is the partial sum of this lane, `high` that of lane + 32.
// Lane 0 has the result.
__device__ inline float warp_tree_sum(float low, float high) {
  float sum = low + high;
#pragma unroll
  for (std::uint32_t by = kWarp / 2; by > 0; by /= 2) sum += __shfl_down_sync(kAllLanes, sum, by);
  return sum;
}

// Likewise by half-warps, sixteen threads with 64 lanes: sums[k] is that of lane 4 t + k, t this thread's number in the
// half. Every thread of the half has the result.
__device__ inline float half_warp_tree_sum(const float (&sums)[4]) {
  // A thread gives away those that its partner goes on with: first the pairs, then one of the pair.
  const bool upper = threadIdx.x & 8, odd = threadIdx.x & 4;
  const float low = (upper ? sums[2] : sums[0]) + __shfl_xor_sync(kAllLanes, upper ? sums[0] : sums[2], 8),
              high = (upper ? sums[3] : sums[1]) + __shfl_xor_sync(kAllLanes, upper ? sums[1] : sums[3], 8);
  float sum = (odd ? high : low) + __shfl_xor_sync(kAllLanes, odd ? low : high, 4);  // of sixteen
  sum += __shfl_xor_sync(kAllLanes, sum, 2);
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  sum += __shfl_xor_sync(kAllLanes, sum, 8);
  return sum + __shfl_xor_sync(kAllLanes, sum, 4);
}

// __byte_perm where bit 3 of each of the four selectors is known to be 0, and bits from 16 on may be anything: what the
// instruction takes as it is.
__device__ inline std::uint32_t pick_bytes(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
#ifdef CRIMP_SIMT
  return __byte_perm(a, b, selectors & 0xffff);
#else
  std::uint32_t picked;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(picked) : "r"(a), "r"(b), "r"(selectors));
  return picked;
#endif
}

// 0xff for each byte of x whose top bit is set, 0 for the others.
__device__ inline std::uint32_t top_bits(std::uint32_t x) {
#ifdef CRIMP_SIMT
  return (x >> 7 & 0x01010101) * 0xff;
#else
  std::uint32_t bytes;
  asm("prmt.b32 %0, %1, 0, 0xba98;" : "=r"(bytes) : "r"(x));
  return bytes;
#endif
}

// x, but what is made of it is made here, and not kept in registers since before a loop.
__device__ inline std::uint32_t afresh(std::uint32_t x) {
#ifndef CRIMP_SIMT
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// ---- blocks

// Room for the functions below. May be used again at once: each of them ends with a barrier.
struct BlockScratch {
  alignas(8) std::uint64_t warps[kWarps];
};

// The largest magnitude of a warp's lanes in a[0, count), 16-byte aligned, as bits, which order as the numbers do; by
// the `threads` threads, whole warps, from `first` on.
__device__ inline std::uint32_t warp_peak(const float* a, std::uint32_t count, std::uint32_t first = 0,
                                          std::uint32_t threads = kThreads) {
  const std::uint32_t thread = threadIdx.x - first;
  float top = 0.0f;
#pragma unroll 1
  for (std::uint32_t q = thread; q < count / 4; q += threads) {
    const Floats<4> x = load<4>(a + 4 * q);
#pragma unroll
    for (int k = 0; k < 4; ++k) top = fmaxf(top, fabsf(x.v[k]));
  }
  if (const std::uint32_t i = count / 4 * 4 + thread; i < count) top = fmaxf(top, fabsf(a[i]));
  return __reduce_max_sync(kAllLanes, __float_as_uint(top));
}

__device__ inline std::uint32_t block_max(std::uint32_t v, BlockScratch& scratch) {
  v = __reduce_max_sync(kAllLanes, v);
  if (lane() == 0) scratch.warps[warp()] = v;
  __syncthreads();
  v = __reduce_max_sync(kAllLanes, lane() < kWarps ? static_cast<std::uint32_t>(scratch.warps[lane()]) : 0u);
  __syncthreads();
  return v;
}

// Exclusive scan over the threads of a block, T of at most 8 bytes; *total: over all. zero: what thread 0 gets, neutral
// for op.
template <class T, class Op>
__device__ inline T block_scan(T v, T zero, Op op, BlockScratch& scratch, T* total) {
  static_assert(sizeof(T) <= sizeof scratch.warps[0]);
  const T inclusive = warp_scan(v, op);
  if (lane() == kWarp - 1) scratch.warps[warp()] = static_cast<std::uint64_t>(inclusive);
  T before = __shfl_up_sync(kAllLanes, inclusive, 1);
  if (lane() == 0) before = zero;
  __syncthreads();
  const T sums = warp_scan(lane() < kWarps ? static_cast<T>(scratch.warps[lane()]) : zero, op);
  *total = __shfl_sync(kAllLanes, sums, kWarps - 1);
  const T warps_before = __shfl_sync(kAllLanes, sums, warp() == 0 ? 0 : static_cast<int>(warp()) - 1);
  __syncthreads();
  return warp() == 0 ? before : op(warps_before, before);
}
__device__ inline std::uint32_t block_offsets(std::uint32_t v, BlockScratch& scratch, std::uint32_t* total) {
  return block_scan(v, 0u, Plus(), scratch, total);
}

// The sum over a block of `threads`, whole warps, in every thread.
template <std::uint32_t threads = kThreads>
__device__ inline std::uint64_t block_sum(std::uint64_t v, BlockScratch& scratch) {
  static_assert(threads % kWarp == 0 && threads <= kThreads);
#pragma unroll
  for (std::uint32_t by = kWarp / 2; by > 0; by /= 2) v += __shfl_xor_sync(kAllLanes, v, static_cast<int>(by));
  if (lane() == 0) scratch.warps[warp()] = v;
  __syncthreads();
  v = 0;
#pragma unroll
  for (std::uint32_t w = 0; w < threads / kWarp; ++w) v += scratch.warps[w];
  __syncthreads();
  return v;
}

// Whether p is true for a thread of the block. A barrier.
__device__ inline bool block_any(bool p) { return __syncthreads_or(p) != 0; }

// x, of which the compiler is to know nothing: it would take a multiplication that adds a constant apart.
__device__ inline std::uint64_t unknown(std::uint64_t x) {
#ifndef CRIMP_SIMT
  asm("" : "+l"(x));
#endif
  return x;
}

// ---- memory

// p, which is to device memory, said to the compiler: a pointer that a table in memory holds might else be to shared
// memory, and no load from it would be issued before the stores to shared memory that stand in front of it.
template <class T>
__device__ inline T* global(T* p) {
#ifndef CRIMP_SIMT
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

// The first n of four, to and from.
template <int n>
__device__ inline void load_front(Floats<4>& to, const float* p) {
  const Floats<n> x = load<n>(p);
#pragma unroll
  for (int k = 0; k < n; ++k) to.v[k] = x.v[k];
}
template <int n>
__device__ inline void store_front(float* p, const Floats<4>& from) {
  Floats<n> x;
#pragma unroll
  for (int k = 0; k < n; ++k) x.v[k] = from.v[k];
  store<n>(p, x);
}

template <class... Pointer>
__device__ inline bool aligned16(const Pointer*... p) {
  return (((reinterpret_cast<std::uintptr_t>(p)) | ...) & 15) == 0;  // a null pointer is aligned
}

// work(n, i) for the elements [i, i + n) of [0, count), n a constant: 4 where `quads`, then or else 1. The same thread
// has the same elements in every such loop.
template <class Work>
__device__ inline void for_elements(std::uint32_t count, bool quads, Work&& work) {
  const std::uint32_t whole = quads ? count / 4 : 0;
#pragma unroll 2
  for (std::uint32_t q = threadIdx.x; q < whole; q += kThreads) work(std::integral_constant<int, 4>(), 4 * q);
#pragma unroll 2
  for (std::uint32_t i = 4 * whole + threadIdx.x; i < count; i += kThreads) work(std::integral_constant<int, 1>(), i);
}

// As for_elements, but a thread has `at_once` times n elements at once: first(n, j, i) for each of them and then
// then(n, j, i), j from 0 and a constant when unrolled. What `first` loads into registers is on its way all at once.
template <int at_once, class First, class Then>
__device__ inline void in_batches(std::uint32_t count, bool quads, First&& first, Then&& then) {
  const auto range = [&](auto n, std::uint32_t begin, std::uint32_t vectors) {
#pragma unroll 1
    for (std::uint32_t v = threadIdx.x; v < vectors; v += at_once * kThreads) {
      const std::size_t i = begin + n * v;  // as wide as an address: then all have one, and constants behind it
#pragma unroll
      for (int j = 0; j < at_once; ++j)
        if (v + j * kThreads < vectors) first(n, j, i + n * j * kThreads);
#pragma unroll
      for (int j = 0; j < at_once; ++j)
        if (v + j * kThreads < vectors) then(n, j, i + n * j * kThreads);
    }
  };
  const std::uint32_t whole = quads ? count / 4 : 0;
  range(std::integral_constant<int, 4>(), 0, whole);
  range(std::integral_constant<int, 1>(), 4 * whole, count - 4 * whole);
}

// Copies n floats, aligned to as many, from device to shared memory without going through registers, `behind` elements
// behind the two addresses. The thread has them after its wait_async(), others after a barrier behind that.
template <int n, int behind = 0>
__device__ inline void copy_async(float* to, const float* from) {
#ifdef CRIMP_SIMT
  store<n>(to + behind, load<n>(from + behind));
#else
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const std::size_t global = __cvta_generic_to_global(from);
  constexpr int at = behind * static_cast<int>(sizeof(float));
  if constexpr (n == 4)
    asm volatile("cp.async.cg.shared.global [%0+%2], [%1+%2], 16;" ::"r"(shared), "l"(global), "n"(at) : "memory");
  else asm volatile("cp.async.ca.shared.global [%0+%2], [%1+%2], 4;" ::"r"(shared), "l"(global), "n"(at) : "memory");
#endif
}
// Likewise eight bytes, aligned to eight.
__device__ inline void copy_half_async(float* to, const void* from) {
#ifdef CRIMP_SIMT
  store<2>(to, load<2>(static_cast<const float*>(from)));
#else
  const auto shared = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
  const std::size_t global = __cvta_generic_to_global(from);
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared), "l"(global) : "memory");
#endif
}
__device__ inline void wait_async() {
#ifndef CRIMP_SIMT
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Bytes that form a T, at any address.
template <class T>
__device__ inline T load_bytes(const std::uint8_t* p) {
  static_assert(sizeof(T) == 2 || sizeof(T) == 4);
  std::uint32_t bits = p[0] | static_cast<std::uint32_t>(p[1]) << 8;
  if constexpr (sizeof(T) == 4) bits |= static_cast<std::uint32_t>(p[2]) << 16 | static_cast<std::uint32_t>(p[3]) << 24;
  if constexpr (std::is_same_v<T, float>) return __uint_as_float(bits);
  else return static_cast<T>(bits);
}
__device__ inline void store_bytes(std::uint8_t* p, std::uint32_t bits) {
#pragma unroll
  for (int i = 0; i < 4; ++i) p[i] = static_cast<std::uint8_t>(bits >> (8 * i));
}
__device__ inline void store_bytes(std::uint8_t* p, float x) { store_bytes(p, __float_as_uint(x)); }

// Copies n bytes between any two addresses, device or shared, that do not overlap: 16 bytes a thread with neighbours
// side by side, single ones at the ends. Reads nothing beyond [from, from + n). Any block size. No barrier.
__device__ inline void copy_bytes(std::uint8_t* to, const std::uint8_t* from, std::uint32_t n) {
  std::uint32_t head = static_cast<std::uint32_t>(-reinterpret_cast<std::uintptr_t>(to) & 15);
  if (head > n) head = n;
  const std::uint32_t skew = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(from + head) & 15),
                      odd = skew % 4;
  if (odd > head) head += 16;                      // words are read whole: none may begin before `from`
  const std::uint32_t behind = odd ? 4 - odd : 0;  // nor end behind it
  const std::uint32_t vectors = n >= head + 16 + behind ? (n - head - behind) / 16 : 0;
  if (head > n) head = n;
  auto* vector = reinterpret_cast<uint4*>(to + head);
  if (skew == 0) {
    const auto* source = reinterpret_cast<const uint4*>(from + head);
    for (std::uint32_t v = threadIdx.x; v < vectors; v += blockDim.x) vector[v] = source[v];
  } else {
    const auto* word = reinterpret_cast<const std::uint32_t*>(from + head - odd);
    for (std::uint32_t v = threadIdx.x; v < vectors; v += blockDim.x) {
      const std::uint32_t *w = word + 4 * v, last = odd ? w[4] : 0;
      vector[v] = make_uint4(__funnelshift_r(w[0], w[1], 8 * odd), __funnelshift_r(w[1], w[2], 8 * odd),
                             __funnelshift_r(w[2], w[3], 8 * odd), __funnelshift_r(w[3], last, 8 * odd));
    }
  }
  const std::uint32_t tail = head + 16 * vectors;
  for (std::uint32_t i = threadIdx.x; i < head + n - tail; i += blockDim.x) {
    const std::uint32_t at = i < head ? i : i - head + tail;
    to[at] = from[at];
  }
}

// ---- launches

// No stream: where it is given for one, kernels are loaded into the current context and prepared, and nothing is run.
inline cudaStream_t only_load() { return reinterpret_cast<cudaStream_t>(~std::uintptr_t{0}); }

// What the driver would else do at the first launch, which may find no memory (modules are loaded lazily), and leave
// for more than 48 KiB of shared memory. Later launches do not ask for it again.
template <class Kernel>
int load(Kernel* kernel, std::size_t shared_bytes) {
  cudaFuncAttributes ignored;
  if (const cudaError_t e = cudaFuncGetAttributes(&ignored, kernel); e != cudaSuccess) return static_cast<int>(e);
  if (shared_bytes <= 48 << 10) return 0;
  return static_cast<int>(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
}

// On stream s; 0 or the CUDA error. No block is no error.
template <auto kernel, class Stream, class... Argument>
int launch(std::uint32_t blocks, std::uint32_t threads, std::size_t shared_bytes, Stream s,
           const Argument&... arguments) {
  if (s == only_load()) return load(kernel, shared_bytes);
  if (blocks == 0) return 0;
#ifdef CRIMP_SIMT
  static const bool named = (simt::name_kernel(reinterpret_cast<const void*>(kernel), __PRETTY_FUNCTION__), true);
  (void)named;
#endif
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = s;
  return static_cast<int>(cudaLaunchKernelEx(&config, kernel, arguments...));
}

template <class Stream>
int zero(void* memory, std::size_t bytes, Stream s) {
  return s == only_load() ? 0 : static_cast<int>(cudaMemsetAsync(memory, 0, bytes, s));
}

}  // namespace crimp::device
