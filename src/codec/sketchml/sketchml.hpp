// SketchML (Jiang, Fu, Yang, Cui, SIGMOD 2018): equally filled buckets of the sorted values; an element is sent as the
// number of its bucket and decodes to the bucket's mean. The quantiles are those of a radix histogram; counts and
// fixed-point sums are integers, so that order is free. Layout: WIRE_FORMAT.md, section 4.16.
#pragma once
#include <bit>
#include <cstdint>

#include "codec/parameter.hpp"
#include "core/host_device.hpp"

namespace crimp::sketchml {

inline constexpr std::uint32_t kHalf = 2048,
                               kBins =
                                   2 * kHalf;  // bins of a sign: 16 octaves below the largest magnitude, 128 in each
inline constexpr std::uint32_t kMostBuckets = 256;
inline constexpr Parameter<std::uint32_t> kQuantiles{
    {.key = "quantiles",
     .default_value = 64,
     .least = 2,
     .most = kMostBuckets,
     .step = 1,
     .help = "buckets of a piece; an element takes ceil(log2(quantiles)) bits"}};
inline constexpr float kMaxMagnitude = 0x1p100f;

// Buckets of a piece of n elements and the bits of their numbers.
CRIMP_HD std::uint32_t buckets_of(std::uint32_t quantiles, std::uint64_t n) {
  return n < quantiles ? static_cast<std::uint32_t>(n) : quantiles;
}
CRIMP_HD std::uint32_t bits_of(std::uint32_t buckets) {
  std::uint32_t bits = 0;
  while (1u << bits < buckets) ++bits;
  return bits;
}

CRIMP_HD std::uint32_t magnitude_bits(float a) { return std::bit_cast<std::uint32_t>(a) & 0x7fffffff; }

// The upper 16 bits at which bin 0 of a sign ends, from the magnitude_bits of the largest element.
CRIMP_HD std::uint32_t base_of(std::uint32_t largest) {
  return largest >> 16 > kHalf - 1 ? (largest >> 16) - (kHalf - 1) : 0;
}

// Grows with a; what is more than 16 octaves below the largest magnitude falls into the innermost bin of its sign.
CRIMP_HD std::uint32_t bin_of(float a, std::uint32_t base) {
  const std::uint32_t upper = magnitude_bits(a) >> 16, m = upper > base ? upper - base : 0;
  return ((kHalf + m) ^ (0u - (a < 0.0f))) & (kBins - 1);  // kHalf - 1 - m where a < 0
}

// The bucket of a bin of `filled` elements with `below` elements in lower bins: where its middle element belongs.
CRIMP_HD std::uint32_t bucket_of(std::uint32_t below, std::uint32_t filled, std::uint32_t n, std::uint32_t buckets) {
  return buckets * (2 * below + filled - 1) / (2 * n);
}

// Elements are summed as integers: the largest magnitude is below 2^48, what is smaller than 2^-24 of it loses bits.
CRIMP_HD double unit_of(std::uint32_t largest) {
  const std::uint32_t exponent = largest >> 23 > 1 ? largest >> 23 : 1;
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + 48 + 126 - exponent) << 52);
}
CRIMP_HD std::int64_t fixed_point(float a, double unit) {
  return static_cast<std::int64_t>(static_cast<double>(a) * unit);
}
// unit is a power of two, so that only one quotient is rounded before the float.
CRIMP_HD float mean_of(std::int64_t sum, std::uint32_t count, double unit) {
  return count ? static_cast<float>(static_cast<double>(sum) / count / unit) : 0.0f;
}

}  // namespace crimp::sketchml
