#include "codec/device_registry.hpp"
#include "codec/thc/thc_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> thc_device(const Codec& codec) {
  return device::piece_codec(
      codec, thc::Device(thc::make_tables(codec.parameter(thc::kBits), codec.parameter(thc::kGranularity),
                                          codec.parameter(thc::kClipped))));
}

}  // namespace crimp
