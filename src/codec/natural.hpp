// Natural compression (Horvath et al., MSML 2022): sign and exponent, the mantissa decides at random whether the exponent grows. Element
// functions, shared by host and device. The byte layout is WIRE_FORMAT.md, section 4.7.
#pragma once
#include <cstdint>

#include "core/host_device.hpp"

namespace crimp::natural {

// Code: sign * 128 + e; e = 0 is zero, e in 1..127 is 2^(e - 64).
inline constexpr std::uint32_t kTop = 127, kOffset = 63;  // the float's exponent field is e + 63
inline constexpr std::uint32_t kLeast = (kOffset + 1) << 23;  // bits of 2^-63, the least magnitude but zero
inline constexpr float kMaxMagnitude = 0x1p62f;

}  // namespace crimp::natural
