// The random bits of codec/coding/dither.hpp, a tile of 128 elements at a time. Included by files that Highway compiles
// once per target.
#include <hwy/highway.h>

#include "codec/coding/dither.hpp"

#if defined(CRIMP_DITHER_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CRIMP_DITHER_INL_H
#undef CRIMP_DITHER_INL_H
#else
#define CRIMP_DITHER_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace crimp::dither::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D32 = hn::CappedTag<std::uint32_t, kLanes>;
using V32 = hn::Vec<D32>;

// The bits of one stream of a piece, tile by tile. Keys, and what the first two rounds make of words that all blocks
// have in common, are computed once.
class Tiles {
 public:
  HWY_INLINE Tiles(const RandomCounter& counter, std::uint32_t stream) {
    const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
    const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
    const std::uint32_t key1 = high(counter.element);
    const std::uint64_t first = std::uint64_t{kM1} * counter.rank,
                        second = std::uint64_t{kM0} * (high(first) ^ low(counter.element) ^ stream);
    const std::uint32_t words[kRounds][2] = {{0, counter.step ^ key1},
                                             {low(first) ^ (stream + kW0), high(second) ^ (key1 + kW1)},
                                             {stream + 2 * kW0, low(second) ^ (key1 + 2 * kW1)}};
    for (std::uint32_t r = 0; r < kRounds; ++r)
      for (std::uint32_t i = 0; i < 2; ++i)
        key_[r][i] = hn::Set(D32(), r < 3 ? words[r][i] : i ? key1 + r * kW1 : stream + r * kW0);
  }

  // Calls use(i, half, lane, bits) for the tiles first + i, i < n, for their eight halves, 16 elements each, and the
  // lanes in them: `bits` holds the 16 random bits of the elements half * 16 + lane, +1, ... as 32-bit lanes. `first`:
  // index of a tile in its piece. Rounds wait for each other: two tiles at once take 1.4 times as long as one.
  template <int n, class Use>
  HWY_INLINE void draw(std::uint32_t first, Use&& use) const {
    const D32 d;
    const hn::Repartition<std::uint64_t, D32> d64;
    const std::size_t lanes = hn::Lanes(d);
    const auto m0 = hn::BitCast(d, hn::Set(d64, kM0)), m1 = hn::BitCast(d, hn::Set(d64, kM1));
    const auto product = [&](V32 a, V32 m) HWY_ATTR { return hn::BitCast(d, hn::MulEven(a, m)); };
    for (std::size_t lane = 0; lane < kLanes; lane += lanes) {
      // 64-bit lanes whose low half is the word: of a tile the even blocks, then the odd ones. The high halves are
      // ignored by MulEven. Halves are exchanged where a shift would do: processors have more units for it.
      V32 words[2 * n][4];
#pragma GCC unroll 4
      for (std::uint32_t i = 0; i < 2 * n; ++i) {
        const auto block =
            hn::Add(hn::Iota(d, 0), hn::Set(d, (first + i / 2) * kLanes + static_cast<std::uint32_t>(lane)));
        const auto counter = i % 2 ? hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, block))) : block;
        const V32 p0 = product(counter, m0), p1 = product(hn::Xor(hn::Shuffle2301(p0), key_[0][1]), m1);
        words[i][0] = hn::Xor(hn::Shuffle2301(p1), key_[1][0]);
        words[i][1] = p1;
        words[i][2] = hn::Xor(p0, key_[1][1]);
      }
#pragma GCC unroll 8
      for (std::uint32_t r = 2; r < kRounds; ++r)
#pragma GCC unroll 4
        for (auto& w : words) {
          const V32 p0 = product(w[0], m0), p1 = product(w[2], m1);
          w[0] = hn::Xor3(hn::Shuffle2301(p1), w[1], key_[r][0]);
          w[1] = p1;
          w[2] = r == 2 ? hn::Xor(hn::Shuffle2301(p0), key_[r][1]) : hn::Xor3(hn::Shuffle2301(p0), w[3], key_[r][1]);
          w[3] = p0;
        }
#pragma GCC unroll 2
      for (std::uint32_t i = 0; i < n; ++i)
#pragma GCC unroll 4
        for (std::size_t word = 0; word < 4; ++word) {
          const V32 e = words[2 * i][word], o = words[2 * i + 1][word];
#if HWY_TARGET <= HWY_AVX3
          const V32 w{_mm512_mask_shuffle_epi32(e.raw, 0xaaaa, o.raw, _MM_PERM_CCAA)};
#else
          const V32 w = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(d64, o))), e);
#endif
          use(i, 2 * word, lane, hn::And(w, hn::Set(d, 0xffff)));
          use(i, 2 * word + 1, lane, hn::ShiftRight<16>(w));
        }
    }
  }

 private:
  V32 key_[kRounds][2];
};

// use(half, lane, bits) for a single tile.
template <class Use>
HWY_INLINE void for_tile(const RandomCounter& counter, std::uint32_t stream, std::uint32_t tile, Use&& use) {
  Tiles(counter, stream).draw<1>(tile, [&](std::uint32_t, std::size_t half, std::size_t lane, V32 bits) HWY_ATTR {
    use(half, lane, bits);
  });
}

}  // namespace crimp::dither::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
