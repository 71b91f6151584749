#include "codec/device_registry.hpp"
#include "codec/uniform/uniform_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> maxmin_device(const Codec& codec) {
  const auto bits = static_cast<int>(spec_value(codec.spec(), "bits"));
  const bool nearest = spec_text(codec.spec(), "rounding").starts_with("nearest");
  return device::piece_codec(codec, uniform::BlockDevice<uniform::MaxMin>{{}, {bits}, static_cast<std::uint32_t>(spec_value(codec.spec(), "block")),
                                                                          static_cast<std::uint32_t>(bits), 0,
                                                                          nearest ? uniform::Rounding::nearest : uniform::Rounding::stochastic});
}

std::unique_ptr<DeviceCodec> qsgd_device(const Codec& codec) {
  const auto s = static_cast<int>(spec_value(codec.spec(), "s"));
  const auto bucket = static_cast<std::uint32_t>(spec_value(codec.spec(), "bucket"));
  const std::uint32_t bits = uniform::code_bits(s);
  if (bits > 8) return device::piece_codec(codec, uniform::BlockDevice<uniform::Qsgd<true>>{{}, {s}, bucket, bits, s, uniform::Rounding::symmetric});
  return device::piece_codec(codec, uniform::BlockDevice<uniform::Qsgd<false>>{{}, {s}, bucket, bits, s, uniform::Rounding::symmetric});
}

}  // namespace crimp
