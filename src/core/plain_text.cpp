#include "core/plain_text.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstring>

namespace crimp {
namespace {

// Bytes of the character that a text begins with, which a terminal shows; 0: of none.
std::size_t shown(std::string_view text) {
  const auto byte = [&](std::size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
  const auto within = [&](std::size_t at, unsigned least, unsigned most) {
    return byte(at) >= least && byte(at) <= most;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f;
  if (first < 0xc2 || first > 0xf4) return 0;
  // Characters are written in the shortest way, and none is half of a pair of UTF-16.
  const unsigned least = first == 0xc2 || first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  if (!within(1, least, first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf)) return 0;
  const std::size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  for (std::size_t at = 2; at < bytes; ++at)
    if (!within(at, 0x80, 0xbf)) return 0;
  return bytes;
}

std::size_t shown_or_kept(std::string_view text, std::string_view kept) {
  const std::size_t bytes = shown(text);
  return bytes == 0 && kept.find(text[0]) != kept.npos ? 1 : bytes;
}

}  // namespace

bool is_plain_text(std::string_view text, std::string_view kept) noexcept {
  while (!text.empty()) {
    const std::size_t bytes = shown_or_kept(text, kept);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string plain_text(std::string_view text, std::string_view kept) {
  std::string out;
  while (!text.empty()) {
    const std::size_t bytes = shown_or_kept(text, kept);
    // One '?' for a control character of two bytes.
    const bool of_eight_bits = bytes == 0 && text.size() > 1 && text[0] == '\xc2' && (text[1] & 0xe0) == 0x80;
    if (bytes) out += text.substr(0, bytes);
    else out += '?';
    text.remove_prefix(bytes ? bytes : of_eight_bits ? 2 : 1);
  }
  return out;
}

std::string in_shell(std::string_view word) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_@%+=:,./-", c); };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return std::string(word);
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace crimp
