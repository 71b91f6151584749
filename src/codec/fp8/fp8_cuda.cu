#include "codec/device_registry.hpp"
#include "codec/fp8/fp8_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> fp8_device(const Codec& codec) {
  const auto block = codec.parameter(fp8::kBlock);
  if (codec.parameter(fp8::kKind) == fp8::Kind::e4m3)
    return device::piece_codec(codec, device::ByteDevice<fp8::Type<true>>{{}, {block}});
  return device::piece_codec(codec, device::ByteDevice<fp8::Type<false>>{{}, {block}});
}

}  // namespace crimp
