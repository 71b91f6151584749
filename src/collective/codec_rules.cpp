#include "collective/codec_rules.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "schedule/delay_control.hpp"

namespace crimp {
namespace {

// What one of them leaves behind another one sends, so all must keep it alike.
bool interchangeable(const Codec& codec) {
  const FeedbackKind kind = codec.feedback().kind;
  return (kind == FeedbackKind::none || kind == FeedbackKind::residual) && !codec.traits().votes &&
         !codec.traits().whole_tensors;
}
constexpr const char* kInterchangeable =
    "codecs with memory=residual or memory=none whose results are sums, and not powersgd";

}  // namespace

void CodecRules::read(const Settings& settings, const std::function<void(const std::string&)>& refuse) {
  exact_ = pool_.get("fp32");
  halves_ = pool_.get("fp16");
  halves_residual_ = settings.error_feedback ? pool_.get("fp16:memory=residual") : halves_;
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
               "', which needs a residual; legal is any codec without, as none, fp16, bf16, 8bit");
      else if (unknown_->traits().votes)
        refuse("CRIMP_UNKNOWN_LAYOUT is '" + settings.unknown_layout +
               "', whose results are votes in place of sums; legal is any other codec without residual, as none, fp16, "
               "bf16, 8bit");
    }
  } catch (const Error& e) {
    refuse(std::string("CRIMP_UNKNOWN_LAYOUT: ") + e.what());
  }
  try {
    read_rules(settings.rules);
  } catch (const Error& e) {
    rules_ = Rules();
    rule_codecs_.clear();
    used_.clear();
    const std::string what = e.what();
    refuse((what.find("CRIMP_RULES") == what.npos ? "CRIMP_RULES: " : "") + what);
  }
  try {
    if (settings.control != "off") read_ladder(settings.ladder);
    if (!ladder_.empty() && settings.codec == "auto") choose(ladder_.front()->spec());
    if (!ladder_.empty() && codec_ &&
        (codec_->feedback().kind != ladder_.front()->feedback().kind || codec_->traits().votes))
      throw Error(ErrorCode::codec_unknown,
                  "CRIMP_CODEC=" + settings.codec + " and the levels keep other things of tensors, as '" +
                      ladder_.front()->spec() + "'; leave CRIMP_CODEC out, or give it and all levels the same memory");
  } catch (const Error& e) {
    refuse(std::string("CRIMP_LADDER: ") + e.what());
  }
  if (DelayTarget target; !DelayTarget::parse(settings.delay_target, target))
    refuse("CRIMP_DELAY_TARGET is '" + settings.delay_target +
           "', legal is N% with N from 0.001 to 90, or a time from 0.001us to 1000s, as 500us, 5ms or 0.1s");
  if (!settings.error_feedback) return;
  const auto moves = [](const std::shared_ptr<const Codec>& codec) {
    return codec && codec->feedback().kind == FeedbackKind::momentum;
  };
  const auto rule =
      std::find_if(rule_codecs_.begin(), rule_codecs_.end(), [&](const auto& codecs) { return moves(codecs.front()); });
  momentum_ = moves(codec_) ? codec_.get() : rule != rule_codecs_.end() ? rule->front().get() : nullptr;
}

void CodecRules::read_rules(const std::string& text) {
  rules_ = Rules(text);
  used_.assign(rules_.all().size(), false);
  for (const auto& rule : rules_.all()) {
    auto& codecs = rule_codecs_.emplace_back();
    for (const std::string& spec : rule.codecs) {
      codecs.push_back(spec == "none" ? nullptr : pool_.get(spec));
      if (rule.codecs.size() == 1) continue;
      if (!interchangeable(*codecs.back()))
        throw Error(ErrorCode::codec_unknown,
                    "CRIMP_RULES: '" + spec + "' cannot be one of several codecs; legal are " + kInterchangeable);
      if (codecs.back()->feedback().kind != codecs.front()->feedback().kind)
        throw Error(ErrorCode::codec_unknown, "CRIMP_RULES: '" + codecs.front()->spec() + "' and '" +
                                                  codecs.back()->spec() +
                                                  "' differ in memory; give all codecs of a rule memory=residual, or "
                                                  "all memory=none");
    }
  }
}

