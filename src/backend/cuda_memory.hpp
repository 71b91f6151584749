// Device and pinned memory, and how errors of the CUDA runtime become Crimp's.
#pragma once
#include <cuda_runtime.h>

#include "backend/cuda_driver.hpp"
#include "memory/memory_resource.hpp"

namespace crimp::cuda {

// Throws Error{out_of_memory} or Error{device_failed} that says which call failed; no error stays behind for the
// application to find.
void check_cuda(cudaError_t, const char* call);
#define CRIMP_CUDA(call) ::crimp::cuda::check_cuda(call, #call)

// Makes the device's primary context this thread's for as long as the object lives. Devices whose context is not active
// throw Error{device_failed}.
class ContextGuard {
 public:
  explicit ContextGuard(int device);
  ContextGuard();  // any device's with an active context

 private:
  CudaContext here_;
};

// False while somebody captures a blocking stream of the context into a graph: to use the legacy stream would then
// fail, and spoil the capture.
bool default_stream_usable();

MemoryResource& device_memory(int device);
MemoryResource& pinned_memory();
// Room for so many bytes, and some more where it has to be other memory; what was there is lost then.
void grow(Memory&, std::size_t bytes, MemoryResource&);

}  // namespace crimp::cuda
