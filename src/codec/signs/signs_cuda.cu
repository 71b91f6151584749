#include "codec/device_registry.hpp"
#include "codec/signs/signs_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> onebit_device(const Codec& codec) {
  return device::piece_codec(codec, signs::Device<signs::Scales::class_means>{});
}
std::unique_ptr<DeviceCodec> signsgd_device(const Codec& codec) {
  return device::piece_codec(codec, signs::Device<signs::Scales::none>{});
}
std::unique_ptr<DeviceCodec> signum_device(const Codec& codec) {
  return signsgd_device(codec);
}  // they differ in the memory alone
std::unique_ptr<DeviceCodec> efsignsgd_device(const Codec& codec) {
  if (codec.parameter(kScaleOf) == ScaleOf::tensor) return nullptr;
  return device::piece_codec(codec, signs::Device<signs::Scales::mean>{});
}

}  // namespace crimp
