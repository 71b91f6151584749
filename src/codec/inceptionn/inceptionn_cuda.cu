#include "codec/device_registry.hpp"
#include "codec/inceptionn/inceptionn_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> inceptionn_device(const Codec& codec) {
  return device::piece_codec(codec,
                             inceptionn::Device{{}, inceptionn::limits_of(-codec.parameter(inceptionn::kLog2Bound))});
}

}  // namespace crimp
