#include "codec/device_registry.hpp"
#include "codec/stoch8/stoch8_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> stoch8_device(const Codec& codec) {
  return device::piece_codec(codec, device::ByteDevice<stoch8::Type>{{}, {codec.parameter(stoch8::kLevels)}});
}

}  // namespace crimp
