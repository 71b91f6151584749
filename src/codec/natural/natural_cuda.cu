#include "codec/device_registry.hpp"
#include "codec/natural/natural_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> natural_device(const Codec& codec) {
  return device::piece_codec(codec, device::ByteDevice<natural::Type>{});
}

}  // namespace crimp
