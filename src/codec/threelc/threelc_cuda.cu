#include "codec/device_registry.hpp"
#include "codec/threelc/threelc_kernels.cuh"

namespace crimp {
namespace {

template <threelc::Stage stage>
std::unique_ptr<DeviceCodec> make(const Codec& codec) {
  threelc::Device<stage> device{};
  device.s = codec.parameter(threelc::kSparsity);
  return device::piece_codec(codec, device);
}

}  // namespace

std::unique_ptr<DeviceCodec> threelc_device(const Codec& codec) {
  if (codec.parameter(kScaleOf) == ScaleOf::tensor) return nullptr;
  if (!codec.parameter(threelc::kZeroRun)) return make<threelc::Stage::base>(codec);
  return codec.parameter(threelc::kEntropy) ? make<threelc::Stage::entropy>(codec)
                                            : make<threelc::Stage::zero_run>(codec);
}

}  // namespace crimp
