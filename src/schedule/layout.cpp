#include "schedule/layout.hpp"

#include <algorithm>

#include "core/digest.hpp"

namespace crimp {
namespace {

// A wire value (Header::layout): of this text, and of nothing else.
std::uint64_t digest_of(Layout::Source source, const std::vector<Segment>& segments) {
  std::string text = std::to_string(static_cast<int>(source));
  for (const auto& s : segments) {
    text += '\n';
    text += s.key;
    text += '\t';
    text += std::to_string(s.offset);
    text += '\t';
    text += std::to_string(s.count);
    if (!s.summed()) text += "\tskip";
    if (s.alternative) text += "\tcodec " + std::to_string(s.alternative);
  }
  return digest(text);
}

}  // namespace

Layout::Layout(Source from, std::vector<Segment> all)
    : source(from), segments(std::move(all)), digest_(digest_of(source, segments)) {}

std::shared_ptr<const Layout> Layout::unknown(std::uint64_t count) { return make(Source::unknown, {{"", 0, count}}); }

bool Layout::operator==(const Layout& other) const {
  return digest_ == other.digest_ && source == other.source &&
         std::equal(segments.begin(), segments.end(), other.segments.begin(), other.segments.end(),
                    [](const Segment& a, const Segment& b) {
                      return a.key == b.key && a.offset == b.offset && a.count == b.count && a.use == b.use &&
                             a.alternative == b.alternative;
                    });
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

std::string label_of(const Layout& layout, Dtype dtype) {
  const Segment* first = nullptr;
  std::uint64_t summed = 0, count = 0;
  for (const Segment& s : layout.segments) {
    if (!s.summed()) continue;
    if (!first) first = &s;
    ++summed, count += s.count;
  }
  if (!first || first->key.empty()) return std::to_string(count) + " x " + name_of(dtype);
  return summed == 1 ? first->key : first->key + " + " + std::to_string(summed - 1) + " more";
}

}  // namespace crimp
