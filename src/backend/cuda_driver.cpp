#include "backend/cuda_driver.hpp"

#include <dlfcn.h>
#include <link.h>

#include <atomic>
#include <string_view>

namespace crimp {
namespace {

// Values of CUpointer_attribute and CUmemorytype.
constexpr int kMemoryType = 2, kIsManaged = 8, kDeviceOrdinal = 9;
constexpr unsigned kHost = 1, kDevice = 2;

std::atomic<const CudaDriver*> found{nullptr};
std::atomic<unsigned long long> modules_seen{0};

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
  const bool all = get(driver.get_count, "cuDeviceGetCount") && get(driver.get_current, "cuCtxGetCurrent") &&
                   get(driver.push_current, "cuCtxPushCurrent_v2") && get(driver.pop_current, "cuCtxPopCurrent_v2") &&
                   get(driver.primary_state, "cuDevicePrimaryCtxGetState") &&
                   get(driver.primary_retain, "cuDevicePrimaryCtxRetain") &&
                   get(driver.pointer_attributes, "cuPointerGetAttributes");
  return all ? &driver : nullptr;
}

}  // namespace

const CudaDriver* cuda_driver() noexcept {
  if (const CudaDriver* driver = found.load(std::memory_order_acquire)) return driver;
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

bool cuda_context_exists(const CudaDriver& driver) noexcept {
  void* context = nullptr;
  if (driver.get_current(&context) == 0 && context) return true;
  int devices = 0;
  if (driver.get_count(&devices) != 0) return false;  // the application has not begun
  for (int device = 0; device < devices; ++device) {
    unsigned flags = 0;
    int active = 0;
    if (driver.primary_state(device, &flags, &active) == 0 && active) return true;
  }
  return false;
}

PointerAttributes pointer_attributes(const CudaDriver& driver, const void* pointer) noexcept {
  unsigned type = 0, managed = 0;
  int device = -1;
  const int attributes[] = {kMemoryType, kIsManaged, kDeviceOrdinal};
  void* values[] = {&type, &managed, &device};
  // Of memory that CUDA does not know it says so (values of zero), or fails.
  if (driver.pointer_attributes(3, attributes, values, reinterpret_cast<std::uintptr_t>(pointer)) != 0) return {};
  if (managed) return {PointerAttributes::managed, device};
  if (type == kDevice) return {PointerAttributes::device, device};
  return {type == kHost ? PointerAttributes::pinned : PointerAttributes::plain, -1};
}

}  // namespace crimp
