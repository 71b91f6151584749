#include "codec/device_registry.hpp"
#include "codec/thc/thc_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> thc_device(const Codec& codec) {
  const auto number = [&](std::string_view key) { return static_cast<std::uint32_t>(spec_value(codec.spec(), key)); };
  return device::piece_codec(codec, thc::Device(thc::make_tables(number("bits"), number("g"), number("clip"))));
}

}  // namespace crimp
