#include "collective/codec_rules.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace crimp {

void CodecRules::read(const Settings& settings, const std::function<void(const std::string&)>& refuse) {
  try {
    if (settings.codec != "auto" && settings.codec != "none") choose(settings.codec);
  } catch (const Error& e) {
    refuse(std::string("CRIMP_CODEC: ") + e.what());
  }
  try {
    if (settings.unknown_layout != "none") {
      unknown_ = pool_.get(settings.unknown_layout);
      if (unknown_->feedback().kept())
        refuse("CRIMP_UNKNOWN_LAYOUT is '" + settings.unknown_layout +
               "', which needs a residual; legal is a codec without: none, fp16, bf16");
    }
  } catch (const Error& e) {
    refuse(std::string("CRIMP_UNKNOWN_LAYOUT: ") + e.what());
  }
  try {
    rules_ = Rules(settings.rules);
    for (const auto& rule : rules_.all())
      rule_codecs_.push_back(rule.codec == "none" ? nullptr : pool_.get(rule.codec));
  } catch (const Error& e) {
    refuse(e.what());
  }
  if (!settings.error_feedback) return;
  const auto moves = [](const std::shared_ptr<const Codec>& codec) {
    return codec && codec->feedback().kind == FeedbackKind::momentum;
  };
  const auto rule = std::find_if(rule_codecs_.begin(), rule_codecs_.end(), moves);
  momentum_ = moves(codec_) ? codec_.get() : rule != rule_codecs_.end() ? rule->get() : nullptr;
}

void CodecRules::choose(std::string_view spec) {
  codec_ = pool_.get(spec);
  version_.fetch_add(1, std::memory_order_release);
}

const Codec* CodecRules::of_tensor(const std::string& name, std::uint64_t count) const {
  const int rule = rules_.match(name, count);
  return rule < 0 ? codec_.get() : rule_codecs_[static_cast<std::size_t>(rule)].get();
}

}  // namespace crimp
