#include "backend/cuda_memory.hpp"

#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "core/error.hpp"

namespace crimp::cuda {
namespace {

const CudaDriver& driver() {
  const CudaDriver* found = cuda_driver();
  if (!found) throw Error(ErrorCode::device_failed, "libcuda.so.1 is not loaded or lacks functions that Crimp calls");
  return *found;
}

// The application's own context lives as long as it likes, what it calls on it after a reset is void in any case.
void* context_of(int device) {
  if (void* const context = primary_context(driver(), device)) return context;
  throw Error(ErrorCode::device_failed, "the context of CUDA device " + std::to_string(device) + " cannot be used");
}

// A primary one, which stays, and not what the thread may have.
void* any_context() {
  int devices = 0;
  driver().get_count(&devices);
  for (int device = 0; device < devices; ++device)
    if (void* const context = primary_context(driver(), device)) return context;
  throw Error(ErrorCode::device_failed, "no CUDA device has a context");
}

class DeviceMemory final : public MemoryResource {
 public:
  explicit DeviceMemory(int device) : device_(device) {}
  std::byte* allocate(std::size_t bytes) override {
    const ContextGuard here(device_);
    void* p = nullptr;
    CRIMP_CUDA(cudaMalloc(&p, bytes));
    try {
      in_order([&](cudaStream_t stream) { CRIMP_CUDA(cudaMemsetAsync(p, 0, bytes, stream)); });
    } catch (...) {
      free(static_cast<std::byte*>(p), bytes);
      throw;
    }
    return static_cast<std::byte*>(p);
  }
  void free(std::byte* p, std::size_t) noexcept override {
    try {
      const ContextGuard here(device_);
      if (cudaFree(p) != cudaSuccess) cudaGetLastError();  // at exit the runtime may be gone
    } catch (const std::exception&) {
    }
  }
  void read(void* host, const void* from, std::size_t bytes) override {
    move(host, from, bytes, cudaMemcpyDeviceToHost);
  }
  void write(void* to, const void* host, std::size_t bytes) override { move(to, host, bytes, cudaMemcpyHostToDevice); }

 private:
  void move(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    const ContextGuard here(device_);
    in_order([&](cudaStream_t stream) { CRIMP_CUDA(cudaMemcpyAsync(to, from, bytes, kind, stream)); });
  }
  template <class Work>
  void in_order(Work work) {
    const std::lock_guard lock(mutex_);
    if (!stream_) CRIMP_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    work(stream_);
    CRIMP_CUDA(cudaStreamSynchronize(stream_));
  }
  int device_;
  std::mutex mutex_;
  cudaStream_t stream_ = nullptr;
};

class PinnedMemory final : public MemoryResource {
 public:
  std::byte* allocate(std::size_t bytes) override {
    const ContextGuard here;
    void* p = nullptr;
    CRIMP_CUDA(cudaHostAlloc(&p, bytes, cudaHostAllocPortable));
    std::memset(p, 0, bytes);
    return static_cast<std::byte*>(p);
  }
  void free(std::byte* p, std::size_t) noexcept override {
    try {
      const ContextGuard here;
      if (cudaFreeHost(p) != cudaSuccess) cudaGetLastError();
    } catch (const std::exception&) {
    }
  }
  void read(void* host, const void* from, std::size_t bytes) override { std::memcpy(host, from, bytes); }
  void write(void* to, const void* host, std::size_t bytes) override { std::memcpy(to, host, bytes); }
};

}  // namespace

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  const std::string name = std::string(call).substr(0, std::string_view(call).find('('));
  throw Error(error == cudaErrorMemoryAllocation ? ErrorCode::out_of_memory : ErrorCode::device_failed,
              name + " failed: " + cudaGetErrorString(error));
}

ContextGuard::ContextGuard() : here_(driver(), any_context()) {}

ContextGuard::ContextGuard(int device) : here_(driver(), context_of(device)) {
  if (!here_.current())
    throw Error(ErrorCode::device_failed,
                "the context of CUDA device " + std::to_string(device) + " cannot be made current");
}

bool default_stream_usable() {
  cudaStreamCaptureStatus status;
  const cudaError_t error = cudaStreamIsCapturing(nullptr, &status);
  if (error != cudaSuccess) cudaGetLastError();
  return error != cudaErrorStreamCaptureImplicit;
}

MemoryResource& device_memory(int device) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, DeviceMemory>;
  const std::lock_guard lock(mutex);
  return devices.try_emplace(device, device).first->second;
}

MemoryResource& pinned_memory() {
  static auto& memory = *new PinnedMemory;
  return memory;
}

void grow(Memory& memory, std::size_t bytes, MemoryResource& resource) {
  if (bytes <= memory.bytes()) return;
  memory = {};  // both at once may be more than the device has
  memory = Memory(bytes + bytes / 4, resource);
}

}  // namespace crimp::cuda
