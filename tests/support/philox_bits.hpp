// The random bits of WIRE_FORMAT.md, section 5, from Random123's Philox.
#pragma once
#include <Random123/philox.h>

#include <array>

#include "codec/codec.hpp"

namespace crimp::test {

inline std::uint32_t rounding_bits(const RandomCounter& counter, std::uint32_t i) {
  // Sixteen neighbours need sixteen blocks of eight elements each: the last blocks are kept.
  struct Kept {
    RandomCounter counter;
    std::uint32_t block = 0xffffffff;
    r123::Philox4x32_R<7>::ctr_type words{};
  };
  thread_local std::array<Kept, 16> kept;
  const std::uint32_t block = i / 128 * 16 + i % 16, half = i % 128 / 16;
  Kept& k = kept[block % 16];
  if (k.block != block || k.counter.element != counter.element || k.counter.step != counter.step ||
      k.counter.rank != counter.rank) {
    k.counter = counter;
    k.block = block;
    k.words =
        r123::Philox4x32_R<7>()({{block, static_cast<std::uint32_t>(counter.element), counter.rank, counter.step}},
                                {{0x524e4400, static_cast<std::uint32_t>(counter.element >> 32)}});
  }
  return k.words[half / 2] >> (16 * (half % 2)) & 0xffff;
}

}  // namespace crimp::test
