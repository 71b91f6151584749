#include "schedule/rules.hpp"

#include <algorithm>
#include <charconv>

#include "core/error.hpp"
#include "core/numbers.hpp"
#include "core/pattern.hpp"
#include "core/settings.hpp"

namespace crimp {
namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

[[noreturn]] void refuse(std::string_view rule) {
  throw Error(
      ErrorCode::option_invalid,
      "CRIMP_RULES: '" + std::string(rule) +
          "' is no rule; legal: pattern=codec, <N=codec, >=N=codec, separated by ';', as in "
          "'*.bias=none; <4096=none; *=3lc:s=1.5', and up to " +
          std::to_string(Rules::kMostCodecs) +
          " codecs other than none to choose from, as in '*=3lc|topk'; none:memory=none: without momentum, too");
}

std::uint64_t elements(std::string_view text, std::string_view rule) {
  std::uint64_t n = 0;
  if (!parse_number<std::uint64_t>(text, 1, ~std::uint64_t{0}, n)) refuse(rule);
  return n;
}

void read_codecs(std::string_view text, std::string_view rule, Rules::Rule& to) {
  auto& all = to.codecs;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find('|', at), text.size());
    all.emplace_back(trimmed(text.substr(at, end - at)));
    if (all.back().empty() || all.size() > Rules::kMostCodecs) refuse(rule);
    if (all.back().starts_with("none:")) {
      if (all.back() != "none:memory=none") refuse(rule);
      all.back() = "none";
      to.plain = true;
    }
    at = end + 1;
  }
  if (all.size() > 1 && std::find(all.begin(), all.end(), "none") != all.end()) refuse(rule);
}

// The number that a text begins with, which is taken from it; 0: none.
std::uint64_t take_number(std::string_view& text) {
  std::uint64_t n = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), n).ptr;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return n;
}

// What the name that Horovod gives a tensor says of that tensor itself. A group of parameters has the name of its first
// one, which says nothing of the others; one that a program has named means all of it.
std::string_view own_name(std::string_view name) {
  const auto line = name.rfind('_');
  if (!name.starts_with("grouped_") || line == name.npos) return name;
  std::string_view place = name.substr(line + 1);
  const std::uint64_t i = take_number(place);
  if (!place.starts_with("of")) return name;
  place.remove_prefix(2);
  const std::uint64_t n = take_number(place);
  if (i == 0 || i > n || !place.empty()) return name;
  const std::string_view group = name.substr(0, line);
  if (!group.ends_with(".weight") && !group.ends_with(".bias")) return name;
  return i == 1 ? group : std::string_view();
}

}  // namespace

Rules::Rules(std::string_view text) : built_in_(text == Settings().rules) {
  while (!trimmed(text).empty()) {
    const auto semicolon = text.find(';');
    const std::string_view rule = trimmed(text.substr(0, semicolon));
    text = semicolon == text.npos ? std::string_view() : text.substr(semicolon + 1);
    if (rule.empty()) continue;
    const bool from = rule.starts_with(">=");
    const auto equals = rule.find('=', from ? 2 : 0);
    if (equals == rule.npos) refuse(rule);
    const std::string_view left = trimmed(rule.substr(0, equals));
    if (left.empty()) refuse(rule);
    Rule& to = rules_.emplace_back();
    read_codecs(rule.substr(equals + 1), rule, to);
    if (from) to.from = elements(trimmed(left.substr(2)), rule);
    else if (left.front() == '<') to.below = elements(trimmed(left.substr(1)), rule);
    else if (left.front() == '>') refuse(rule);  // no name of a tensor, and no rule for sizes either
    else to.pattern = left;
  }
}

int Rules::match(const std::string& name, std::uint64_t count) const {
  const std::string_view judged = built_in_ ? own_name(name) : std::string_view(name);
  for (std::size_t i = 0; i < rules_.size(); ++i) {
    const Rule& r = rules_[i];
    if (!r.pattern.empty() ? matches(r.pattern, judged) : r.below ? count < r.below : count >= r.from)
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace crimp
