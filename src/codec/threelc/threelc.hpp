// 3LC (Lim, Andersen, Kaminsky, MLSys 2019): 3-value quantisation with sparsity multiplication, base-3^5 bytes,
// zero-run coding. Layout and element functions, shared by host and device. The byte layout is WIRE_FORMAT.md,
// section 4.4.
#pragma once
#include <cstdint>

#include "codec/parameter.hpp"
#include "core/host_device.hpp"

namespace crimp::threelc {

inline constexpr std::uint32_t kStripe = 32;  // neighbouring lanes write neighbouring bytes
inline constexpr std::uint32_t kTile =
    5 * kStripe;                                // elements per full tile; its byte i holds elements i, i+32, ..., i+128
inline constexpr std::uint8_t kZeroByte = 121;  // five zeros
inline constexpr std::uint8_t kFirstRun = 243;  // 243 + (k - 2) stands for k = 2..14 zero bytes
inline constexpr std::uint32_t kLongestRun = 14;
inline constexpr float kMaxMagnitude = 0x1p100f;  // keeps values + residual and s * max finite for every legal s

inline constexpr Parameter<float> kSparsity{
    {.key = "s",
     .default_value = 1,
     .least = 0.25,
     .most = 2,
     .below_most = true,  // at 2 error feedback no longer contracts
     .help =
         "sparsity multiplier: the scale is s * max|a|; larger sends less and later, below 1 (not in the paper) more and sooner"}};
inline constexpr auto kZeroRun =
    flag_parameter("zero_run", true, "0 leaves zero runs uncoded: 1.6 bits a value, always the same size");
inline constexpr auto kEntropy = flag_parameter(
    "entropy", false,
    "1 codes the bytes once more by fixed prefix codes: about half the size for more work, for networks below about 10 Gbit/s");

// Base-3^5 bytes of n elements: ceil(n / 5), whether the last tile is full or not.
CRIMP_HD std::uint64_t base_bytes(std::uint64_t n) { return n / kTile * kStripe + (n % kTile + 4) / 5; }

// Distance between the five elements of one byte, in the tile that starts at element `begin` of a piece of n elements.
CRIMP_HD std::uint32_t stripe(std::uint64_t begin, std::uint64_t n) {
  const std::uint64_t rest = n - begin;
  return rest >= kTile ? kStripe : static_cast<std::uint32_t>((rest + 4) / 5);
}

// scale = M = s * max|a|; the threshold is M / 2, compared strictly, so that |a| == M / 2 is zero everywhere.
CRIMP_HD int quantize(float a, float scale) {
  const float threshold = 0.5f * scale;
  return (a > threshold) - (a < -threshold);
}

CRIMP_HD float dequantize(int q, float scale) { return q > 0 ? scale : q < 0 ? -scale : 0.0f; }

CRIMP_HD std::uint8_t pack(int q0, int q1, int q2, int q3, int q4) {
  return static_cast<std::uint8_t>(kZeroByte + 81 * q0 + 27 * q1 + 9 * q2 + 3 * q3 + q4);
}

// The j-th of a byte's five values, j = 0..4, for byte <= 242.
CRIMP_HD int unpack(std::uint8_t byte, int j) {
  const int weight = j == 0 ? 81 : j == 1 ? 27 : j == 2 ? 9 : j == 3 ? 3 : 1;
  return byte / weight % 3 - 1;
}

// The base bytes on the host, for codecs that share them. Digits are q + 1, in the elements' order.
void pack_digits(const std::uint8_t* digits, std::uint64_t count, std::uint8_t* bytes);
bool legal_base(const std::uint8_t* bytes, std::uint64_t size);                          // no byte above 242
void add_base(const std::uint8_t* bytes, std::uint64_t count, float scale, float* acc);  // of legal bytes

}  // namespace crimp::threelc