const Codec* CodecRules::halves_of(const Codec& codec) const {
  const std::string_view name = codec.traits().name;
  if (name == "fp16" || name == "bf16" || name == "fp32" || codec.traits().votes || codec.traits().whole_tensors)
    return nullptr;
  switch (codec.feedback().kind) {
    case FeedbackKind::none: return halves_.get();
    case FeedbackKind::residual: return halves_residual_.get();
    default: return nullptr;
  }
}

void CodecRules::read_ladder(const std::string& text) {
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(';', at), text.size());
    const std::size_t begin = std::min(text.find_first_not_of(' ', at), end);
    std::string spec = text.substr(begin, end - begin);
    spec.erase(spec.find_last_not_of(' ') + 1);
    at = end + 1;
    if (spec.empty()) continue;
    auto codec = pool_.get(spec);
    const FeedbackKind kind = codec->feedback().kind;
    if (!interchangeable(*codec))
      throw Error(ErrorCode::codec_unknown, "'" + spec + "' cannot be a level; legal are " + kInterchangeable);
    if (!ladder_.empty() && kind != ladder_.front()->feedback().kind)
      throw Error(ErrorCode::codec_unknown,
                  "'" + ladder_.front()->spec() + "' and '" + spec +
                      "' differ in memory; give all levels memory=residual, or all memory=none");
    ladder_.push_back(std::move(codec));
  }
  if (ladder_.size() < 2)
    throw Error(ErrorCode::codec_unknown, "'" + text + "' has no two levels; legal is codec; codec; ...");
}

int CodecRules::ladder_start() const {
  const auto at = std::find(ladder_.begin(), ladder_.end(), codec_);
  return at == ladder_.end() ? 0 : static_cast<int>(at - ladder_.begin());
}

void CodecRules::choose(std::string_view spec) {
  codec_ = pool_.get(spec);
  version_.fetch_add(1, std::memory_order_release);
}

bool CodecRules::names_gradient(const std::string& name, std::uint64_t count) const {
  const int rule = rules_.match(name, count);
  if (rule < 0) return false;
  const auto at = static_cast<std::size_t>(rule);
  return rules_.all()[at].pattern.find_first_not_of('*') != std::string::npos && rule_codecs_[at].front();
}

bool CodecRules::plain(const std::string& name, std::uint64_t count) const {
  const int rule = rules_.match(name, count);
  return rule >= 0 && rules_.all()[static_cast<std::size_t>(rule)].plain;
}

const Codec* CodecRules::of_tensor(const std::string& name, std::uint64_t count, std::size_t alternative) const {
  const int rule = rules_.match(name, count);
  {
    const std::lock_guard lock(use_mutex_);
    if (first_.empty()) first_ = name;
    if (rule >= 0) used_[static_cast<std::size_t>(rule)] = true;
  }
  if (rule < 0) return codec_.get();
  const auto& codecs = rule_codecs_[static_cast<std::size_t>(rule)];
  return codecs[std::min(alternative, codecs.size() - 1)].get();
}

CodecRules::Use CodecRules::use() const {
  const std::lock_guard lock(use_mutex_);
  Use use{{}, first_};
  for (std::size_t r = 0; r < used_.size(); ++r)
    if (const std::string& pattern = rules_.all()[r].pattern; !used_[r] && !pattern.empty())
      use.idle.push_back(pattern);
  return use;
}

bool CodecRules::any_codec(const std::function<bool(const Codec&)>& is) const {
  const auto one_is = [&](const auto& codecs) {
    return std::any_of(codecs.begin(), codecs.end(), [&](const auto& codec) { return codec && is(*codec); });
  };
  return (codec_ && is(*codec_)) || (unknown_ && is(*unknown_)) || one_is(ladder_) ||
         std::any_of(rule_codecs_.begin(), rule_codecs_.end(), one_is);
}

std::size_t CodecRules::alternatives() const {
  std::size_t most = 1;
  for (const auto& codecs : rule_codecs_) most = std::max(most, codecs.size());
  return most;
}

}  // namespace crimp
