#include "quantities.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace crimp::tools {
namespace {

struct Number {
  double value;
  std::string unit;  // in small letters
};

std::optional<Number> split(std::string_view text) {
  const std::string all(text.substr(0, 64));
  char* end = nullptr;
  const double value = std::strtod(all.c_str(), &end);
  if (end == all.c_str() || !std::isfinite(value) || all.size() != text.size()) return {};
  std::string unit(end);
  for (char& c : unit)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  while (!unit.empty() && unit.front() == ' ') unit.erase(0, 1);
  return Number{value, unit};
}

}  // namespace

constexpr double kLeastWithoutUnit = 1e5;  // bits a second

std::optional<double> parse_rate(std::string_view text) {
  auto number = split(text);
  if (!number) return {};
  std::string& unit = number->unit;
  // GB/s are bytes, Gb/s and Gbit/s bits.
  const std::size_t large_b = text.find('B');
  const bool bytes = large_b != text.npos && text.substr(large_b + 1, 1) != "i" && text.substr(large_b + 1, 1) != "I";
  for (const char* end : {"/s", "ps", "bit", "b"})
    if (unit.size() >= std::string_view(end).size() && unit.ends_with(end))
      unit.resize(unit.size() - std::string_view(end).size());
  const double factor = unit.empty()  ? 1
                        : unit == "k" ? 1e3
                        : unit == "m" ? 1e6
                        : unit == "g" ? 1e9
                        : unit == "t" ? 1e12
                                      : 0;
  if (unit.empty() && number->value < kLeastWithoutUnit) return {};  // "10" is no link of 10 bit/s
  const double rate = number->value * factor * (bytes ? 8 : 1);
  if (!(rate > 0) || !std::isfinite(rate)) return {};
  return rate;
}

std::optional<double> parse_time(std::string_view text) {
  const auto number = split(text);
  if (!number || number->value < 0) return {};
  const std::string& unit = number->unit;
  if (unit == "ns") return number->value * 1e-9;
  if (unit == "us" || unit.empty()) return number->value * 1e-6;
  if (unit == "ms") return number->value * 1e-3;
  if (unit == "s") return number->value;
  return {};
}

std::string rate_text(double bits_per_s) {
  if (bits_per_s < 999.5e6)
    return fmt::format("{:.3g} Mbit/s", bits_per_s / 1e6);  // what is rounded to 1000 is 1 of the next
  if (bits_per_s < 999.5e9) return fmt::format("{:.3g} Gbit/s", bits_per_s / 1e9);
  return fmt::format("{:.3g} Tbit/s", bits_per_s / 1e12);
}

}  // namespace crimp::tools
