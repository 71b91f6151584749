// Bits of sums against the sentence of WIRE_FORMAT.md, section 6.3, sum by sum and bit by bit.
#include "codec/packed_sums.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

using namespace crimp;

TEST_SUITE("packed_sums") {
  namespace {

  constexpr std::size_t kTile = 128;

  // Where a width's parts begin and how many bits they have: of the widths up to 16, by hand.
  const std::vector<std::vector<int>> kParts{{},     {1},       {2},       {2, 1},       {4},    {4, 1},
                                             {4, 2}, {4, 2, 1}, {8},       {8, 1},       {8, 2}, {8, 2, 1},
                                             {8, 4}, {8, 4, 1}, {8, 4, 2}, {8, 4, 2, 1}, {8, 8}};

  std::vector<std::uint16_t> numbers(std::size_t tiles, int width) {
    std::mt19937 random(static_cast<unsigned>(width));
    std::vector<std::uint16_t> all(tiles * kTile);
    for (auto& x : all) x = static_cast<std::uint16_t>(random() & ((1u << width) - 1));
    return all;
  }

  }  // namespace

  TEST_CASE("every bit of a sum stands where the format says") {
    for (int width = 1; width <= 16; ++width) {
      CAPTURE(width);
      const auto sums = numbers(3, width);
      std::vector<std::uint8_t> expected(3 * 16 * static_cast<std::size_t>(width)), got(expected.size(), 0xaa);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        std::size_t part = i / kTile * 16 * static_cast<std::size_t>(width);
        int low = 0;
        for (const int bits : kParts[static_cast<std::size_t>(width)]) {
          const std::size_t lanes = 16 * static_cast<std::size_t>(bits), e = i % kTile;
          const int value = sums[i] >> low & ((1 << bits) - 1);
          expected[part + e % lanes] = static_cast<std::uint8_t>(expected[part + e % lanes] |
                                                                 value << (e / lanes * static_cast<std::size_t>(bits)));
          part += lanes;
          low += bits;
        }
        REQUIRE(low == width);
      }
      pack_sums(sums.data(), sums.size(), width, got.data());
      CHECK(got == expected);
    }
  }

  TEST_CASE("unpacking gives the sums back and says the largest") {
    for (int width = 1; width <= 16; ++width) {
      CAPTURE(width);
      auto sums = numbers(2, width);
      sums[200] = static_cast<std::uint16_t>((1u << width) - 1);
      std::vector<std::uint8_t> bytes(2 * 16 * static_cast<std::size_t>(width));
      pack_sums(sums.data(), sums.size(), width, bytes.data());
      std::vector<std::uint16_t> back(sums.size(), 0xffff);
      CHECK(unpack_sums(bytes.data(), back.size(), width, back.data()) == sums[200]);
      CHECK(back == sums);
    }
    CHECK(unpack_sums(nullptr, 0, 7, nullptr) == 0);
  }
}
