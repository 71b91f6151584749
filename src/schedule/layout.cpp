#include "crimp/layout.hpp"

#include <algorithm>

#include "crimp/config.hpp"

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

Layout CallSequence::observe(std::uint64_t count, Dtype type) {
  const std::uint64_t signature = count * 8 + static_cast<std::uint64_t>(type);
  if (period_) {
    if (signature == history_[phase_]) {
      const std::uint32_t ordinal = phase_;
      phase_ = (phase_ + 1) % period_;
      return {Layout::Source::periodic, {{kKeyPrefix + std::to_string(generation_) + "." + std::to_string(ordinal), 0, count}}};
    }
    period_ = 0;
    ++refutations_;
    periods_ = std::min(2 * periods_, 1024u);
    history_.clear();
    matches_.clear();
  }
  if (history_.size() == 2 * kLongestPeriod) history_.erase(history_.begin(), history_.begin() + kLongestPeriod);
  history_.push_back(signature);
  const std::size_t n = history_.size();
  if (n > 1 && matches_.size() < std::min<std::size_t>(n - 1, kLongestPeriod)) matches_.push_back(0);
  for (std::size_t p = 1; p <= matches_.size(); ++p) {
    auto& run = matches_[p - 1];
    run = history_[n - 1 - p] == signature ? run + 1 : 0;
    if (run < std::max<std::uint64_t>((periods_ - 1) * p, kMinMatches)) continue;
    period_ = static_cast<std::uint32_t>(p);
    phase_ = 0;
    ++generation_;
    history_.assign(history_.end() - static_cast<std::ptrdiff_t>(p), history_.end());
    break;
  }
  return Layout::unknown(count);  // the call that completes the proof is still unknown; the next one starts at ordinal 0
}

}  // namespace crimp
