// A set of elements as bits, bit i mod 8 of byte i / 8 for element i: how a dense selection is decoded.
#pragma once
#include <cstddef>
#include <cstdint>

namespace crimp::bitmap {

// The bits that are set in so many bytes.
std::uint32_t count(const std::uint8_t* bits, std::size_t bytes);

inline constexpr std::size_t kRoom = 16;  // floats behind the values that may be read

// acc[i] += the next of `values`, for every i < n whose bit is set. The others keep their bits. There is a value for
// every bit that is set, and room for kRoom behind the last.
void add(const std::uint8_t* bits, std::uint64_t n, const float* values, float* acc);

}  // namespace crimp::bitmap
