// A CUDA device for `crimp bench ... --device cuda`: the driver found at run time, its primary context, and Crimp's
// plugin.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "backend/device_plugin.hpp"

namespace crimp::tools {

struct CudaDevice {
  int index;
  const DevicePlugin& plugin;
  MemoryResource& memory;
  std::string name;    // the card's
  std::string driver;  // the CUDA version that it has, "13.0"
  nlohmann::ordered_json json() const;
};

bool names_cuda_device(const std::string& text);  // "cuda" or "cuda:N"
// What there is, for `crimp info`: the plugin, the driver and its devices, or what is missing of them. Makes no
// context.
std::string cuda_summary();
// Makes the device's primary context this thread's. Throws Error{device_failed} that says what is missing.
CudaDevice open_cuda_device(const std::string& text);

}  // namespace crimp::tools
