#include "codec/spec.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "core/error.hpp"

namespace crimp {
namespace {

constexpr std::array<CodecParameter, 6> kCommon{kMemory, kDecay, kGamma, kMomentum, kNesterov, kForce};

// Of a bound in a sentence: large powers of two as such.
std::string bound_text(double x) {
  int exponent = 0;
  if (std::fabs(x) >= 0x1p30 && std::frexp(x, &exponent) == 0.5) return "2^" + std::to_string(exponent - 1);
  return std::fabs(x) < 0x1p53 && x == std::floor(x) ? std::to_string(static_cast<std::int64_t>(x)) : spec_number(x);
}

// "a, b or c"
std::string alternatives(std::span<const std::string_view> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + std::string(words[i]);
  return text;
}

bool in_range(const CodecParameter& row, double x, double least, double most) {
  return (row.above_least ? x > least : x >= least) && (row.below_most ? x < most : x <= most);
}

// Momentum keeps the same residual.
bool diverges(const FeedbackPolicy& policy, const Codec::Traits& traits) {
  return traits.diverges_with_residual &&
         (policy.kind == FeedbackKind::residual || policy.kind == FeedbackKind::momentum);
}

}  // namespace

std::span<const CodecParameter> common_parameters() { return kCommon; }

std::string spec_number(double x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(x)).ptr;
  return std::string(text, end);
}

std::string legal_text(const CodecParameter& row) {
  if (!row.words.empty()) return alternatives(row.words);
  const std::string least = bound_text(row.least), most = bound_text(row.most);
  std::string text;
  if (row.step == 0)
    text = least + (row.above_least ? " < " : " <= ") + std::string(row.key) + (row.below_most ? " < " : " <= ") + most;
  else
    text = (row.step == 1 ? "a whole number" : "a multiple of " + bound_text(row.step)) + ", " + least + " to " + most;
  return row.also.empty() ? text : text + ", " + std::string(row.also);
}

std::string value_text(const CodecParameter& row, double value) {
  if (!row.words.empty()) return std::string(row.words[static_cast<std::size_t>(value)]);
  const bool float_holds_it = static_cast<double>(static_cast<float>(value)) == value;
  return row.step == 0 || float_holds_it ? spec_number(value) : std::to_string(static_cast<std::int64_t>(value));
}

SpecValues::SpecValues(std::string_view text, const CodecInfo& info) : text_(text), info_(info) {
  for (auto from = text.find(':'); from != text.npos;) {  // the ':' or ',' before an item
    const auto comma = text.find(',', from + 1);
    const std::string_view item = text.substr(from + 1, comma == text.npos ? text.npos : comma - from - 1);
    from = comma;
    const auto equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    bool known = false;
    std::string legal;
    const auto consider = [&](std::span<const CodecParameter> parameters) {
      for (const auto& p : parameters) {
        known = known || p.key == key;
        legal += (legal.empty() ? "" : ", ") + std::string(p.key) + " (" + legal_text(p) + ")";
      }
    };
    consider(info.parameters);
    consider(kCommon);
    if (!known || equals == item.npos)
      throw Error(ErrorCode::codec_unknown,
                  "codec '" + text_ + "': '" + std::string(item) + "' is not a parameter of " + std::string(info.name) +
                      "; legal: " + legal + ", as in '" + std::string(info.name) + ":key=value'");
    if (!given_.emplace(std::string(key), std::string(item.substr(equals + 1))).second)
      throw Error(ErrorCode::codec_unknown,
                  "codec '" + text_ + "': " + std::string(key) + " is given twice, legal is once");
  }
  // A codec's own row comes before a common one of the same key.
  for (const auto& row : info.parameters) values_.try_emplace(row.key, read(row));
  for (const auto& row : kCommon) values_.try_emplace(row.key, read(row));
}

