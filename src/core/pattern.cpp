#include "core/pattern.hpp"

#include <cstddef>

namespace crimp {
namespace {

constexpr std::size_t kNone = std::string_view::npos;

unsigned byte(char c) { return static_cast<unsigned char>(c); }

// unknown: there is no class of that name.
bool of_class(std::string_view name, unsigned char c, bool& unknown) {
  const bool upper = c >= 'A' && c <= 'Z', lower = c >= 'a' && c <= 'z', digit = c >= '0' && c <= '9',
             graphic = c > ' ' && c < 0x7f;
  if (name == "alpha") return upper || lower;
  if (name == "digit") return digit;
  if (name == "alnum") return upper || lower || digit;
  if (name == "upper") return upper;
  if (name == "lower") return lower;
  if (name == "xdigit") return digit || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
  if (name == "space") return c == ' ' || (c >= '\t' && c <= '\r');
  if (name == "blank") return c == ' ' || c == '\t';
  if (name == "punct") return graphic && !upper && !lower && !digit;
  if (name == "graph") return graphic;
  if (name == "print") return graphic || c == ' ';
  if (name == "cntrl") return c < ' ' || c == 0x7f;
  unknown = true;
  return false;
}

// Where a bracket expression at `at` ends, behind its `]`, and whether it has the byte. kNone: it never ends, and `[`
// means itself.
std::size_t bracket(std::string_view pattern, std::size_t at, char c, bool& has) {
  std::size_t i = at + 1;
  const bool others = i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^');
  if (others) ++i;
  bool found = false, unknown = false;
  const auto next = [&](char& to) {  // a byte, or one behind a backslash
    if (i < pattern.size() && pattern[i] == '\\') ++i;
    if (i >= pattern.size()) return false;
    to = pattern[i++];
    return true;
  };
  for (bool first = true;; first = false) {
    if (i >= pattern.size()) return kNone;
    if (pattern[i] == ']' && !first) break;
    if (pattern.substr(i, 2) == "[:") {
      std::size_t end = i + 2;
      while (end < pattern.size() && pattern[end] >= 'a' && pattern[end] <= 'z') ++end;
      if (pattern.substr(end, 2) == ":]") {
        const bool in = of_class(pattern.substr(i + 2, end - i - 2), static_cast<unsigned char>(c), unknown);
        found = found || in;
        i = end + 2;
        continue;
      }
    }
    char low = 0;
    if (!next(low)) return kNone;
    char high = low;
    if (i + 1 < pattern.size() && pattern[i] == '-' && pattern[i + 1] != ']') {
      ++i;
      if (!next(high)) return kNone;
    }
    found = found || (byte(low) <= byte(c) && byte(c) <= byte(high));
  }
  has = !unknown && found != others;
  return i + 1;
}

}  // namespace

bool matches(std::string_view pattern, std::string_view name) noexcept {
  // Behind the last `*`, and where in the name what it stands for ends: one byte further at every miss.
  std::size_t behind = kNone, until = 0;
  std::size_t p = 0, n = 0;
  while (n < name.size() || p < pattern.size()) {
    std::size_t next = kNone;
    if (p < pattern.size()) {
      const char c = pattern[p];
      if (c == '*') {
        behind = ++p, until = n;
        continue;
      }
      bool has = false;
      std::size_t end = kNone;
      if (n < name.size()) {
        if (c == '[') end = bracket(pattern, p, name[n], has);
        if (end != kNone) next = has ? end : kNone;
        else if (c == '?') next = p + 1;
        else if (c == '\\') next = p + 1 < pattern.size() && pattern[p + 1] == name[n] ? p + 2 : kNone;
        else next = c == name[n] ? p + 1 : kNone;
      }
    }
    if (next != kNone) {
      p = next, ++n;
    } else if (behind != kNone && until < name.size()) {
      p = behind, n = ++until;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace crimp
