#include "codec/device_registry.hpp"
#include "codec/sketchml/sketchml_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> sketchml_device(const Codec& codec) {
  sketchml::Device device{};
  device.quantiles = codec.parameter(sketchml::kQuantiles);
  return device::piece_codec(codec, device);
}

}  // namespace crimp
