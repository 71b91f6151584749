// Stand-in for the CUDA runtime: the part of its interface that Crimp uses, on a machine without a GPU. Kernels compile
// with the host compiler against this header (-x c++ -I tests/support/simt) and run in the executor (executor.hpp),
// which also says what is checked. Written for this project; names, argument orders and meanings are those of the CUDA
// documentation.
//
// Whatever is enqueued runs as late as the documentation allows: when the host waits, or when another stream needs an
// event.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "executor.hpp"

#define CRIMP_SIMT 1
#define CUDART_VERSION 13000
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __restrict__ __restrict

// ---- types

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInitializationError = 3,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorDeviceUninitialized = 201,
  cudaErrorMapBufferObjectFailed = 205,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorHostMemoryAlreadyRegistered = 712,
  cudaErrorHostMemoryNotRegistered = 713,
  cudaErrorLaunchFailure = 719,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorStreamCaptureImplicit = 906,
  cudaErrorCapturedEvent = 907,
  cudaErrorStreamCaptureWrongThread = 908,
  cudaErrorUnknown = 999,
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal,
  cudaStreamCaptureModeThreadLocal,
  cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone,
  cudaStreamCaptureStatusActive,
  cudaStreamCaptureStatusInvalidated
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaDeviceAttr {
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
  cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDefault = 0,
                          cudaEventBlockingSync = 1, cudaEventDisableTiming = 2, cudaHostAllocDefault = 0,
                          cudaHostAllocPortable = 1, cudaHostAllocMapped = 2, cudaHostRegisterDefault = 0,
                          cudaHostRegisterPortable = 1, cudaMemAttachGlobal = 1, cudaIpcMemLazyEnablePeerAccess = 1;
inline constexpr int cudaInvalidDeviceId = -2;

using cudaStream_t = struct CUstream_st*;
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(1))
#define cudaStreamPerThread (reinterpret_cast<cudaStream_t>(2))
using cudaEvent_t = struct CUevent_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphNode_t = struct CUgraphNode_st*;
using cudaHostFn_t = void (*)(void*);
struct cudaIpcMemHandle_t {
  char reserved[64];
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
  void *devicePointer, *hostPointer;
};
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct cudaLaunchAttribute;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) ushort4 {
  unsigned short x, y, z, w;
};
struct alignas(4) uchar4 {
  unsigned char x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- the runtime (runtime.cpp)

cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorName(cudaError_t);
const char* cudaGetErrorString(cudaError_t);
cudaError_t cudaGetDeviceCount(int*);
cudaError_t cudaGetDevice(int*);
cudaError_t cudaSetDevice(int);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaDriverGetVersion(int*);
cudaError_t cudaRuntimeGetVersion(int*);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);

cudaError_t cudaMalloc(void**, std::size_t);
cudaError_t cudaFree(void*);
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*);
cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned flags);
cudaError_t cudaIpcCloseMemHandle(void*);
cudaError_t cudaMallocHost(void**, std::size_t);
cudaError_t cudaHostAlloc(void**, std::size_t, unsigned flags);
cudaError_t cudaFreeHost(void*);
cudaError_t cudaHostRegister(void*, std::size_t, unsigned flags);
cudaError_t cudaHostUnregister(void*);
cudaError_t cudaMallocManaged(void**, std::size_t, unsigned flags = cudaMemAttachGlobal);
template <class T>
cudaError_t cudaMalloc(T** p, std::size_t n) {
  return cudaMalloc(reinterpret_cast<void**>(p), n);
}
template <class T>
cudaError_t cudaMallocHost(T** p, std::size_t n) {
  return cudaMallocHost(reinterpret_cast<void**>(p), n);
}
template <class T>
cudaError_t cudaHostAlloc(T** p, std::size_t n, unsigned flags) {
  return cudaHostAlloc(reinterpret_cast<void**>(p), n, flags);
}
template <class T>
cudaError_t cudaMallocManaged(T** p, std::size_t n, unsigned flags = cudaMemAttachGlobal) {
  return cudaMallocManaged(reinterpret_cast<void**>(p), n, flags);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes*, const void*);

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t, cudaMemcpyKind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t, cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind, cudaStream_t = nullptr);
cudaError_t cudaMemset(void*, int, std::size_t);
cudaError_t cudaMemsetAsync(void*, int, std::size_t, cudaStream_t = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t*);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t*, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaStreamSynchronize(cudaStream_t);
cudaError_t cudaStreamQuery(cudaStream_t);
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned flags = 0);
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*);
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus*);
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode);
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*);
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, std::size_t* count);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaEventCreate(cudaEvent_t*);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t);
cudaError_t cudaEventQuery(cudaEvent_t);
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t, cudaEvent_t);
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t, void*);
struct cudaFuncAttributes {
  int maxDynamicSharedSizeBytes;
};
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes*, const void* kernel);
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, Kernel* kernel) {
  return cudaFuncGetAttributes(a, reinterpret_cast<const void*>(kernel));
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int);
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute a, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), a, value);
}