double SpecValues::read(const CodecParameter& row) const {
  const auto it = given_.find(row.key);
  if (it == given_.end())
    return row.step == 0 && row.words.empty() ? static_cast<double>(static_cast<float>(row.default_value))
                                              : row.default_value;
  const std::string& s = it->second;
  if (!row.words.empty()) {
    const auto word = std::find(row.words.begin(), row.words.end(), s);
    if (word == row.words.end()) refuse(row);
    return static_cast<double>(word - row.words.begin());
  }
  double value = 0;
  const auto [end, status] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (status != std::errc() || end != s.data() + s.size()) refuse(row, "a number");
  value += 0.0;  // -0 is 0
  if (row.step != 0) {
    if (!in_range(row, value, row.least, row.most) || value != std::floor(value / row.step) * row.step) refuse(row);
    return value;
  }
  const float rounded = static_cast<float>(value);
  if (!in_range(row, rounded, static_cast<float>(row.least), static_cast<float>(row.most)))
    refuse(row, legal_text(row) + (in_range(row, value, row.least, row.most) ? ", as a float32" : ""));
  return static_cast<double>(rounded);
}

double SpecValues::value(const CodecParameter& row) const {
  const auto it = values_.find(row.key);
  if (it == values_.end())
    throw Error(ErrorCode::codec_unknown,
                "codec " + std::string(info_.name) + " has no parameter " + std::string(row.key));
  return it->second;
}

FeedbackPolicy SpecValues::feedback(const Codec::Traits& traits) const {
  const auto given = [&](const CodecParameter& row) { return given_.contains(row.key); };
  FeedbackPolicy policy{.kind = given(kMemory) ? (*this)[kMemory] : traits.memory,
                        .decay = (*this)[kDecay],
                        .gamma = (*this)[kGamma],
                        .momentum = (*this)[kMomentum],
                        .nesterov = (*this)[kNesterov]};
  if (traits.memory == FeedbackKind::momentum) {  // others mean something else by it
    policy.clip = (*this)[kClip];
    if (policy.clip > 0.0f && policy.kind != FeedbackKind::momentum) refuse(kClip, "for memory=momentum only");
  }
  for (const CodecParameter& row : {kDecay, kGamma})
    if (given(row) && policy.kind != FeedbackKind::residual) refuse(row, "for memory=residual only");
  if (given(kNesterov) && policy.kind != FeedbackKind::momentum) refuse(kNesterov, "for memory=momentum only");
  if (given(kMomentum) && policy.kind != FeedbackKind::momentum && policy.kind != FeedbackKind::average)
    refuse(kMomentum, "for memory=momentum and memory=average only");
  if (diverges(policy, traits) && !(*this)[kForce])
    refuse(
        kMemory,
        "none or average: error feedback of this codec is known to diverge (GRACE), and momentum keeps a residual, too; add force=1 to have it all the same");
  return policy;
}

std::vector<std::pair<std::string_view, double>> SpecValues::own() const {
  std::vector<std::pair<std::string_view, double>> all;
  for (const auto& row : info_.parameters) all.emplace_back(row.key, value(row));
  return all;
}

std::string SpecValues::canonical(const Codec::Traits& traits) const {
  std::string text(info_.name);
  const auto add = [&](std::string_view key, std::string_view value) {
    text += (text.find(':') == text.npos ? ":" : ",") + std::string(key) + "=" + std::string(value);
  };
  for (const auto& row : info_.parameters) add(row.key, value_text(row, value(row)));
  const FeedbackPolicy policy = feedback(traits);
  if (policy.kind != traits.memory) add("memory", name_of(policy.kind));
  if (policy.kind == FeedbackKind::residual && policy.decay != 1.0f) add("decay", spec_number(policy.decay));
  if (policy.kind == FeedbackKind::residual && policy.gamma != 1.0f) add("gamma", spec_number(policy.gamma));
  if (policy.arrays() && policy.kind != FeedbackKind::residual) add("momentum", spec_number(policy.momentum));
  if (policy.nesterov) add("nesterov", "1");
  if (diverges(policy, traits)) add("force", "1");
  return text;
}

void SpecValues::refuse(const CodecParameter& row, std::string_view legal) const {
  const auto it = given_.find(row.key);
  throw Error(ErrorCode::codec_unknown, "codec '" + text_ + "': " + std::string(row.key) + " is '" +
                                            (it == given_.end() ? "" : it->second) + "', legal is " +
                                            std::string(legal));
}

}  // namespace crimp
