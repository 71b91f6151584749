// The registry: one line per codec, in the order of their wire ids.
#include <hwy/targets.h>

#include <algorithm>

#include "codec/host_codecs.hpp"
#include "core/nearest.hpp"
#include "core/error.hpp"

namespace crimp {
namespace {

const std::vector<CodecEntry>& registry() {
  static const auto& entries = *new std::vector<CodecEntry>{
      none_entry(),
      fp16_entry(),
      bf16_entry(),
      threelc_entry(),
      qsgd_entry(),
      terngrad_entry(),
      natural_entry(),
      eightbit_entry(),
      onebit_entry(),
      signsgd_entry(),
      signum_entry(),
      efsignsgd_entry(),
      inceptionn_entry(),
      maxmin_entry(),
      fp8_entry(),
      sketchml_entry(),
      adaq_entry(),
      topk_entry(),
      randomk_entry(),
      threshold_entry(),
      dgc_entry(),
      sidco_entry(),
      thc_entry(),
      powersgd_entry(),
  };
  return entries;
}

}  // namespace

std::span<const CodecInfo> codecs() {
  static const auto& infos = *[] {
    auto* v = new std::vector<CodecInfo>;
    for (const auto& e : registry()) v->push_back(e.info);
    return v;
  }();
  return infos;
}

std::shared_ptr<const Codec> make_codec(std::string_view spec) {
  const std::string_view name = spec.substr(0, spec.find(':'));
  std::vector<std::string> names;
  for (const auto& e : registry()) {
    if (e.info.name == name) {
      const SpecValues values(spec, e.info);
      const auto codec = e.make(values);
      codec->memory_ = values.memory(codec->traits());
      codec->spec_ = values.canonical(codec->traits());
      return codec;
    }
    names.emplace_back(e.info.name);
  }
  throw Error(ErrorCode::codec_unknown, "codec '" + std::string(spec) + "' is not known" + did_you_mean(name, names) +
                                            "; legal: " + joined(names) + " (crimp info --codecs lists their parameters)");
}

const CodecInfo* find_codec(std::uint8_t wire_id) {
  for (const auto& info : codecs())
    if (info.traits.wire_id == wire_id) return &info;
  return nullptr;
}

std::string simd_target() {
  const auto supported = hwy::SupportedTargets();
  // The best target is the lowest bit.
  return hwy::TargetName(static_cast<std::int64_t>(supported & (~supported + 1)));
}

}  // namespace crimp