namespace simt {
cudaError_t enqueue_kernel(const cudaLaunchConfig_t&, const void* kernel, std::vector<std::uint64_t> argument_words,
                           std::function<void()> lane);

// The 8-byte words of an argument at multiples of 8: where pointers are. Without padding, which may hold half of an old
// pointer: a compiler that cannot clear it (clang 14) leaves out arguments that may have some.
template <class T>
void words_of(T argument, std::vector<std::uint64_t>& words) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&argument);
#else
  if constexpr (!std::has_unique_object_representations_v<T>) return;
#endif
  const auto* bytes = reinterpret_cast<const unsigned char*>(&argument);
  for (std::size_t at = 0; at + 8 <= sizeof argument; at += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes + at, sizeof word);
    words.push_back(word);
  }
}
}  // namespace simt

template <class... Expected, class... Actual>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Expected...), Actual&&... arguments) {
  std::tuple<Expected...> values{static_cast<Expected>(std::forward<Actual>(arguments))...};
  std::vector<std::uint64_t> words;
  std::apply([&](const auto&... each) { (simt::words_of(each, words), ...); }, values);
  return simt::enqueue_kernel(*config, reinterpret_cast<const void*>(kernel), std::move(words),
                              [kernel, values] { std::apply(kernel, values); });
}

// ---- what kernels use

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

using simt_at = simt::Place;
inline void __syncthreads(simt_at at = simt_at::current()) { simt::barrier(simt::Barrier::plain, 0, at); }
inline int __syncthreads_or(int p, simt_at at = simt_at::current()) {
  return static_cast<int>(simt::barrier(simt::Barrier::any, p != 0, at) != 0);
}
inline int __syncthreads_and(int p, simt_at at = simt_at::current()) {
  return static_cast<int>(simt::barrier(simt::Barrier::all, p != 0, at));
}
inline int __syncthreads_count(int p, simt_at at = simt_at::current()) {
  return static_cast<int>(simt::barrier(simt::Barrier::count, p != 0, at));
}

