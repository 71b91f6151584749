#include "collective/tensor_codecs.hpp"

#include <algorithm>
#include <string_view>

#include "core/pattern.hpp"

namespace crimp {
namespace {

// No name can match both. Some pairs of which that is so are not noticed.
bool apart(const std::string& a, const std::string& b) {
  const std::size_t n = a.find_first_of("*?[\\"), m = b.find_first_of("*?[\\");
  const std::string_view prefix = std::string_view(a).substr(0, n), other = std::string_view(b).substr(0, m);
  const std::size_t both = std::min(prefix.size(), other.size());
  if (prefix.substr(0, both) != other.substr(0, both)) return true;
  if (n == a.npos) return !matches(b, a);
  return m == b.npos && !matches(a, b);
}

}  // namespace

bool TensorCodecs::set(const std::string& pattern, const char* spec) {
  std::optional<std::shared_ptr<const Codec>> codec;
  if (spec) codec = std::string_view(spec) == "none" ? nullptr : pool_.get(spec);
  // A program may say the same of several patterns in every step: the order of those that have nothing to do with each
  // other is none.
  const Said now{pattern, codec};
  const auto known = std::find(said_.begin(), said_.end(), now);
  if (known != said_.end() && pattern != "*" && std::all_of(said_.begin(), known, [&](const Said& said) {
        return said.codec == codec || apart(said.pattern, pattern);
      }))
    return false;
  const std::vector<Said> before = said_;
  // What can never be asked for again goes, so that a program may call this in every step.
  std::erase_if(said_, [&](const Said& said) { return pattern == "*" || said.pattern == pattern; });
  if (codec || !said_.empty()) said_.insert(said_.begin(), {pattern, codec});
  return said_ != before;
}

bool TensorCodecs::any_codec(const std::function<bool(const Codec&)>& is) const {
  return std::any_of(said_.begin(), said_.end(),
                     [&](const Said& said) { return said.codec && *said.codec && is(**said.codec); });
}

std::optional<const Codec*> TensorCodecs::find(const std::string& name) const {
  for (const Said& said : said_)
    if (matches(said.pattern, name)) return said.codec ? std::optional(said.codec->get()) : std::nullopt;
  return {};
}

}  // namespace crimp
