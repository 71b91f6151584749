// The random bits of codec/dither.hpp, a tile of 128 elements at a time. Included by files that Highway compiles once per target.
#include <hwy/highway.h>

#include "codec/dither.hpp"

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

// Calls use(half, lane, bits) for the tile's eight halves, 16 elements each, and the lanes in them: `bits` holds the 16 random bits of the
// elements half * 16 + lane, +1, ... as 32-bit lanes. `tile`: index of the tile in its piece.
template <class Use>
HWY_INLINE void for_tile(const Place& place, std::uint32_t stream, std::uint32_t tile, Use&& use) {
  const D32 d;
  const hn::Repartition<std::uint64_t, D32> d64;
  const std::size_t lanes = hn::Lanes(d);
  const auto m0 = hn::BitCast(d, hn::Set(d64, kM0)), m1 = hn::BitCast(d, hn::Set(d64, kM1));
  for (std::size_t lane = 0; lane < kLanes; lane += lanes) {
    // 64-bit lanes whose low half is the word: even blocks in e, odd ones in o. The high halves are ignored by MulEven. Halves are exchanged
    // where a shift would do: processors have more units for it.
    const auto block = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<std::uint32_t>(tile * kLanes + lane)));
    const auto both = hn::BitCast(d64, block);
    const auto c1 = hn::BitCast(d, hn::Set(d64, static_cast<std::uint32_t>(place.element))), c2 = hn::BitCast(d, hn::Set(d64, place.rank)),
               c3 = hn::BitCast(d, hn::Set(d64, place.step));
    V32 e0 = block, e1 = c1, e2 = c2, e3 = c3, o0 = hn::BitCast(d, hn::ShiftRight<32>(both)), o1 = c1, o2 = c2, o3 = c3;
    std::uint32_t k0 = stream, k1 = static_cast<std::uint32_t>(place.element >> 32);
    const auto round = [&](V32& a0, V32& a1, V32& a2, V32& a3, V32 key0, V32 key1) HWY_ATTR {
      const auto p0 = hn::MulEven(a0, m0), p1 = hn::MulEven(a2, m1);
      a0 = hn::Xor3(hn::Shuffle2301(hn::BitCast(d, p1)), a1, key0);
      a1 = hn::BitCast(d, p1);
      a2 = hn::Xor3(hn::Shuffle2301(hn::BitCast(d, p0)), a3, key1);
      a3 = hn::BitCast(d, p0);
    };
    for (std::uint32_t r = 0; r < kRounds; ++r, k0 += kW0, k1 += kW1) {
      const auto key0 = hn::Set(d, k0), key1 = hn::Set(d, k1);
      round(e0, e1, e2, e3, key0, key1);
      round(o0, o1, o2, o3, key0, key1);
    }
    const auto give = [&](std::size_t word, V32 e, V32 o) HWY_ATTR {
      const V32 w = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(hn::BitCast(d64, o))), e);
      use(2 * word, lane, hn::And(w, hn::Set(d, 0xffff)));
      use(2 * word + 1, lane, hn::ShiftRight<16>(w));
    };
    give(0, e0, o0);
    give(1, e1, o1);
    give(2, e2, o2);
    give(3, e3, o3);
  }
}

}  // namespace crimp::dither::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
