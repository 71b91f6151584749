#include "codec/spec.hpp"

#include <charconv>

#include "core/error.hpp"

namespace crimp {

std::string spec_number(double x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, static_cast<float>(x)).ptr;
  return std::string(text, end);
}

namespace {

// What every codec's text may hold besides its own parameters.
constexpr CodecParameter kCommon[] = {
    {"memory", "", "none, residual, momentum or average", "what is kept of a gradient for later calls"},
    {"decay", "1", "0 < decay <= 1", "weight of the residual"},
    {"gamma", "1", "0 < gamma <= 1", "weight of the gradient beside the residual; the result is so many times the sum"},
    {"momentum", "0.9", "0 <= momentum < 1", "of the memories momentum and average"},
    {"nesterov", "0", "0 or 1", "Nesterov's momentum, of the memory momentum"},
    {"force", "0", "0 or 1", "1 allows a memory with which the codec is known to diverge"},
};
constexpr std::string_view kMemories[] = {"none", "residual", "momentum", "average"};

}  // namespace

SpecValues::SpecValues(std::string_view text, const CodecInfo& info) : text_(text), info_(info) {
  const auto colon = text.find(':');
  std::string_view rest = colon == text.npos ? std::string_view() : text.substr(colon + 1);
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
    const auto equals = item.find('=');
    const std::string_view key = item.substr(0, equals);
    bool known = false;
    std::string legal;
    const auto consider = [&](std::span<const CodecParameter> parameters) {
      for (const auto& p : parameters) {
        known = known || p.key == key;
        legal += (legal.empty() ? "" : ", ") + std::string(p.key) + " (" + std::string(p.legal) + ")";
      }
    };
    consider(info.parameters);
    consider(kCommon);
    if (!known || equals == item.npos)
      throw Error(ErrorCode::codec_unknown, "codec '" + text_ + "': '" + std::string(item) + "' is not a parameter of " +
                                                std::string(info.name) + "; legal: " + legal +
                                                ", as in '" + std::string(info.name) + ":key=value'");
    values_.insert_or_assign(std::string(key), std::string(item.substr(equals + 1)));
  }
}

double SpecValues::number(std::string_view key, double default_value) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return default_value;
  double value = 0;
  const auto& s = it->second;
  const auto [end, status] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (status != std::errc() || end != s.data() + s.size()) fail(key, "a number");
  return value;
}

bool SpecValues::flag(std::string_view key, bool default_value) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return default_value;
  if (it->second != "0" && it->second != "1") fail(key, "0 or 1");
  return it->second == "1";
}

std::size_t SpecValues::word(std::string_view key, std::span<const std::string_view> legal, std::size_t default_index) const {
  const auto it = values_.find(key);
  if (it == values_.end()) return default_index;
  std::string all;
  for (std::size_t i = 0; i < legal.size(); ++i) {
    if (it->second == legal[i]) return i;
    all += (i == 0 ? "" : i + 1 == legal.size() ? " or " : ", ") + std::string(legal[i]);
  }
  fail(key, all);
}

MemoryPolicy SpecValues::memory(const Codec::Traits& traits) const {
  MemoryPolicy policy;
  policy.kind = static_cast<MemoryKind>(word("memory", kMemories, static_cast<std::size_t>(traits.memory)));
  const double decay = number("decay", 1.0), gamma = number("gamma", 1.0), momentum = number("momentum", 0.9f);
  if (!(decay > 0.0 && decay <= 1.0)) fail("decay", "0 < decay <= 1");
  if (!(momentum >= 0.0 && static_cast<float>(momentum) < 1.0f)) fail("momentum", "0 <= momentum < 1");
  if (!(gamma > 0.0 && gamma <= 1.0 && static_cast<float>(gamma) > 0.0f)) fail("gamma", "0 < gamma <= 1");
  policy.gamma = static_cast<float>(gamma);
  if (traits.memory == MemoryKind::momentum) {  // others mean something else by it
    const double clip = number("clip", 0.0);
    if (!(clip >= 0.0 && clip <= 0x1p100)) fail("clip", "0 <= clip <= 2^100");
    if (clip > 0.0 && policy.kind != MemoryKind::momentum) fail("clip", "for memory=momentum only");
    policy.clip = static_cast<float>(clip);
  }
  policy.nesterov = flag("nesterov", false);
  policy.decay = static_cast<float>(decay);
  policy.momentum = static_cast<float>(momentum);
  for (const char* key : {"decay", "gamma"})
    if (values_.contains(key) && policy.kind != MemoryKind::residual) fail(key, "for memory=residual only");
  if (values_.contains("nesterov") && policy.kind != MemoryKind::momentum) fail("nesterov", "for memory=momentum only");
  if (values_.contains("momentum") && policy.kind != MemoryKind::momentum && policy.kind != MemoryKind::average)
    fail("momentum", "for memory=momentum and memory=average only");
  if (policy.kind == MemoryKind::residual && traits.diverges_with_residual && !flag("force", false))
    fail("memory", "one other than residual: error feedback of this codec is known to diverge (GRACE); add force=1 to have it all the same");
  return policy;
}

std::string SpecValues::canonical(const Codec::Traits& traits) const {
  std::string text(info_.name);
  const auto add = [&](std::string_view key, std::string_view value) {
    text += (text.find(':') == text.npos ? ":" : ",") + std::string(key) + "=" + std::string(value);
  };
  const auto value = [&](std::string_view key, std::string_view otherwise) -> std::string {
    const auto it = values_.find(key);
    const std::string given = it == values_.end() ? std::string(otherwise) : it->second;
    double x = 0;
    const auto [end, status] = std::from_chars(given.data(), given.data() + given.size(), x);
    return status == std::errc() && end == given.data() + given.size() ? spec_number(x) : given;
  };
  for (const auto& p : info_.parameters) add(p.key, value(p.key, p.default_value));
  const MemoryPolicy policy = memory(traits);
  if (policy.kind != traits.memory) add("memory", name_of(policy.kind));
  if (policy.kind == MemoryKind::residual && policy.decay != 1.0f) add("decay", spec_number(policy.decay));
  if (policy.kind == MemoryKind::residual && policy.gamma != 1.0f) add("gamma", spec_number(policy.gamma));
  if (policy.planes() && policy.kind != MemoryKind::residual) add("momentum", spec_number(policy.momentum));
  if (policy.nesterov) add("nesterov", "1");
  if (policy.kind == MemoryKind::residual && traits.diverges_with_residual) add("force", "1");
  return text;
}

void SpecValues::fail(std::string_view key, std::string_view legal) const {
  const auto it = values_.find(key);
  throw Error(ErrorCode::codec_unknown, "codec '" + text_ + "': " + std::string(key) + " is '" +
                                            (it == values_.end() ? "" : it->second) + "', legal is " + std::string(legal));
}

CodecParameter scale_parameter() {
  return {"scale", "piece", "piece or tensor",
          "what has a scale: 10,240 elements; or a tensor's part in a chunk (with two_shot: in a rank's share of a chunk), the whole tensor where "
          "CRIMP_CHUNK reaches"};
}

bool scales_tensors(const SpecValues& values) {
  constexpr std::string_view kScales[] = {"piece", "tensor"};
  return values.word("scale", kScales, 0) == 1;
}

}  // namespace crimp
