#include "codec/cast/fp16_kernels.cuh"
#include "codec/device_registry.hpp"

namespace crimp {

std::unique_ptr<DeviceCodec> fp16_device(const Codec& codec) { return device::piece_codec(codec, fp16::Device{}); }

}  // namespace crimp
