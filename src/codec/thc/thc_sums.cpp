// THC's integer sums on the host: table values of indices are added without being decoded, and what they add up to is
// rotated back once.
#include <cstring>

#include "codec/thc/thc.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/thc/thc_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/thc/thc-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::thc::HWY_NAMESPACE {

template <int bits>
HWY_INLINE void add_values(const Tables& t, const std::uint8_t* bytes, std::uint64_t coordinates, std::uint16_t* sums) {
  const D8 d8;
  const hn::RebindToUnsigned<D16> u16;
  const hn::Half<hn::RebindToUnsigned<D8>> half;
  const auto table = hn::LoadDup128(d8, reinterpret_cast<const std::int8_t*>(t.value));
  for (std::uint64_t at = 0; at < coordinates; at += kBlock, bytes += kBlock * bits / 8) {
    const std::uint32_t d = static_cast<std::uint32_t>(coordinates - at < kBlock ? coordinates - at : kBlock);
    const Indices<bits> indices(bytes, d);
    for (std::uint32_t e = 0; e < d; e += kN8) {
      const auto v = hn::BitCast(hn::RebindToUnsigned<D8>(), hn::TableLookupBytes(table, indices.at(e)));
      std::uint16_t* to = sums + at + e;
      hn::StoreU(hn::Add(hn::LoadU(u16, to), hn::PromoteTo(u16, hn::LowerHalf(half, v))), u16, to);
      hn::StoreU(hn::Add(hn::LoadU(u16, to + kN16), hn::PromoteTo(u16, hn::UpperHalf(half, v))), u16, to + kN16);
    }
  }
}

void AddValues(const Tables& t, const std::uint8_t* bytes, std::uint64_t coordinates, std::uint16_t* sums) {
  if (t.bits == 4) return add_values<4>(t, bytes, coordinates, sums);
  if (t.bits == 3) return add_values<3>(t, bytes, coordinates, sums);
  add_values<2>(t, bytes, coordinates, sums);
}

// Sums of many ranks leave 16 bits: floats, in the order of the encoder's rotation.
void DecodeSums(const Tables& t, const std::uint16_t* sums, const float* norms, int ranks, std::uint64_t count,
                const RandomCounter& counter, float* out) {
  const Df df;
  const Di di;
  const hn::Rebind<std::uint16_t, Df> u16;
  const std::uint32_t n = blocks(count);
  const Signs signs(counter, n);
  const bool odd = t.granularity % 2;
  const auto middle = hn::Set(di, static_cast<std::int32_t>(odd ? t.granularity : t.granularity / 2) * ranks);
  alignas(64) float y[kBlock];
  for (std::uint32_t b = 0; b < n; ++b, out += kBlock) {
    const std::uint64_t rest = count - std::uint64_t{b} * kBlock;
    const std::uint32_t d = dimension(rest);
    const std::size_t bytes = (rest < kBlock ? rest : kBlock) * sizeof(float);
    if (norms[b] == 0.0f) {
      std::memset(out, 0, bytes);
    } else {
      walsh_hadamard(
          d,
          [&](std::uint32_t tile, std::uint32_t i) CRIMP_STEP {
            auto s = hn::PromoteTo(di, hn::LoadU(u16, sums + tile + i));
            if (odd) s = hn::Add(s, s);
            return hn::ConvertTo(df, hn::Sub(s, middle));
          },
          y);
      const Vf unit = hn::Set(df, norms[b] * t.unit / static_cast<float>(d));
      float* const to = rest < d ? y : out;
      for (std::uint32_t e = 0; e < d; e += kN)
        hn::StoreU(signs.apply(b, e, e % dither::kTile, hn::Mul(hn::Load(df, y + e), unit)), df, to + e);
      if (to != out) std::memcpy(out, y, bytes);
    }
    sums += d;
  }
}

}  // namespace crimp::thc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp::thc {
namespace {
HWY_EXPORT(AddValues);
HWY_EXPORT(DecodeSums);
}  // namespace

void add_indices(const Tables& t, const std::uint8_t* indices, std::uint64_t coordinates, std::uint16_t* sums) {
  HWY_DYNAMIC_DISPATCH(AddValues)(t, indices, coordinates, sums);
}
void decode_sums(const Tables& t, const std::uint16_t* sums, const float* norms, int ranks, std::uint64_t count,
                 const RandomCounter& counter, float* out) {
  HWY_DYNAMIC_DISPATCH(DecodeSums)(t, sums, norms, ranks, count, counter, out);
}

}  // namespace crimp::thc
#endif
