// What a codec's device file gives to the registry, and what it reads its parameters from.
#pragma once
#include <charconv>
#include <string_view>

#include "codec/device_codec.hpp"

namespace crimp {

// The value of `key` in a canonical codec text (Codec::spec(), which writes out every parameter); empty where the codec has no such parameter.
inline std::string_view spec_text(std::string_view spec, std::string_view key) {
  for (auto at = spec.find(':'); at != spec.npos; at = spec.find(',', at)) {
    ++at;
    const std::string_view item = spec.substr(at, spec.find(',', at) - at);
    if (item.size() > key.size() && item.substr(0, key.size()) == key && item[key.size()] == '=') return item.substr(key.size() + 1);
  }
  return {};
}
inline double spec_value(std::string_view spec, std::string_view key) {
  const std::string_view text = spec_text(spec, key);
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Each returns null for settings that have no kernels.
std::unique_ptr<DeviceCodec> none_device(const Codec&);
std::unique_ptr<DeviceCodec> fp16_device(const Codec&);
std::unique_ptr<DeviceCodec> bf16_device(const Codec&);
std::unique_ptr<DeviceCodec> threelc_device(const Codec&);
std::unique_ptr<DeviceCodec> qsgd_device(const Codec&);
std::unique_ptr<DeviceCodec> terngrad_device(const Codec&);
std::unique_ptr<DeviceCodec> natural_device(const Codec&);
std::unique_ptr<DeviceCodec> eightbit_device(const Codec&);
std::unique_ptr<DeviceCodec> onebit_device(const Codec&);
std::unique_ptr<DeviceCodec> signsgd_device(const Codec&);
std::unique_ptr<DeviceCodec> signum_device(const Codec&);
std::unique_ptr<DeviceCodec> efsignsgd_device(const Codec&);
std::unique_ptr<DeviceCodec> inceptionn_device(const Codec&);
std::unique_ptr<DeviceCodec> maxmin_device(const Codec&);
std::unique_ptr<DeviceCodec> fp8_device(const Codec&);
std::unique_ptr<DeviceCodec> sketchml_device(const Codec&);
std::unique_ptr<DeviceCodec> adaq_device(const Codec&);
std::unique_ptr<DeviceCodec> topk_device(const Codec&);
std::unique_ptr<DeviceCodec> randomk_device(const Codec&);
std::unique_ptr<DeviceCodec> threshold_device(const Codec&);
std::unique_ptr<DeviceCodec> dgc_device(const Codec&);
std::unique_ptr<DeviceCodec> sidco_device(const Codec&);
std::unique_ptr<DeviceCodec> thc_device(const Codec&);

}  // namespace crimp
