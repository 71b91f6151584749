#include "backend/device_access.hpp"

#include <array>
#include <atomic>

#include "core/error.hpp"
#include "core/log.hpp"

namespace crimp {
namespace {

const CudaDriver& driver_or_throw() {
  if (const CudaDriver* driver = cuda_driver()) return *driver;
  throw Error(ErrorCode::device_failed, "the CUDA driver cannot be used in this process");
}

void check(int code, const char* call) {
  if (code != 0)
    throw Error(ErrorCode::device_failed, std::string(call) + " failed with error " + std::to_string(code));
}

constexpr char kNoContext[] = "the CUDA context that a buffer belongs to cannot be used";

// A stream of its own, so that nothing of the application's is waited for.
void copy_by_driver(void* context, std::uintptr_t to, std::uintptr_t from, std::size_t bytes) {
  if (bytes == 0) return;
  constexpr unsigned kNonBlocking = 1;
  const CudaDriver& driver = driver_or_throw();
  const CudaContext here(driver, context);
  if (!context || !here.current()) throw Error(ErrorCode::device_failed, kNoContext);
  void* stream = nullptr;
  check(driver.stream_create(&stream, kNonBlocking), "cuStreamCreate");
  const int copied = driver.copy(to, from, bytes, stream), waited = driver.stream_synchronize(stream);
  driver.stream_destroy(stream);
  check(copied, "cuMemcpyAsync");
  check(waited, "cuStreamSynchronize");
}

}  // namespace

void warn_of_device(int what, const std::string& text) noexcept {
  static std::array<std::atomic<bool>, kWarnings> said{};
  if (!said[static_cast<std::size_t>(what)].exchange(true, std::memory_order_relaxed))
    logged("what a GPU cannot do", [&] { log(LogLevel::warn, text); });
}

DeviceAccess::DeviceAccess(const PointerAttributes& of) : plugin_(device_plugin()), device_(of.device_index) {
  if (!reaches_device_memory())
    throw Error(ErrorCode::device_failed, "the buffers are in device memory, which needs the CUDA plugin");
  const std::string why = plugin_ ? plugin_->why_not(device_) : "the CUDA plugin is not used";
  if (of.foreign) {
    by_driver_ = true;
    context_ = of.foreign;
    why_no_kernels_ = "it is in a CUDA context other than the device's primary one";
    warn_of_device(kWarnForeign,
                   "values in GPU memory that belong to a CUDA context other than the device's primary one are "
                   "encoded and decoded on the host");
  } else if (!why.empty()) {
    by_driver_ = true;
    if (const CudaDriver* driver = cuda_driver()) context_ = primary_context(*driver, device_);
    why_no_kernels_ = why;
    if (plugin_)  // else it was said when it was refused
      warn_of_device(kWarnNoKernels, why + ": values in its memory are encoded and decoded on the host");
  }
}

void DeviceAccess::synchronize(bool everything) const {
  if (!by_driver_) return plugin_->synchronize(device_, everything);
  const CudaDriver& driver = driver_or_throw();
  const CudaContext here(driver, context_);
  if (!context_ || !here.current()) throw Error(ErrorCode::device_failed, kNoContext);
  int status = 0;
  if (everything) check(driver.synchronize(), "cuCtxSynchronize");
  else if (!driver.stream_is_capturing || driver.stream_is_capturing(nullptr, &status) == 0)
    check(driver.stream_synchronize(nullptr), "cuStreamSynchronize");
}

void DeviceAccess::read(void* host, const void* from, std::size_t bytes) const {
  if (!by_driver_) return plugin_->memory(device_).read(host, from, bytes);
  copy_by_driver(context_, reinterpret_cast<std::uintptr_t>(host), reinterpret_cast<std::uintptr_t>(from), bytes);
}

void DeviceAccess::write(void* to, const void* host, std::size_t bytes) const {
  if (!by_driver_) return plugin_->memory(device_).write(to, host, bytes);
  copy_by_driver(context_, reinterpret_cast<std::uintptr_t>(to), reinterpret_cast<std::uintptr_t>(host), bytes);
}

MemoryResource& DeviceAccess::staging() const { return by_driver_ ? host_memory() : plugin_->pinned(); }

}  // namespace crimp
