#include "codec/device_registry.hpp"
#include "codec/uniform/uniform_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> maxmin_device(const Codec& codec) {
  const int bits = codec.parameter(uniform::kBits);
  return device::piece_codec(codec, uniform::BlockDevice<uniform::MaxMin>{{},
                                                                          {bits},
                                                                          codec.parameter(uniform::kBlock),
                                                                          static_cast<std::uint32_t>(bits),
                                                                          0,
                                                                          codec.parameter(uniform::kRounding)});
}

std::unique_ptr<DeviceCodec> qsgd_device(const Codec& codec) {
  const int s = codec.parameter(uniform::kLevels);
  const std::uint32_t bucket = codec.parameter(uniform::kBucket), bits = uniform::code_bits(s);
  if (bits > 8)
    return device::piece_codec(
        codec, uniform::BlockDevice<uniform::Qsgd<true>>{{}, {s}, bucket, bits, s, uniform::Rounding::symmetric});
  return device::piece_codec(
      codec, uniform::BlockDevice<uniform::Qsgd<false>>{{}, {s}, bucket, bits, s, uniform::Rounding::symmetric});
}

}  // namespace crimp
