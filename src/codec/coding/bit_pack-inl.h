// Full tiles of codec/coding/bit_pack.hpp. Included by files that Highway compiles once per target.
#include <hwy/highway.h>

#include "codec/coding/bit_pack.hpp"

#if defined(CRIMP_BIT_PACK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CRIMP_BIT_PACK_INL_H
#undef CRIMP_BIT_PACK_INL_H
#else
#define CRIMP_BIT_PACK_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace crimp::bit_pack::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D32 = hn::CappedTag<std::uint32_t, kLanes>;
using V32 = hn::Vec<D32>;
using D16 = hn::Rebind<std::uint16_t, D32>;
using V16 = hn::Vec<D16>;

template <int shift, class V>
HWY_INLINE V shifted(V v) {
  if constexpr (shift >= 0) {
    return hn::ShiftLeft<shift>(v);
  } else {
    return hn::ShiftRight<-shift>(v);
  }
}

template <int bits, int plane, int code>
HWY_INLINE V16 gather(const std::uint16_t* codes) {
  const V16 v = shifted<code * bits - plane * 8>(hn::LoadU(D16(), codes + code * kLanes));
  if constexpr ((code + 1) * bits < (plane + 1) * 8) {
    return hn::Or(v, gather<bits, plane, code + 1>(codes));
  } else {
    return v;
  }
}

template <int bits, int plane = 0>
HWY_INLINE void pack_planes(const std::uint16_t* codes, std::uint8_t* bytes) {
  if constexpr (plane < bits) {
    const hn::Rebind<std::uint8_t, D16> d8;
    const V16 v = gather<bits, plane, plane * 8 / bits>(codes);
    hn::StoreU(hn::DemoteTo(d8, hn::BitCast(hn::RebindToSigned<D16>(), hn::And(v, hn::Set(D16(), 0xff)))), d8,
               bytes + plane * kLanes);
    pack_planes<bits, plane + 1>(codes, bytes);
  }
}

// 128 codes in the elements' order to 16 * bits bytes.
template <int bits>
void pack_tile(const std::uint16_t* HWY_RESTRICT codes, std::uint8_t* HWY_RESTRICT bytes) {
  for (std::size_t lane = 0; lane < kLanes; lane += hn::Lanes(D16())) pack_planes<bits>(codes + lane, bytes + lane);
}

template <int shift, int planes>
HWY_INLINE V32 scatter(const std::uint8_t* bytes) {
  const V32 v = shifted<shift>(hn::PromoteTo(D32(), hn::LoadU(hn::Rebind<std::uint8_t, D32>(), bytes)));
  if constexpr (planes > 1) {
    return hn::Or(v, scatter<shift + 8, planes - 1>(bytes + kLanes));
  } else {
    return v;
  }
}

template <int bits, int code, class Use>
HWY_INLINE void unpack_codes(const std::uint8_t* bytes, std::size_t lane, Use&& use) {
  if constexpr (code < static_cast<int>(kPerLane)) {
    constexpr int begin = code * bits, end = begin + bits, first = begin / 8, last = (end - 1) / 8;
    V32 v = scatter<first * 8 - begin, last - first + 1>(bytes + first * static_cast<int>(kLanes) + lane);
    if constexpr (end % 8 != 0) v = hn::And(v, hn::Set(D32(), (1u << bits) - 1));
    use(static_cast<std::size_t>(code), lane, v);
    unpack_codes<bits, code + 1>(bytes, lane, use);
  }
}

// Calls use(half, lane, codes) for the tile's eight halves of 16 elements and the lanes in them, codes in 32-bit lanes.
template <int bits, class Use>
HWY_INLINE void unpack_tile(const std::uint8_t* HWY_RESTRICT bytes, Use&& use) {
  for (std::size_t lane = 0; lane < kLanes; lane += hn::Lanes(D32())) unpack_codes<bits, 0>(bytes, lane, use);
}

// Calls use(std::integral_constant<int, bits>) for bits in 2..16.
template <class Use>
HWY_INLINE void with_bits(int bits, Use&& use) {
  switch (bits) {
#define CRIMP_BITS(n) \
  case n: return use(std::integral_constant<int, n>());
    CRIMP_BITS(2)
    CRIMP_BITS(3)
    CRIMP_BITS(4)
    CRIMP_BITS(5)
    CRIMP_BITS(6)
    CRIMP_BITS(7)
    CRIMP_BITS(8)
    CRIMP_BITS(9)
    CRIMP_BITS(10)
    CRIMP_BITS(11)
    CRIMP_BITS(12)
    CRIMP_BITS(13)
    CRIMP_BITS(14)
    CRIMP_BITS(15)
    CRIMP_BITS(16)
#undef CRIMP_BITS
  }
}

// pack_tile<bits>.
HWY_INLINE auto packer(int bits) {
  void (*pack)(const std::uint16_t*, std::uint8_t*) = nullptr;
  with_bits(bits, [&](auto width) { pack = pack_tile<width>; });
  return pack;
}

}  // namespace crimp::bit_pack::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
