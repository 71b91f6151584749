#include "codec/device_registry.hpp"
#include "codec/cast/fp16_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceCodec> fp16_device(const Codec& codec) { return device::piece_codec(codec, fp16::Device{}); }

}  // namespace crimp
