#include "codec/cast/cast_kernels.cuh"
#include "codec/device_registry.hpp"

namespace crimp {

std::unique_ptr<DeviceCodec> fp32_device(const Codec& codec) {
  return device::piece_codec(codec, cast::Device<cast::F32>{});
}
std::unique_ptr<DeviceCodec> bf16_device(const Codec& codec) {
  return device::piece_codec(codec, cast::Device<cast::Bf16>{});
}

}  // namespace crimp
