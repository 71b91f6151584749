#include "codec/device_registry.hpp"
#include "codec/sparse/adaq_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> adaq_device(const Codec& codec) {
  adaq::Device device;
  device.ratio = codec.parameter(adaq::kRatio);
  return device::piece_codec(codec, device);
}

}  // namespace crimp
