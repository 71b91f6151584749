#include "backend/device_plugin.hpp"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

#include "core/build_id.hpp"
#include "core/log.hpp"

namespace crimp {
namespace {

std::mutex mutex;
std::string& setting() {
  static auto& text = *new std::string("auto");
  return text;
}
std::atomic<bool> off{false}, tried{false}, initialised{false}, context{false};
std::atomic<const DevicePlugin*> loaded{nullptr};

std::string beside_this_library() {
  Dl_info info;
  if (!::dladdr(reinterpret_cast<const void*>(&set_device_plugin), &info) || !info.dli_fname) return "libcrimp_cuda.so";
  const std::string own = info.dli_fname;
  return own.substr(0, own.rfind('/') + 1) + "libcrimp_cuda.so";
}

const DevicePlugin* load(const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    log(LogLevel::warn,
        "the CUDA plugin '" + file + "' is not used: " + why +
            "; values in GPU memory are copied to the host and back (CRIMP_CUDA_PLUGIN names another file; off: device "
            "pointers go to MPI as they are)");
    return nullptr;
  };
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) return refuse(::dlerror());
  const auto entry = reinterpret_cast<DevicePluginEntry>(::dlsym(library, "crimp_cuda_plugin"));
  if (!entry) return refuse("it does not export crimp_cuda_plugin");
  const char* why = "";
  const DevicePlugin* plugin = entry(build_id(), &why);
  return plugin ? plugin : refuse(why);
}

// Null until the application has initialised it.
const CudaDriver* driver_in_use() noexcept {
  const CudaDriver* driver = cuda_driver();
  if (!driver || initialised.load(std::memory_order_relaxed)) return driver;
  if (!cuda_initialised(*driver)) return nullptr;
  initialised.store(true, std::memory_order_relaxed);
  return driver;
}

bool context_exists() noexcept {
  const CudaDriver* driver = driver_in_use();
  if (!driver || context.load(std::memory_order_relaxed)) return driver;
  if (!cuda_context_exists(*driver)) return false;
  context.store(true, std::memory_order_relaxed);
  return true;
}

}  // namespace

void set_device_plugin(const std::string& text) {
  const std::lock_guard lock(mutex);
  setting() = text;
  off.store(text == "off", std::memory_order_relaxed);
}

const DevicePlugin* device_plugin() noexcept {
  if (!context_exists()) return nullptr;
  if (tried.load(std::memory_order_acquire)) return loaded.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex);
  if (tried.load(std::memory_order_relaxed)) return loaded.load(std::memory_order_relaxed);
  try {
    if (setting() != "off")
      loaded.store(load(setting() == "auto" ? beside_this_library() : setting()), std::memory_order_relaxed);
  } catch (const std::exception&) {
  }
  tried.store(true, std::memory_order_release);
  return loaded.load(std::memory_order_relaxed);
}

bool reaches_device_memory() noexcept { return !off.load(std::memory_order_relaxed) && driver_in_use(); }

PointerAttributes pointer_attributes(const void* pointer) noexcept {
  const CudaDriver* driver = driver_in_use();
  if (!driver) return {};
  const PointerAttributes found = pointer_attributes(*driver, pointer);
  // The context that it is in may be one that only another thread has.
  if (found.on_device() && !context.load(std::memory_order_relaxed)) context.store(true, std::memory_order_relaxed);
  return found;
}

}  // namespace crimp
