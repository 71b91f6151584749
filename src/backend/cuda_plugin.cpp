// The one exported function of libcrimp_cuda.so.
#include <cstring>

#include "backend/cuda_backend.hpp"
#include "backend/cuda_memory.hpp"
#include "backend/device_plugin.hpp"

namespace crimp::cuda {
namespace {

std::unique_ptr<Backend> make_backend(int device, bool device_bodies) { return std::make_unique<CudaBackend>(device, device_bodies); }

void settle(int device, bool everything) {
  const Current here(device);
  if (everything)
    CRIMP_CUDA(cudaDeviceSynchronize());
  else
    CRIMP_CUDA(cudaStreamSynchronize(nullptr));
}

constexpr DevicePlugin kPlugin{make_backend, device_memory, pinned_memory, settle};

}  // namespace
}  // namespace crimp::cuda

extern "C" __attribute__((visibility("default"))) const crimp::DevicePlugin* crimp_cuda_plugin(const char* version, const char** why) {
  static const char* const kOther = CRIMP_VERSION " (interface 1) is its version, not libcrimp.so's; both must come from one build";
  if (std::strcmp(version, crimp::kDevicePluginVersion) == 0) return &crimp::cuda::kPlugin;
  *why = kOther;
  return nullptr;
}
