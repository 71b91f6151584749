// CUDA for tests that run under the stand-in (tests/support/simt) and on a real device: there, questions to the
// executor have plain answers.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <string>

#ifdef CRIMP_SIMT
namespace crimp::test {
inline constexpr bool kRealDevice = false;
}
#else
namespace crimp::test {
inline constexpr bool kRealDevice = true;
// Empty where a device answers, else why none does.
inline std::string no_device() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  return error != cudaSuccess ? std::string("no GPU answers: ") + cudaGetErrorString(error)
         : count == 0         ? "there is no GPU"
                              : "";
}
}  // namespace crimp::test
namespace simt {
struct Seeds {
  std::uint64_t order = 0, poison = 0;
};
inline void set_seeds(Seeds) {}  // the device has an order of its own
// What the device has found: an error of a kernel or a copy.
inline std::string take_reports() {
  const cudaError_t error = cudaDeviceSynchronize();
  cudaGetLastError();
  return error == cudaSuccess ? "" : cudaGetErrorString(error);
}
}  // namespace simt
#endif

namespace crimp::test {

// Between any two memories, complete on return, whatever errors are pending.
inline bool copy_anywhere(void* to, const void* from, std::size_t bytes) {
#ifdef CRIMP_SIMT
  const simt::Reveal reveal;
  if (bytes) std::memcpy(to, from, bytes);
  return true;
#else
  return bytes == 0 ||
         (cudaMemcpy(to, from, bytes, cudaMemcpyDefault) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess);
#endif
}

}  // namespace crimp::test
