// Whole numbers in texts: decimal with an optional binary suffix k, M or G.
#pragma once
#include <charconv>
#include <string_view>

namespace crimp {

// False where the text is no such number within [low, high]; `to` is then unchanged.
template <class T>
bool parse_number(std::string_view text, T low, T high, T& to) {
  unsigned long long value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end == text.data()) return false;
  const std::string_view suffix(end, static_cast<std::size_t>(text.data() + text.size() - end));
  const int shift = suffix.empty()                   ? 0
                    : suffix == "k" || suffix == "K" ? 10
                    : suffix == "M"                  ? 20
                    : suffix == "G"                  ? 30
                                                     : -1;
  if (shift < 0 || value > (~0ull >> shift)) return false;
  value <<= shift;
  if (value < static_cast<unsigned long long>(low) || value > static_cast<unsigned long long>(high)) return false;
  to = static_cast<T>(value);
  return true;
}

}  // namespace crimp
