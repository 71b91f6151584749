#include "codec/device_registry.hpp"
#include "codec/uniform/terngrad_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> terngrad_device(const Codec& codec) {
  if (spec_text(codec.spec(), "scale").starts_with("tensor")) return nullptr;
  return device::piece_codec(codec, uniform::TernGradDevice{{}, static_cast<float>(spec_value(codec.spec(), "clip"))});
}

}  // namespace crimp
