// Statistics of a block, then, while it is in L1, tiles of 128 elements are quantised and packed.
#include "codec/uniform/uniform_host.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "codec/coding/bit_pack.hpp"
#include "codec/coding/dither.hpp"
#include "codec/coding/prefetch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/uniform/uniform_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/coding/bit_pack-inl.h"
#include "codec/coding/dither-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::uniform::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace packing = crimp::bit_pack::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Di = hn::RebindToSigned<Df>;
using Du = hn::RebindToUnsigned<Df>;

template <bool has_in, class D>
HWY_INLINE hn::Vec<D> load(D d, const float* values, const float* in, std::uint64_t i) {
  const auto v = hn::LoadU(d, values + i);
  if constexpr (has_in) return hn::Add(v, hn::LoadU(d, in + i));
  return v;
}

Extent Reach(const float* values, const float* in, std::uint64_t count) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  Extent e{std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
  std::uint64_t i = 0;
  const auto run = [&](auto has_in) HWY_ATTR {
    auto low = hn::Set(d, e.low), high = hn::Set(d, e.high), low2 = low, high2 = high;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
      const auto a = load<has_in>(d, values, in, i), b = load<has_in>(d, values, in, i + lanes);
      low = hn::Min(low, a);
      high = hn::Max(high, a);
      low2 = hn::Min(low2, b);
      high2 = hn::Max(high2, b);
    }
    e.low = hn::GetLane(hn::MinOfLanes(d, hn::Min(low, low2)));
    e.high = hn::GetLane(hn::MaxOfLanes(d, hn::Max(high, high2)));
  };
  in ? run(std::true_type()) : run(std::false_type());
  for (; i < count; ++i) {
    const float a = in ? values[i] + in[i] : values[i];
    e.low = a < e.low ? a : e.low;
    e.high = a > e.high ? a : e.high;
  }
  return {e.low + 0.0f, e.high + 0.0f};  // which of two zeros is the least differs between processors
}

// `all`: the sum and the peak too, not only the squares.
template <bool has_in, bool all>
HWY_INLINE Moments moments(const float* values, const float* in, std::uint64_t count) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  alignas(64) float sums[kSumLanes], squares[kSumLanes];
  const std::uint64_t whole = count / kSumLanes * kSumLanes;
  auto peak = hn::Zero(d), peak2 = peak;
  for (std::size_t lane = 0; lane < kSumLanes; lane += 4 * lanes) {
    auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0, square0 = sum0, square1 = sum0, square2 = sum0,
         square3 = sum0;
    for (std::uint64_t i = lane; i < whole; i += kSumLanes) {
      const auto add = [&](std::size_t at, auto& sum, auto& square, auto& top) HWY_ATTR {
        const auto a = load<has_in>(d, values, in, i + at * lanes);
        square = hn::Add(square, hn::Mul(a, a));
        if constexpr (all) {
          sum = hn::Add(sum, a);
          top = hn::Max(top, hn::Abs(a));
        }
      };
      add(0, sum0, square0, peak);
      add(1, sum1, square1, peak2);
      add(2, sum2, square2, peak);
      add(3, sum3, square3, peak2);
    }
    const auto store = [&](std::size_t at, auto sum, auto square) HWY_ATTR {
      hn::Store(sum, d, sums + lane + at * lanes);
      hn::Store(square, d, squares + lane + at * lanes);
    };
    store(0, sum0, square0);
    store(1, sum1, square1);
    store(2, sum2, square2);
    store(3, sum3, square3);
  }
  float largest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(peak, peak2)));
  for (std::uint64_t i = whole; i < count; ++i) {
    const float a = has_in ? values[i] + in[i] : values[i], size = std::fabs(a);
    sums[i - whole] += a;
    squares[i - whole] += a * a;
    largest = size > largest ? size : largest;
  }
  return {tree_sum(sums), tree_sum(squares), largest};
}

Moments Squares(const float* values, const float* in, std::uint64_t count) {
  return in ? moments<true, false>(values, in, count) : moments<false, false>(values, in, count);
}
Moments AllMoments(const float* values, const float* in, std::uint64_t count) {
  return in ? moments<true, true>(values, in, count) : moments<false, true>(values, in, count);
}

