#include "codec/device_registry.hpp"
#include "codec/uniform_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> maxmin_device(const Codec& codec) {
  uniform::MaxMinDevice device{};
  device.bits_ = static_cast<int>(spec_value(codec.spec(), "bits"));
  device.block = static_cast<std::uint32_t>(spec_value(codec.spec(), "block"));
  device.rounding = spec_text(codec.spec(), "rounding").starts_with("nearest") ? uniform::Rounding::nearest : uniform::Rounding::stochastic;
  return device::piece_codec(codec, device);
}

}  // namespace crimp
