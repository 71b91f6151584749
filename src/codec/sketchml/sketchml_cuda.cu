#include "codec/device_registry.hpp"
#include "codec/sketchml/sketchml_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> sketchml_device(const Codec& codec) {
  sketchml::Device device{};
  device.quantiles = static_cast<std::uint32_t>(spec_value(codec.spec(), "quantiles"));
  return device::piece_codec(codec, device);
}

}  // namespace crimp
