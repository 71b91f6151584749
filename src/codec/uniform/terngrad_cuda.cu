#include "codec/device_registry.hpp"
#include "codec/uniform/terngrad_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> terngrad_device(const Codec& codec) {
  if (codec.parameter(kScaleOf) == ScaleOf::tensor) return nullptr;
  return device::piece_codec(codec, uniform::TernGradDevice{{}, codec.parameter(uniform::kDeviations)});
}

}  // namespace crimp
