#include "collective/tensor_codecs.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <string_view>

namespace crimp {

bool TensorCodecs::set(const std::string& pattern, const char* spec) {
  std::optional<std::shared_ptr<const Codec>> codec;
  if (spec) codec = std::string_view(spec) == "none" ? nullptr : pool_.get(spec);
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
    if (::fnmatch(said.pattern.c_str(), name.c_str(), 0) == 0)
      return said.codec ? std::optional(said.codec->get()) : std::nullopt;
  return {};
}

}  // namespace crimp