inline void __syncwarp(unsigned mask = 0xffffffff, simt_at at = simt_at::current()) {
  simt::collective(simt::Collective::sync, mask, 0, 0, 32, at);
}
template <class T>
T simt_shuffle(simt::Collective kind, unsigned mask, T value, unsigned argument, int width, simt_at at) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = simt::collective(kind, mask, bits, argument, width, at);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
template <class T>
T __shfl_sync(unsigned mask, T v, int lane, int width = 32, simt_at at = simt_at::current()) {
  return simt_shuffle(simt::Collective::from, mask, v, static_cast<unsigned>(lane), width, at);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32, simt_at at = simt_at::current()) {
  return simt_shuffle(simt::Collective::up, mask, v, by, width, at);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32, simt_at at = simt_at::current()) {
  return simt_shuffle(simt::Collective::down, mask, v, by, width, at);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32, simt_at at = simt_at::current()) {
  return simt_shuffle(simt::Collective::exchange, mask, v, static_cast<unsigned>(by), width, at);
}
inline unsigned __ballot_sync(unsigned mask, int p, simt_at at = simt_at::current()) {
  return static_cast<unsigned>(simt::collective(simt::Collective::ballot, mask, p != 0, 0, 32, at));
}
inline int __any_sync(unsigned mask, int p, simt_at at = simt_at::current()) {
  return simt::collective(simt::Collective::ballot, mask, p != 0, 0, 32, at) != 0;
}
inline int __all_sync(unsigned mask, int p, simt_at at = simt_at::current()) {
  return simt::collective(simt::Collective::ballot, mask, p != 0, 0, 32, at) == mask;
}
template <class T>
unsigned __match_any_sync(unsigned mask, T v, simt_at at = simt_at::current()) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  return static_cast<unsigned>(simt::collective(simt::Collective::match, mask, bits, 0, 32, at));
}
inline unsigned __activemask(simt_at at = simt_at::current()) { return simt::active_mask(at); }
inline unsigned __reduce_add_sync(unsigned mask, unsigned v, simt_at at = simt_at::current()) {
  return static_cast<unsigned>(simt::collective(simt::Collective::add, mask, v, 0, 32, at));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned v, simt_at at = simt_at::current()) {
  return static_cast<unsigned>(simt::collective(simt::Collective::greatest, mask, v, 0, 32, at));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned v, simt_at at = simt_at::current()) {
  return static_cast<unsigned>(simt::collective(simt::Collective::least, mask, v, 0, 32, at));
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned v, simt_at at = simt_at::current()) {
  return static_cast<unsigned>(simt::collective(simt::Collective::either, mask, v, 0, 32, at));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned v, simt_at at = simt_at::current()) {
  return static_cast<unsigned>(simt::collective(simt::Collective::both, mask, v, 0, 32, at));
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// Lanes run one at a time between synchronisations, so that plain operations are atomic.
template <class T, class Fn>
[[gnu::no_sanitize("thread")]] T simt_atomic(T* p, Fn&& fn) {
  simt::touched_by_atomic(p, sizeof *p);
  const T old = *p;
  *p = static_cast<T>(fn(old));
  return old;
}
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T o) { return o + v; });
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T o) { return o - v; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T o) { return v < o ? v : o; });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T o) { return o < v ? v : o; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T o) { return o | v; });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T o) { return o & v; });
}
template <class T>
T atomicXor(T* p, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T o) { return o ^ v; });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T) { return v; });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
  return simt_atomic(p, [=](T o) { return o == expected ? v : o; });
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned r = 0;
  for (int i = 0; i < 32; ++i) r |= (x >> i & 1u) << (31 - i);
  return r;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(std::uint64_t{a} * b >> 32); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) >> (by & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((std::uint64_t{high} << 32 | low) << (by & 31) >> 32);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int k = 0; k < 32; k += 8) c += (a >> k & 0xff) * (b >> k & 0xff);
  return c;
}
inline unsigned __dp2a_lo(unsigned a, unsigned b, unsigned c) {
  return c + (a & 0xffff) * (b & 0xff) + (a >> 16) * (b >> 8 & 0xff);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
  const std::uint64_t both = std::uint64_t{b} << 32 | a;
  unsigned r = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned pick = s >> (4 * i) & 0xf, byte = static_cast<unsigned>(both >> (8 * (pick & 7)) & 0xff);
    r |= (pick & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << (8 * i);
  }
  return r;
}
template <class To, class From>
To simt_bits(From x) {
  To to;
  static_assert(sizeof to == sizeof x);
  std::memcpy(&to, &x, sizeof to);
  return to;
}
inline unsigned __float_as_uint(float x) { return simt_bits<unsigned>(x); }
inline int __float_as_int(float x) { return simt_bits<int>(x); }
inline float __uint_as_float(unsigned x) { return simt_bits<float>(x); }
inline float __int_as_float(int x) { return simt_bits<float>(x); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fadd_rz(float a, float b) {  // exact where the sum of doubles is
  const double sum = static_cast<double>(a) + static_cast<double>(b);
  const auto nearest = static_cast<float>(sum);
  return std::fabs(static_cast<double>(nearest)) > std::fabs(sum) ? std::nextafter(nearest, 0.0f) : nearest;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline int __float2int_rn(float x) {
  const float y = std::nearbyint(x);
  return y >= 0x1p31f ? INT32_MAX : y <= -0x1p31f ? INT32_MIN : y == y ? static_cast<int>(y) : 0;
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
constexpr T min(T a, std::type_identity_t<T> b) {
  return b < a ? b : a;
}
template <class T>
constexpr T max(T a, std::type_identity_t<T> b) {
  return a < b ? b : a;
}