HWY_INLINE hn::Vec<Di> nearest(hn::Vec<Df> x) {
#if HWY_TARGET <= HWY_AVX3
  const hn::Full512<std::int32_t> d;  // |x| is below 2^31: no correction of what overflows
  return hn::Vec<decltype(d)>{_mm512_cvtps_epi32(x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return hn::Vec<Di>{_mm256_cvtps_epi32(x.raw)};
#else
  return hn::NearestInt(x);
#endif
}

template <bool has_in, bool has_out, Rounding rounding>
HWY_INLINE void quantize_tile(const float* values, const float* in, float* out, const Grid& grid, int offset,
                              const RandomCounter& counter, std::uint32_t tile, std::uint16_t* HWY_RESTRICT codes) {
  const Df d;
  const Di di;
  const hn::Rebind<std::uint16_t, Df> d16;
  const auto base = hn::Set(d, grid.base), step = hn::Set(d, grid.step), inverse = hn::Set(d, grid.inverse);
  const auto low = hn::Set(d, static_cast<float>(grid.lowest * 65536)),
             high = hn::Set(d, static_cast<float>(grid.highest * 65536));
  const auto shift = hn::Set(di, offset);
  const auto use = [&](std::size_t half, std::size_t lane, hn::Vec<Du> bits) HWY_ATTR {
    const std::size_t i = half * dither::kLanes + lane;
    const auto a = load<has_in>(d, values, in, i);
    auto x = a;
    if constexpr (rounding != Rounding::symmetric) x = hn::Sub(a, base);
    auto fixed = hn::Min(hn::Mul(x, inverse), high);  // before it is whole: TernGrad's x may be any number
    if constexpr (rounding == Rounding::symmetric) fixed = hn::Max(fixed, low);
    const auto q = hn::ShiftRight<16>(hn::Add(nearest(fixed), hn::BitCast(di, bits)));
    auto code = q;
    if constexpr (rounding == Rounding::symmetric) code = hn::Add(q, shift);
    hn::StoreU(hn::DemoteTo(d16, code), d16, codes + i);
    if constexpr (has_out) {
      auto decoded = hn::Mul(hn::ConvertTo(d, q), step);
      if constexpr (rounding != Rounding::symmetric) decoded = hn::Add(base, decoded);
      hn::StoreU(hn::Sub(a, decoded), d, out + i);
    }
  };
  if constexpr (rounding == Rounding::nearest) {
    for (std::size_t half = 0; half < bit_pack::kPerLane; ++half)
      for (std::size_t lane = 0; lane < dither::kLanes; lane += hn::Lanes(d)) use(half, lane, hn::Set(Du(), 32768));
  } else {
    crimp::dither::HWY_NAMESPACE::for_tile(counter, dither::kRounding, tile, use);
  }
}

template <bool has_in, bool has_out, Rounding rounding>
HWY_INLINE void encode_block(const Block& b, const RandomCounter& counter, std::uint8_t* bytes) {
  alignas(64) std::uint16_t codes[bit_pack::kTile];
  const auto pack_tile = packing::packer(b.bits);
  std::uint64_t at = 0;
  std::uint32_t tile = b.first_tile;
  for (; at + bit_pack::kTile <= b.count; at += bit_pack::kTile, bytes += bit_pack::kLanes * b.bits, ++tile) {
    if (b.ahead)
      for (std::size_t line = 0; line < bit_pack::kTile; line += 16) {
        prefetch(b.values + at + line, b.ahead * sizeof(float));
        if constexpr (has_in) prefetch(b.in + at + line, b.ahead * sizeof(float));
      }
    quantize_tile<has_in, has_out, rounding>(b.values + at, b.in + (has_in ? at : 0), b.out + (has_out ? at : 0),
                                             b.grid, b.offset, counter, tile, codes);
    pack_tile(codes, bytes);
  }
  const std::uint64_t rest = b.count - at;
  if (rest == 0) return;
  alignas(64) float values[bit_pack::kTile] = {}, in[bit_pack::kTile] = {}, out[bit_pack::kTile];
  std::memcpy(values, b.values + at, rest * sizeof(float));
  if constexpr (has_in) std::memcpy(in, b.in + at, rest * sizeof(float));
  quantize_tile<has_in, has_out, rounding>(values, in, out, b.grid, b.offset, counter, tile, codes);
  if constexpr (has_out) std::memcpy(b.out + at, out, rest * sizeof(float));
  bit_pack::pack(codes, static_cast<std::uint32_t>(rest), static_cast<std::uint32_t>(b.bits), bytes);
}

template <Rounding rounding>
HWY_INLINE void encode_with(const Block& b, const RandomCounter& counter, std::uint8_t* bytes) {
  if (b.in && b.out) return encode_block<true, true, rounding>(b, counter, bytes);
  if (b.in) return encode_block<true, false, rounding>(b, counter, bytes);
  if (b.out) return encode_block<false, true, rounding>(b, counter, bytes);
  encode_block<false, false, rounding>(b, counter, bytes);
}
void EncodeBlock(const Block& b, const RandomCounter& counter, Rounding rounding, std::uint8_t* bytes) {
  switch (rounding) {
    case Rounding::symmetric: return encode_with<Rounding::symmetric>(b, counter, bytes);
    case Rounding::stochastic: return encode_with<Rounding::stochastic>(b, counter, bytes);
    case Rounding::nearest: return encode_with<Rounding::nearest>(b, counter, bytes);
  }
}

// The same tile of the next piece, of which there are kPieceElements / 8 * bits bytes.
template <int bits>
HWY_INLINE void prefetch_tile(const std::uint8_t* bytes) {
  for (std::size_t at = 0; at < bit_pack::kLanes * bits; at += 64) prefetch(bytes + at, kPieceElements / 8 * bits);
}

#if HWY_TARGET <= HWY_AVX3
// Up to 16 levels are looked up in a register: their values are those that arithmetic gives.
template <int bits>
HWY_INLINE void add_by_table(const std::uint8_t* HWY_RESTRICT bytes, std::uint64_t tiles, const Grid& grid, int offset,
                             float* HWY_RESTRICT acc) {
  alignas(64) float levels[16];
  for (int code = 0; code < 16; ++code) levels[code] = dequantize(code - offset, grid);
  const __m512 table = _mm512_load_ps(levels);
  for (; tiles > 0; --tiles, bytes += bit_pack::kLanes * bits, acc += bit_pack::kTile) {
    prefetch_tile<bits>(bytes);
    packing::unpack_tile<bits>(bytes, [&](std::size_t half, std::size_t, packing::V32 codes) HWY_ATTR {
      float* p = acc + half * bit_pack::kLanes;
      _mm512_storeu_ps(p, _mm512_add_ps(_mm512_loadu_ps(p), _mm512_permutexvar_ps(codes.raw, table)));
    });
  }
}
#endif

template <int bits, bool symmetric>
HWY_INLINE void add_tiles(const std::uint8_t* HWY_RESTRICT bytes, std::uint64_t tiles, const Grid& grid, int offset,
                          float* HWY_RESTRICT acc) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (bits <= 4) return add_by_table<bits>(bytes, tiles, grid, offset, acc);
#endif
  const Df d;
  const Di di;
  const auto base = hn::Set(d, grid.base), step = hn::Set(d, grid.step);
  const auto shift = hn::Set(di, offset);
  for (; tiles > 0; --tiles, bytes += bit_pack::kLanes * bits, acc += bit_pack::kTile) {
    prefetch_tile<bits>(bytes);
    packing::unpack_tile<bits>(bytes, [&](std::size_t half, std::size_t lane, packing::V32 codes) HWY_ATTR {
      float* p = acc + half * bit_pack::kLanes + lane;
      auto q = hn::BitCast(di, codes);
      if constexpr (symmetric) q = hn::Sub(q, shift);
      auto decoded = hn::Mul(hn::ConvertTo(d, q), step);
      if constexpr (!symmetric) decoded = hn::Add(base, decoded);
      hn::StoreU(hn::Add(hn::LoadU(d, p), decoded), d, p);
    });
  }
}

template <int bits>
HWY_INLINE bool all_below(const std::uint8_t* HWY_RESTRICT bytes, std::uint64_t tiles, std::uint32_t most) {
  const packing::D32 d;
  auto top = hn::Zero(d);
  if constexpr (bits == 8) {
    const hn::CappedTag<std::uint8_t, bit_pack::kTile> d8;
    auto top8 = hn::Zero(d8);
    for (std::uint64_t i = 0; i < tiles * bit_pack::kTile; i += hn::Lanes(d8))
      top8 = hn::Max(top8, hn::LoadU(d8, bytes + i));
    const auto limit = hn::Set(d8, static_cast<std::uint8_t>(most));
    return hn::AllTrue(d8, hn::Eq(hn::Max(top8, limit), limit));
  }
  for (; tiles > 0; --tiles, bytes += bit_pack::kLanes * bits)
    packing::unpack_tile<bits>(
        bytes, [&](std::size_t, std::size_t, packing::V32 codes) HWY_ATTR { top = hn::Max(top, codes); });
  const auto limit = hn::Set(d, most);
  return hn::AllTrue(d, hn::Eq(hn::Max(top, limit), limit));
}

// False where a code is beyond the grid or a bit behind the last element is set. symmetric: base is 0.
bool DecodeBlock(const std::uint8_t* HWY_RESTRICT bytes, std::uint64_t count, const Grid& grid, int bits, int offset,
                 float* HWY_RESTRICT acc) {
  const std::uint64_t tiles = count / bit_pack::kTile, at = tiles * bit_pack::kTile;
  const auto most = static_cast<std::uint32_t>(grid.highest + offset);
  bool legal = true;
  packing::with_bits(bits, [&](auto width) HWY_ATTR {
    if (most + 1 != 1u << width) legal = all_below<width>(bytes, tiles, most);
    if (offset != 0) {
      add_tiles<width, true>(bytes, tiles, grid, offset, acc);
    } else {
      add_tiles<width, false>(bytes, tiles, grid, offset, acc);
    }
  });
  bytes += tiles * bit_pack::kLanes * static_cast<std::uint32_t>(bits);
  const auto rest = static_cast<std::uint32_t>(count - at), width = static_cast<std::uint32_t>(bits),
             w = bit_pack::lanes(at, count);
  for (std::uint32_t i = 0; i < w * bit_pack::kPerLane; ++i) {
    const std::uint32_t code = bit_pack::unpack(bytes, w, width, i);
    legal = legal && code <= (i < rest ? most : 0);
    if (i < rest) acc[at + i] += dequantize(static_cast<std::int32_t>(code) - offset, grid);
  }
  return legal;
}

}  // namespace crimp::uniform::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp::uniform {
HWY_EXPORT(Reach);
HWY_EXPORT(Squares);
HWY_EXPORT(AllMoments);
HWY_EXPORT(EncodeBlock);
HWY_EXPORT(DecodeBlock);

Extent reach(const float* values, const float* in, std::uint64_t count) {
  return HWY_DYNAMIC_DISPATCH(Reach)(values, in, count);
}
Moments squares(const float* values, const float* in, std::uint64_t count) {
  return HWY_DYNAMIC_DISPATCH(Squares)(values, in, count);
}
Moments moments(const float* values, const float* in, std::uint64_t count) {
  return HWY_DYNAMIC_DISPATCH(AllMoments)(values, in, count);
}
void encode_block(const Block& block, const RandomCounter& counter, Rounding rounding, std::uint8_t* bytes) {
  HWY_DYNAMIC_DISPATCH(EncodeBlock)(block, counter, rounding, bytes);
}
bool decode_block(const std::uint8_t* bytes, std::uint64_t count, const Grid& grid, int bits, int offset, float* acc) {
  return HWY_DYNAMIC_DISPATCH(DecodeBlock)(bytes, count, grid, bits, offset, acc);
}

}  // namespace crimp::uniform
#endif
