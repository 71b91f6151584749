#include "codec/device_registry.hpp"
#include "codec/randomk/randomk_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> randomk_device(const Codec& codec) {
  randomk::Device device{};
  device.ratio = codec.parameter(randomk::kRatio);
  device.scale = codec.parameter(randomk::kUnbiased);
  return device::piece_codec(codec, device);
}

}  // namespace crimp
