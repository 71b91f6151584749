#include "backend/cuda_driver.hpp"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <string_view>

namespace crimp {
namespace {

// Values of CUpointer_attribute and CUmemorytype.
constexpr int kContext = 1, kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9;
constexpr unsigned kHost = 1, kDevice = 2;
constexpr int kCaptureOfThread = 1;  // CUstreamCaptureMode: thread local
constexpr int kMostDevices = 64;

std::atomic<const CudaDriver*> found{nullptr};
std::atomic<unsigned long long> modules_seen{0};
std::atomic<bool> watched{false}, inherited{false};
std::array<std::atomic<void*>, kMostDevices> primaries{};

// What the driver knows of the parent's contexts is void in a child: it may call nothing there.
void leave_to_parent() {
  inherited.store(true, std::memory_order_relaxed);
  found.store(nullptr, std::memory_order_relaxed);
}

struct Search {
  unsigned long long modules = 0;
  bool count_only = true, mapped = false;
};

int look(dl_phdr_info* module, std::size_t, void* to) {
  auto& search = *static_cast<Search*>(to);
  search.modules = module->dlpi_adds;
  if (search.count_only) return 1;  // in every call that passes
  const std::string_view name = module->dlpi_name ? module->dlpi_name : "";
  search.mapped = search.mapped || name.ends_with("/libcuda.so.1") || name.find("/libcuda.so.") != name.npos;
  return 0;
}

const CudaDriver* load() {
  void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (!library) return nullptr;
  static CudaDriver driver;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  const bool all = get(driver.version, "cuDriverGetVersion") && get(driver.get_count, "cuDeviceGetCount") &&
                   get(driver.device_attribute, "cuDeviceGetAttribute") && get(driver.get_current, "cuCtxGetCurrent") &&
                   get(driver.push_current, "cuCtxPushCurrent_v2") && get(driver.pop_current, "cuCtxPopCurrent_v2") &&
                   get(driver.synchronize, "cuCtxSynchronize") &&
                   get(driver.primary_state, "cuDevicePrimaryCtxGetState") &&
                   get(driver.primary_retain, "cuDevicePrimaryCtxRetain") &&
                   get(driver.pointer_attributes, "cuPointerGetAttributes") &&
                   get(driver.stream_create, "cuStreamCreate") && get(driver.stream_destroy, "cuStreamDestroy_v2") &&
                   get(driver.stream_synchronize, "cuStreamSynchronize") && get(driver.copy, "cuMemcpyAsync");
  get(driver.stream_is_capturing, "cuStreamIsCapturing");
  get(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  return all ? &driver : nullptr;
}

}  // namespace

const CudaDriver* cuda_driver() noexcept {
  if (const CudaDriver* driver = found.load(std::memory_order_acquire)) return driver;
  if (inherited.load(std::memory_order_relaxed)) return nullptr;
  Search search;
  ::dl_iterate_phdr(look, &search);
  if (search.modules == modules_seen.load(std::memory_order_relaxed)) return nullptr;
  search.count_only = false;
  ::dl_iterate_phdr(look, &search);
  const CudaDriver* driver = search.mapped ? load() : nullptr;
  if (driver) found.store(driver, std::memory_order_release);
  modules_seen.store(search.modules, std::memory_order_relaxed);
  return driver;
}

bool cuda_initialised(const CudaDriver& driver) noexcept {
  void* context = nullptr;
  if (driver.get_current(&context) != 0) return false;
  leave_cuda_to_parent();
  return true;
}

bool cuda_context_exists(const CudaDriver& driver) noexcept {
  void* context = nullptr;
  if (driver.get_current(&context) == 0 && context) return true;
  int devices = 0;
  if (driver.get_count(&devices) != 0) return false;
  for (int device = 0; device < devices; ++device) {
    unsigned flags = 0;
    int active = 0;
    if (driver.primary_state(device, &flags, &active) == 0 && active) return true;
  }
  return false;
}

void leave_cuda_to_parent() noexcept {
  if (!watched.exchange(true, std::memory_order_relaxed)) ::pthread_atfork(nullptr, nullptr, leave_to_parent);
}

void* primary_context(const CudaDriver& driver, int device) noexcept {
  if (device < 0 || device >= kMostDevices) return nullptr;
  auto& known = primaries[static_cast<std::size_t>(device)];
  if (void* const context = known.load(std::memory_order_acquire)) return context;
  unsigned flags = 0;
  int active = 0;
  void* context = nullptr;
  if (driver.primary_state(device, &flags, &active) != 0 || !active || driver.primary_retain(&context, device) != 0)
    return nullptr;
  known.store(context, std::memory_order_release);  // of two threads both have the same, retained twice
  return context;
}

CudaContext::CudaContext(const CudaDriver& driver, void* context) noexcept
    : driver_(driver), capture_mode_(kCaptureOfThread) {
  if (driver_.exchange_capture_mode) driver_.exchange_capture_mode(&capture_mode_);
  void* now = nullptr;
  if (!context || (driver_.get_current(&now) == 0 && now == context)) return;
  current_ = pushed_ = driver_.push_current(context) == 0;
}

CudaContext::~CudaContext() {
  void* popped;
  if (pushed_) driver_.pop_current(&popped);
  if (driver_.exchange_capture_mode) driver_.exchange_capture_mode(&capture_mode_);
}

PointerAttributes pointer_attributes(const CudaDriver& driver, const void* pointer) noexcept {
  unsigned type = 0, managed = 0;
  int device = -1;
  void* context = nullptr;  // none: memory of a pool, or mapped by the application
  const int attributes[] = {kMemoryType, kIsManaged, kDeviceOrdinal, kContext};
  void* values[] = {&type, &managed, &device, &context};
  // Of memory that CUDA does not know it says so (values of zero), or fails.
  if (driver.pointer_attributes(4, attributes, values, reinterpret_cast<std::uintptr_t>(pointer)) != 0) return {};
  if (managed && device < 0) return {};  // of no device, as a pool's on the host: the host reads and writes it
  if (!managed && type != kDevice)
    return {type == kHost ? PointerAttributes::pinned : PointerAttributes::plain, -1, nullptr};
  const bool foreign = context && context != primary_context(driver, device);
  return {managed ? PointerAttributes::managed : PointerAttributes::device, device, foreign ? context : nullptr};
}

}  // namespace crimp
