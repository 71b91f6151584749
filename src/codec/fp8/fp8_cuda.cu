#include "codec/device_registry.hpp"
#include "codec/fp8/fp8_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> fp8_device(const Codec& codec) {
  const auto block = static_cast<std::uint32_t>(spec_value(codec.spec(), "block"));
  if (spec_text(codec.spec(), "format").starts_with("e4m3")) return device::piece_codec(codec, device::ByteDevice<fp8::Type<true>>{{}, {block}});
  return device::piece_codec(codec, device::ByteDevice<fp8::Type<false>>{{}, {block}});
}

}  // namespace crimp
