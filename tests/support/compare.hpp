// Comparisons on bits and guard words, so that a test says where two buffers first differ instead of failing once per
// element.
#pragma once
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace crimp::test {

inline std::string text_of(float x) {
  char text[48];
  std::snprintf(text, sizeof text, "%.9g (%08x)", static_cast<double>(x), std::bit_cast<std::uint32_t>(x));
  return text;
}
inline std::string text_of(std::uint8_t x) { return std::to_string(x); }
inline std::string text_of(std::uint16_t x) {
  char text[16];
  std::snprintf(text, sizeof text, "%04x", x);
  return text;
}

inline std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const auto b : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", b);
    text += two;
  }
  return text;
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Whether two NaNs of different bits are a difference.
enum class Nans { bits, equal };

template <class T>
bool same(const T& a, const T& b, Nans nans) {
  if (std::memcmp(&a, &b, sizeof(T)) == 0) return true;
  if constexpr (std::is_floating_point_v<T>) return nans == Nans::equal && a != a && b != b;
  return false;
}

// Empty where both have the same bits, else the first place where they do not.
template <class T>
std::string difference(std::span<const T> got, std::span<const T> expected, Nans nans = Nans::bits) {
  if (got.size() != expected.size())
    return std::to_string(got.size()) + " elements, expected " + std::to_string(expected.size());
  if (got.empty() || std::memcmp(got.data(), expected.data(), got.size_bytes()) == 0) return {};
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!same(got[i], expected[i], nans))
      return "element " + std::to_string(i) + " of " + std::to_string(got.size()) + " is " + text_of(got[i]) +
             ", expected " + text_of(expected[i]);
  return {};
}
template <class T>
std::string difference(const std::vector<T>& got, const std::vector<T>& expected, Nans nans = Nans::bits) {
  return difference(std::span<const T>(got), std::span<const T>(expected), nans);
}

// count elements between guard bytes, not aligned to more than an element; the rest of the bytes is a pattern, never
// zero.
template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count) : count_(count), bytes_(2 * kGuard + count * sizeof(T), kPattern) {}
  Guarded(std::span<const T> from) : Guarded(from.size()) {
    if (!from.empty()) std::memcpy(data(), from.data(), from.size_bytes());
  }
  T* data() { return reinterpret_cast<T*>(bytes_.data() + kGuard); }
  std::span<const T> span() { return {data(), count_}; }
  bool intact() const {
    for (std::size_t i = 0; i < kGuard; ++i)
      if (bytes_[i] != kPattern || bytes_[bytes_.size() - 1 - i] != kPattern) return false;
    return true;
  }

 private:
  static constexpr std::size_t kGuard = 132;  // so that data() is 4 bytes past a multiple of 16
  static constexpr std::uint8_t kPattern = 0xa5;
  std::size_t count_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace crimp::test
