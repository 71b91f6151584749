#include "codec/device_registry.hpp"
#include "codec/threelc/threelc_kernels.cuh"

namespace crimp {
namespace {

template <threelc::Stage stage>
std::unique_ptr<DeviceCodec> make(const Codec& codec) {
  threelc::Device<stage> device{};
  device.s = static_cast<float>(spec_value(codec.spec(), "s"));
  return device::piece_codec(codec, device);
}

}  // namespace

std::unique_ptr<DeviceCodec> threelc_device(const Codec& codec) {
  if (spec_text(codec.spec(), "scale").starts_with("tensor")) return nullptr;
  if (spec_value(codec.spec(), "zero_run") == 0) return make<threelc::Stage::base>(codec);
  return spec_value(codec.spec(), "entropy") == 0 ? make<threelc::Stage::zero_run>(codec) : make<threelc::Stage::entropy>(codec);
}

}  // namespace crimp
