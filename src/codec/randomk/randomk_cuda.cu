#include "codec/device_registry.hpp"
#include "codec/randomk/randomk_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> randomk_device(const Codec& codec) {
  randomk::Device device{};
  device.ratio = static_cast<float>(spec_value(codec.spec(), "ratio"));
  device.scale = spec_value(codec.spec(), "scale") != 0;
  return device::piece_codec(codec, device);
}

}  // namespace crimp
