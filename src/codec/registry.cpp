// The registry's rows as codecs.
#include "codec/registry.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/nearest.hpp"

namespace crimp {
namespace {

const std::vector<CodecEntry>& registry() {
  static const auto& entries = *[] {
    auto* all = new std::vector<CodecEntry>;
#define CRIMP_CODEC(codec, name_, kernels) \
  all->push_back(codec##_entry());         \
  all->back().info.name = name_;
#include "codec/registry.def"
#undef CRIMP_CODEC
    return all;
  }();
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
      codec->feedback_ = values.feedback(codec->traits());
      codec->spec_ = values.canonical(codec->traits());
      codec->parameters_ = values.own();
      return codec;
    }
    names.emplace_back(e.info.name);
  }
  if (name == "none")
    throw Error(
        ErrorCode::codec_unknown,
        "codec '" + std::string(spec) +
            "': none is no codec, it is CRIMP_CODEC's and the rules' word for sums that MPI makes, and takes no "
            "parameters; legal: none alone, or fp32, which sends float32 as it is");
  throw Error(ErrorCode::codec_unknown, "codec '" + std::string(spec) + "' is not known" + did_you_mean(name, names) +
                                            "; legal: " + joined(names) +
                                            " (crimp info --codecs lists their parameters)");
}

}  // namespace crimp
