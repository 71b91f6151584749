// Values in device memory, reached without kernels: copies to and from the host, and what has to be waited for before.
// By the plugin, or by the driver alone where the plugin cannot: memory of a context other than the primary one, a
// driver or a device that the plugin was not made for, a plugin that could not be loaded or is of another build.
#pragma once
#include "backend/device_plugin.hpp"

namespace crimp {

// For one call: pointers and contexts may be others in the next. What fails throws Error{device_failed}.
class DeviceAccess {
 public:
  // Of memory on a device. Throws Error{device_failed} where reaches_device_memory() does not hold.
  explicit DeviceAccess(const PointerAttributes&);
  // Why no kernel may work on it; empty: they may. Said once a process in a warning.
  const std::string& why_no_kernels() const { return why_no_kernels_; }
  // As DevicePlugin::synchronize.
  void synchronize(bool everything) const;
  // Complete on return, whatever the host memory is.
  void read(void* host, const void* from, std::size_t bytes) const;
  void write(void* to, const void* host, std::size_t bytes) const;
  // Memory of the host that such copies are fast from.
  MemoryResource& staging() const;

 private:
  const DevicePlugin* plugin_;
  int device_;
  bool by_driver_ = false;
  void* context_ = nullptr;  // then; null: it cannot be used
  std::string why_no_kernels_;
};

// Says it at level warn, once for each `what` in a process.
void warn_of_device(int what, const std::string& text) noexcept;
inline constexpr int kWarnNoKernels = 0, kWarnForeign = 1, kWarnFull = 2, kWarnProducts = 3, kWarnings = 4;

}  // namespace crimp
