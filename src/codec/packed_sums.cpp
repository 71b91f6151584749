#include "codec/packed_sums.hpp"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "codec/homomorphic.hpp"

namespace crimp {
namespace {

template <class Part>
void for_parts(int width, Part&& part) {
  for (int low = 0; low < width;) {
    const int bits = std::min(8, static_cast<int>(std::bit_floor(static_cast<unsigned>(width - low))));
    if (bits == 8) part(low, std::integral_constant<int, 8>());
    if (bits == 4) part(low, std::integral_constant<int, 4>());
    if (bits == 2) part(low, std::integral_constant<int, 2>());
    if (bits == 1) part(low, std::integral_constant<int, 1>());
    low += bits;
  }
}

}  // namespace

void pack_sums(const std::uint16_t* sums, std::uint64_t count, int width, std::uint8_t* to) {
  for (std::uint64_t tile = 0; tile < count; tile += Homomorphic::kTile, sums += Homomorphic::kTile)
    for_parts(width, [&](int low, auto bits) {
      constexpr int kBytes = 16 * decltype(bits)::value;
      for (int j = 0; j < kBytes; ++j) {
        unsigned byte = 0;
        for (int q = 0; q < 8 / bits; ++q) byte |= (sums[j + q * kBytes] >> low & ((1u << bits) - 1)) << (q * bits);
        to[j] = static_cast<std::uint8_t>(byte);
      }
      to += kBytes;
    });
}

std::uint16_t unpack_sums(const std::uint8_t* from, std::uint64_t count, int width, std::uint16_t* sums) {
  std::uint16_t most = 0;
  for (std::uint64_t tile = 0; tile < count; tile += Homomorphic::kTile, sums += Homomorphic::kTile) {
    for_parts(width, [&](int low, auto bits) {
      constexpr int kBytes = 16 * decltype(bits)::value;
      for (int q = 0; q < 8 / bits; ++q)
        for (int j = 0; j < kBytes; ++j) {
          const unsigned part = (from[j] >> (q * bits) & ((1u << bits) - 1)) << low;
          std::uint16_t& sum = sums[j + q * kBytes];
          sum = static_cast<std::uint16_t>(low == 0 ? part : sum | part);
        }
      from += kBytes;
    });
    for (std::uint64_t i = 0; i < Homomorphic::kTile; ++i) most = std::max(most, sums[i]);
  }
  return most;
}

}  // namespace crimp
