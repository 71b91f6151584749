#include "codec/device_registry.hpp"
#include "codec/eightbit/eightbit_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> eightbit_device(const Codec& codec) {
  if (codec.parameter(kScaleOf) == ScaleOf::tensor) return nullptr;
  return device::piece_codec(codec, device::ByteDevice<eightbit::Type>{});
}

}  // namespace crimp
