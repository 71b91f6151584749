// Bit planes and masks of lanes, 16 elements (two bytes) at a time. Included once per SIMD target.
#if defined(CRIMP_BIT_PLANE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CRIMP_BIT_PLANE_INL_H_
#undef CRIMP_BIT_PLANE_INL_H_
#else
#define CRIMP_BIT_PLANE_INL_H_
#endif
#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace crimp::bit_plane::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// mask_at(lane) gives the mask of the lanes that start at lane = 0, lanes, ... below 16.
template <class D, class MaskAt>
HWY_INLINE void store16(D d, std::uint8_t* to, MaskAt&& mask_at) {
  constexpr std::size_t lanes = hn::MaxLanes(D());
  static_assert(lanes == 4 || lanes == 8 || lanes == 16);
  if constexpr (lanes == 4) {
    for (std::size_t byte = 0; byte < 2; ++byte) {
      std::uint8_t low[8] = {}, high[8] = {};
      hn::StoreMaskBits(d, mask_at(8 * byte), low);
      hn::StoreMaskBits(d, mask_at(8 * byte + 4), high);
      to[byte] = static_cast<std::uint8_t>((low[0] & 15) | high[0] << 4);
    }
  } else {
    for (std::size_t lane = 0; lane < 16; lane += lanes) hn::StoreMaskBits(d, mask_at(lane), to + lane / 8);
  }
}

// The mask of the lanes that start at element `lane` (a multiple of the lanes, below 16) of the 16 whose bits stand at
// `from`.
template <class D>
HWY_INLINE hn::Mask<D> load16(D d, const std::uint8_t* from, std::size_t lane) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    const std::uint8_t byte[8] = {static_cast<std::uint8_t>(from[lane / 8] >> lane % 8 & 15)};
    return hn::LoadMaskBits(d, byte);
  } else {
    return hn::LoadMaskBits(d, from + lane / 8);
  }
}

}  // namespace crimp::bit_plane::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
