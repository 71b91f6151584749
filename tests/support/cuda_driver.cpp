// The driver's part of the stand-in (tests/support/simt): what Crimp looks for in libcuda.so.1. A context exists when
// the program has asked the runtime for memory, or retained the primary one, as with the real one.
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

namespace {

char primary[8];  // a context's handle is its address
thread_local std::vector<void*> pushed;

bool initialised = false, retained = false;

bool active() {
  if (retained) return true;
  for (const char* made_by : {"cudaMalloc", "cudaMallocHost", "cudaHostAlloc", "cudaMallocManaged", "cudaFree"})
    if (simt::calls(made_by)) return true;
  return false;
}

}  // namespace

extern "C" {

int cuInit(unsigned) {
  initialised = true;
  return 0;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return active() || initialised ? 0 : 3;  // not initialized
}
int cuCtxGetCurrent(void** context) {
  int device = 0;
  cudaGetDevice(&device);
  *context = !pushed.empty() ? pushed.back() : active() ? primary + device : nullptr;
  return 0;
}
int cuCtxPushCurrent_v2(void* context) { return pushed.push_back(context), 0; }
int cuCtxPopCurrent_v2(void** context) {
  *context = pushed.back();
  return pushed.pop_back(), 0;
}
int cuDevicePrimaryCtxGetState(int, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = active();
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = primary + device;
  retained = true;
  return 0;
}
int cuPointerGetAttributes(unsigned count, const int* attributes, void** values, std::uint64_t pointer) {
  cudaPointerAttributes found{};
  if (cudaPointerGetAttributes(&found, reinterpret_cast<const void*>(pointer)) != cudaSuccess) {
    cudaGetLastError();
    found = {cudaMemoryTypeUnregistered, -2, nullptr, nullptr};
  }
  for (unsigned i = 0; i < count; ++i) switch (attributes[i]) {
      case 2:
        *static_cast<unsigned*>(values[i]) = found.type == cudaMemoryTypeUnregistered ? 0
                                             : found.type == cudaMemoryTypeHost       ? 1
                                                                                      : 2;
        break;
      case 8: *static_cast<unsigned*>(values[i]) = found.type == cudaMemoryTypeManaged; break;
      case 9: *static_cast<int*>(values[i]) = found.device; break;
    }
  return 0;
}
}
