#include "schedule/layout.hpp"

#include "core/digest.hpp"

namespace crimp {

Layout Layout::unknown(std::uint64_t count) { return {Source::unknown, {{"", 0, count}}}; }

std::uint64_t Layout::digest() const {
  std::string text = std::to_string(static_cast<int>(source));
  for (const auto& s : segments) text += "\n" + s.key + "\t" + std::to_string(s.offset) + "\t" + std::to_string(s.count) +
            (s.use == Segment::Use::skip ? "\tskip" : "");
  return crimp::digest(text);
}

const char* name_of(Layout::Source source) {
  switch (source) {
    case Layout::Source::unknown: return "unknown";
    case Layout::Source::periodic: return "periodic";
    case Layout::Source::negotiated: return "negotiated";
    case Layout::Source::named: return "named";
  }
  return "?";
}

}  // namespace crimp
