// Rates and times as people write them.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace crimp::tools {

// Bits a second, with decimal units: "10G", "100mbit", "25gbit/s", "1e9". Nothing where it is none, or not above 0.
std::optional<double> parse_rate(std::string_view);
// Seconds: "50us", "1.5ms", "2s"; a number alone is in microseconds. Nothing where it is none, or below 0.
std::optional<double> parse_time(std::string_view);
std::string rate_text(double bits_per_s);  // "10 Gbit/s"

}  // namespace crimp::tools
