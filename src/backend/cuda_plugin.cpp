// The one exported function of libcrimp_cuda.so.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>

#include "backend/cuda_backend.hpp"
#include "backend/cuda_memory.hpp"
#include "backend/cuda_tensor_steps.hpp"
#include "backend/device_plugin.hpp"
#include "core/build_id.hpp"

#ifndef CRIMP_CUDA_ARCHITECTURES  // where kernels are compiled for the host (tests/mpi)
#define CRIMP_CUDA_ARCHITECTURES 80, 90
#endif

namespace crimp::cuda {
namespace {

// What the objects in this library are made for (src/CMakeLists.txt): code for each of them, which processors of the
// same major version run from their own minor one on; and for the last one PTX, which the driver makes into code.
constexpr int kArchitectures[] = {CRIMP_CUDA_ARCHITECTURES};
constexpr int kPtx = kArchitectures[std::size(kArchitectures) - 1];

bool has_code(int capability) {
  return std::any_of(std::begin(kArchitectures), std::end(kArchitectures),
                     [&](int a) { return a / 10 == capability / 10 && a <= capability; });
}
std::string dotted(int capability) { return std::to_string(capability / 10) + "." + std::to_string(capability % 10); }

std::string of_cuda(int version) {
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_not(int device) {
  const CudaDriver* const driver = cuda_driver();
  if (!driver) return "the CUDA driver cannot be used";
  int version = 0, major = 0, minor = 0;
  constexpr int kMajor = 75, kMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  if (driver->version(&version) == 0 && version / 1000 < CUDART_VERSION / 1000)
    return "the NVIDIA driver is of " + of_cuda(version) + ", and Crimp's CUDA plugin needs one of " +
           of_cuda(CUDART_VERSION / 1000 * 1000);
  if (driver->device_attribute(&major, kMajor, device) != 0 || driver->device_attribute(&minor, kMinor, device) != 0)
    return "";
  const int capability = 10 * major + minor;
  if (has_code(capability)) return "";
  const std::string has = "CUDA device " + std::to_string(device) + " has compute capability " + dotted(capability);
  if (capability < kPtx) {
    std::string made;
    for (const int a : kArchitectures) made += (made.empty() ? "" : ", ") + dotted(a);
    return has + ", and Crimp's kernels were made for " + made + " (CRIMP_CUDA_ARCHITECTURES)";
  }
  if (version && version < CUDART_VERSION)
    return has + ", for which the driver must make Crimp's kernels from PTX of " + of_cuda(CUDART_VERSION) +
           ", and it is of " + of_cuda(version);
  return "";
}

std::unique_ptr<Backend> make_backend(int device, bool device_bodies) {
  return std::make_unique<CudaBackend>(device, device_bodies);
}

void synchronize(int device, bool everything) {
  const ContextGuard here(device);
  if (everything) CRIMP_CUDA(cudaDeviceSynchronize());
  else if (default_stream_usable()) CRIMP_CUDA(cudaStreamSynchronize(nullptr));
}

struct Event {
  cudaEvent_t event = nullptr;
  Event() { CRIMP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault)); }
  ~Event() { cudaEventDestroy(event); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
};

double timed(int device, const std::function<void(Stream)>& work) {
  const ContextGuard here(device);
  static std::mutex mutex;  // one stream for all measurements
  static auto& streams = *new std::map<int, cudaStream_t>;
  const std::lock_guard lock(mutex);
  cudaStream_t& stream = streams[device];
  if (!stream) CRIMP_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const Event begin, end;
  CRIMP_CUDA(cudaEventRecord(begin.event, stream));
  work(stream);
  CRIMP_CUDA(cudaEventRecord(end.event, stream));
  CRIMP_CUDA(cudaStreamSynchronize(stream));
  float milliseconds = 0;
  CRIMP_CUDA(cudaEventElapsedTime(&milliseconds, begin.event, end.event));
  return 1e-3 * static_cast<double>(milliseconds);
}

void copy(void* to, const void* from, std::size_t bytes, Stream stream) {
  CRIMP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
}

constexpr DevicePlugin kPlugin{.why_not = why_not,
                               .make_backend = make_backend,
                               .memory = device_memory,
                               .pinned = pinned_memory,
                               .synchronize = synchronize,
                               .make_codec = make_device_codec,
                               .make_tensor_steps = make_tensor_steps,
                               .timed = timed,
                               .copy = copy};

}  // namespace
}  // namespace crimp::cuda

extern "C" __attribute__((visibility("default"))) const crimp::DevicePlugin* crimp_cuda_plugin(const char* build,
                                                                                               const char** why) {
  crimp::leave_cuda_to_parent();
  if (std::strcmp(build, crimp::build_id()) == 0) return &crimp::cuda::kPlugin;
  *why = "it is of another build than libcrimp.so; both must be made from the same sources";
  return nullptr;
}
