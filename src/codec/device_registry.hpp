// What a codec's device file gives to the registry (registry.def). Its parameters it asks of the codec
// (Codec::parameter), by the rows that its host code reads.
#pragma once
#include "codec/device_codec.hpp"

namespace crimp {

// Each returns null for settings that have no kernels.
#define CRIMP_CODEC(codec, name, kernels) std::unique_ptr<DeviceCodec> codec##_device(const Codec&);
#include "codec/registry.def"
#undef CRIMP_CODEC

}  // namespace crimp
