#include "mpi/tensor_codecs.hpp"

#include <fnmatch.h>

#include <string_view>

namespace crimp {

void TensorCodecs::set(const std::string& pattern, const char* spec) {
  std::optional<const Codec*> codec;
  if (spec) {
    codec = nullptr;
    if (std::string_view(spec) != "none") {
      auto made = make_codec(spec);
      codec = made_.try_emplace(made->spec(), made).first->second.get();
    }
  }
  // What can never be asked for again goes, so that a program may call this in every step.
  std::erase_if(said_, [&](const Said& before) { return pattern == "*" || before.pattern == pattern; });
  if (codec || !said_.empty()) said_.insert(said_.begin(), {pattern, codec});
}

std::optional<const Codec*> TensorCodecs::find(const std::string& name) const {
  for (const Said& said : said_)
    if (::fnmatch(said.pattern.c_str(), name.c_str(), 0) == 0) return said.codec;
  return {};
}

}  // namespace crimp
