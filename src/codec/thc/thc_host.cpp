// THC on the host, a block of 1024 in L1 at a time: rotated, quantised, and for the residual rotated back. How fast
// each step is: crimp bench rotation.
#include <cmath>
#include <cstring>

#include "codec/coding/prefetch.hpp"
#include "codec/homomorphic.hpp"
#include "codec/registry.hpp"
#include "codec/thc/thc.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/thc/thc_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/thc/thc-inl.h"
#include "codec/thc/thc_quantizer-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::thc::HWY_NAMESPACE {

// Lanes j and j + half their number, and so on: WIRE_FORMAT.md, 4.23.
template <class D>
HWY_INLINE float tree_sum(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 1) {
    return hn::GetLane(v);
  } else {
    const hn::Half<D> half;
    return tree_sum(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Lane sums of squares, of vectors that are given in order.
struct Squares {
  Vf sum[kSumLanes / kN];
  HWY_INLINE Squares() {
    for (auto& s : sum) s = hn::Zero(Df());
  }
  HWY_INLINE void add(std::uint32_t lane, Vf a) {
    auto& s = sum[lane / kN];
    s = hn::Add(s, hn::Mul(a, a));
  }
  HWY_INLINE float total() const {
    constexpr std::uint32_t n = kSumLanes / kN;
    Vf v[n];
    for (std::uint32_t i = 0; i < n; ++i) v[i] = sum[i];
    for (std::uint32_t half = n / 2; half > 0; half /= 2)
      for (std::uint32_t i = 0; i < half; ++i) v[i] = hn::Add(v[i], v[i + half]);
    return tree_sum(Df(), v[0]);
  }
};

// Of d elements whose squares are summed; load(e) gives them again.
template <class Load>
HWY_INLINE float norm(std::uint32_t d, const Squares& squares, Load&& load) {
  float total = squares.total(), back = 1.0f;
  // Within these limits the largest magnitude is from kSmall to kLarge whatever it is: squares are at most the sum, and
  // at least a share of it.
  if (!(total >= 2 * kBlock * kSmall * kSmall && total < 0.5f * kLarge * kLarge)) {
    auto peak = hn::Zero(Df());
    for (std::uint32_t e = 0; e < d; e += kN) peak = hn::Max(peak, hn::Abs(load(e)));
    const float largest = hn::GetLane(hn::MaxOfLanes(Df(), peak));
    if (largest == 0.0f) return 0.0f;
    if (largest < kSmall || largest >= kLarge) {
      const float factor = largest < kSmall ? kUp : kDown;
      back = largest < kSmall ? kDown : kUp;
      Squares scaled;
      for (std::uint32_t e = 0; e < d; e += kN) scaled.add(e % kSumLanes, hn::Mul(load(e), hn::Set(Df(), factor)));
      total = scaled.total();
    }
  }
  const float norm = std::sqrt(total) * back;
  return norm < kLeastNorm ? 0.0f : norm < kMostNorm ? norm : kMostNorm;
}

// A block of a piece: where its elements are, tails padded with zeros.
struct Block {
  const float *values, *residual;
  std::uint32_t index, count, dimension;
  alignas(64) float padded[kBlock];
  HWY_INLINE void counter(const float* v, const float* r, std::uint64_t piece, std::uint32_t i) {
    index = i;
    const std::uint64_t at = std::uint64_t{i} * kBlock;
    count = static_cast<std::uint32_t>(piece - at < kBlock ? piece - at : kBlock);
    dimension = thc::dimension(count);
    values = v + at;
    residual = r ? r + at : nullptr;
    if (count == dimension) return;
    for (std::uint32_t e = 0; e < count; ++e) padded[e] = residual ? values[e] + residual[e] : values[e];
    std::memset(padded + count, 0, (dimension - count) * sizeof(float));
    values = padded;
    residual = nullptr;
  }
  template <bool fed>  // residual is not null
  HWY_INLINE Vf load(std::uint32_t e) const {
    const Df df;
    const Vf v = hn::LoadU(df, values + e);
    return fed ? hn::Add(v, hn::LoadU(df, residual + e)) : v;
  }
  template <class Use>
  HWY_INLINE auto when_fed(Use&& use) const {
    return residual ? use(std::true_type()) : use(std::false_type());
  }
  // Element e of the next block, whose page processors do not open by themselves; a cache line. Its values are asked
  // for in one loop and its residual in another: at once they would be more lines than can be under way.
  HWY_INLINE void prefetch_values(std::uint32_t e) const { prefetch<3>(values + e, kBlock * sizeof(float)); }
  HWY_INLINE void prefetch_residual(std::uint32_t e) const { prefetch<3>(residual + e, kBlock * sizeof(float)); }
};

// y = H D a; returns the norm of a, or 0 where it is not wanted.
template <bool with_norm, bool fed>
HWY_INLINE float rotate_as(const Block& block, const Signs& signs, float* y) {
  Squares squares;
  walsh_hadamard(
      block.dimension,
      [&](std::uint32_t tile, std::uint32_t i) CRIMP_STEP {
        const Vf a = block.load<fed>(tile + i);
        if constexpr (fed) block.prefetch_residual(tile + i);
        if constexpr (with_norm) squares.add(i % kSumLanes, a);
        return signs.apply(block.index, tile, i, a);
      },
      y);
  if constexpr (!with_norm) return 0.0f;
  return norm(block.dimension, squares, [&](std::uint32_t e) CRIMP_STEP { return block.load<fed>(e); });
}
template <bool with_norm>
HWY_NOINLINE float rotate_block(const Block& block, const Signs& signs, float* y) {
  return block.when_fed([&](auto fed)
                            CRIMP_STEP { return rotate_as<with_norm, decltype(fed)::value>(block, signs, y); });
}

template <int bits, bool wide>
HWY_INLINE void quantize_tiles(const Tables& t, const float* y, const Block& block, float norm,
                               const RandomCounter& counter, std::uint8_t* bytes) {
  const Quantizer<wide> quantizer(t, norm);
  const dither::HWY_NAMESPACE::Tiles dither(counter, dither::kRounding);
  V32 random[2][dither::kLanes / kN][8];
  for (std::uint32_t tile = 0; tile < block.dimension / dither::kTile;
       ++tile, y += dither::kTile, bytes += bits * dither::kTile / 8) {
#pragma GCC unroll 8
    for (std::uint32_t line = 0; line < dither::kTile; line += 64 / sizeof(float))
      block.prefetch_values(tile * dither::kTile + line);
    if (tile % 2 == 0)
      dither.template draw<2>(block.index * (kBlock / dither::kTile) + tile,
                              [&](std::uint32_t i, std::size_t half, std::size_t lane, V32 bits16)
                                  CRIMP_STEP { random[i][lane / kN][half] = bits16; });
    for (std::uint32_t lane = 0; lane < dither::kLanes; lane += kN) {
      hn::Vec<Di> fixed[8];
      quantizer(y + lane, random[tile % 2][lane / kN], fixed);
      pack_indices<bits>(fixed, bytes + lane);
    }
  }
}

template <int bits>
HWY_NOINLINE void quantize_block(const Tables& t, const float* y, const Block& block, float norm,
                                 const RandomCounter& counter, std::uint8_t* bytes) {
  if (HWY_TARGET > HWY_AVX2 || t.granularity < 32)
    return quantize_tiles<bits, false>(t, y, block, norm, counter, bytes);
  quantize_tiles<bits, true>(t, y, block, norm, counter, bytes);
}

// Calls use(e, d) with the decoded values of a block.
template <int bits, class Use>
HWY_INLINE void decode_block(const Tables& t, const Signs& signs, std::uint32_t index, std::uint32_t d, float norm,
                             const std::uint8_t* bytes, Use&& use) {
  const Vf unit = hn::Set(Df(), norm * t.unit / static_cast<float>(d));
  const auto give = [&](std::uint32_t tile, std::uint32_t i, Vf h)
                        CRIMP_STEP { use(tile + i, signs.apply(index, tile, i, hn::Mul(h, unit))); };
  if (d == kBlock) return unrotate_block<bits>(t, std::integral_constant<std::uint32_t, kBlock>(), bytes, give);
  unrotate_block<bits>(t, d, bytes, give);
}

void Rotate(const float* values, const float* residual, std::uint64_t count, const RandomCounter& counter,
            float* rotated, float* norms) {
  const std::uint32_t n = blocks(count);
  const Signs signs(counter, n);
  alignas(64) float y[kBlock];
  Block block;
  for (std::uint32_t b = 0; b < n; ++b) {
    block.counter(values, residual, count, b);
    norms[b] = rotate_block<true>(block, signs, y);
    std::memcpy(rotated + std::uint64_t{b} * kBlock, y, block.dimension * sizeof(float));
  }
}

void Norms(const float* values, const float* residual, std::uint64_t count, float* norms) {
  Block block;
  for (std::uint32_t b = 0; b < blocks(count); ++b) {
    block.counter(values, residual, count, b);
    norms[b] = block.when_fed([&](auto fed) CRIMP_STEP {
      Squares squares;
      const auto load = [&](std::uint32_t e) CRIMP_STEP { return block.load<decltype(fed)::value>(e); };
      for (std::uint32_t e = 0; e < block.dimension; e += kSumLanes)
        for (std::uint32_t lane = 0; lane < kSumLanes; lane += kN) squares.add(lane, load(e + lane));
      return norm(block.dimension, squares, load);
    });
  }
}

// to = a - decoded for a block.
template <int bits>
HWY_NOINLINE void keep_rest(const Tables& t, const Signs& signs, const Block& block, float norm,
                            const std::uint8_t* indices, float* to) {
  block.when_fed([&](auto fed) CRIMP_STEP {
    decode_block<bits>(t, signs, block.index, block.dimension, norm, indices, [&](std::uint32_t e, Vf d) CRIMP_STEP {
      hn::StoreU(hn::Sub(block.load<decltype(fed)::value>(e), d), Df(), to + e);
    });
  });
}

// With shared norms these come from `norms`, else the blocks' own go there.
template <int bits, bool shared>
HWY_INLINE void encode(const Tables& t, const PieceSource& piece,
                       std::conditional_t<shared, const std::uint8_t*, std::uint8_t*> norms, std::uint8_t* indices) {
  const std::uint32_t n = blocks(piece.count);
  const Signs signs(piece.counter, n);
  alignas(64) float y[kBlock];
  Block block;
  for (std::uint32_t b = 0; b < n; ++b, indices += block.dimension * bits / 8) {
    block.counter(piece.values, piece.residual_in, piece.count, b);
    float* out = piece.residual_out ? piece.residual_out + std::uint64_t{b} * kBlock : nullptr;
    float norm;
    if constexpr (shared) {
      std::memcpy(&norm, norms + b * sizeof norm, sizeof norm);
      if (norm != 0.0f) rotate_block<false>(block, signs, y);
    } else {
      norm = rotate_block<true>(block, signs, y);
      std::memcpy(norms + b * sizeof norm, &norm, sizeof norm);
    }
    if (norm == 0.0f) {
      std::memset(indices, 0, block.dimension * bits / 8);
      for (std::uint32_t e = 0; out && e < block.count; ++e)
        out[e] = block.residual ? block.values[e] + block.residual[e] : block.values[e];
      continue;
    }
    quantize_block<bits>(t, y, block, norm, piece.counter, indices);
    if (!out) continue;
    float* const to = block.count < block.dimension ? y : out;
    keep_rest<bits>(t, signs, block, norm, indices, to);
    if (to != out) std::memcpy(out, y, block.count * sizeof(float));
  }
}

template <int bits>
HWY_INLINE void decode_add(const Tables& t, const std::uint8_t* bytes, std::uint64_t count,
                           const RandomCounter& counter, float* acc) {
  const Df df;
  const std::uint32_t n = blocks(count);
  const Signs signs(counter, n);
  const std::uint8_t* indices = bytes + n * sizeof(float);
  alignas(64) float tail[kBlock];
  for (std::uint32_t b = 0; b < n; ++b, acc += kBlock) {
    const std::uint64_t rest = count - std::uint64_t{b} * kBlock;
    const std::uint32_t d = dimension(rest);
    float norm;
    std::memcpy(&norm, bytes + b * sizeof norm, sizeof norm);
    for (std::uint32_t line = 0; line < d * bits / 8; line += 64) prefetch(indices + line, kPieceElements * bits / 8);
    float* const to = rest < d ? tail : acc;
    if (to != acc)
      std::memcpy(tail, acc, rest * sizeof(float)), std::memset(tail + rest, 0, (d - rest) * sizeof(float));
    if (norm != 0.0f)
      decode_block<bits>(t, signs, b, d, norm, indices, [&](std::uint32_t e, Vf v) CRIMP_STEP {
        if (HWY_TARGET <= HWY_AVX2 && e % 16 == 0) prefetch(acc + e, kPieceElements * sizeof(float));
        hn::StoreU(hn::Add(hn::LoadU(df, to + e), v), df, to + e);
      });
    if (to != acc) std::memcpy(acc, tail, rest * sizeof(float));
    indices += d * bits / 8;
  }
}

void Encode(const Tables& t, const PieceSource& piece, std::uint8_t* bytes) {
  std::uint8_t* const indices = bytes + blocks(piece.count) * sizeof(float);
  if (t.bits == 4) return encode<4, false>(t, piece, bytes, indices);
  if (t.bits == 3) return encode<3, false>(t, piece, bytes, indices);
  encode<2, false>(t, piece, bytes, indices);
}

void EncodeShared(const Tables& t, const PieceSource& piece, const float* norms, std::uint8_t* indices) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(norms);
  if (t.bits == 4) return encode<4, true>(t, piece, bytes, indices);
  if (t.bits == 3) return encode<3, true>(t, piece, bytes, indices);
  encode<2, true>(t, piece, bytes, indices);
}

void DecodeAdd(const Tables& t, const std::uint8_t* bytes, std::uint64_t count, const RandomCounter& counter,
               float* acc) {
  if (t.bits == 4) return decode_add<4>(t, bytes, count, counter, acc);
  if (t.bits == 3) return decode_add<3>(t, bytes, count, counter, acc);
  decode_add<2>(t, bytes, count, counter, acc);
}

}  // namespace crimp::thc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace thc {
HWY_EXPORT(Rotate);
HWY_EXPORT(Encode);
HWY_EXPORT(DecodeAdd);
HWY_EXPORT(Norms);
HWY_EXPORT(EncodeShared);

void rotate(const float* values, const float* residual, std::uint64_t count, const RandomCounter& counter,
            float* rotated, float* norms) {
  HWY_DYNAMIC_DISPATCH(Rotate)(values, residual, count, counter, rotated, norms);
}

class Thc final : public Codec, private Homomorphic {
 public:
  explicit Thc(const SpecValues& values) : tables_(tables_of(values)) {
    if (tables_.error < kMostError) return;
    traits_.memory = FeedbackKind::none;
    traits_.diverges_with_residual = true;
  }
  const Traits& traits() const override { return traits_; }
  std::uint32_t parameter_word() const override { return tables_.bits | tables_.granularity << 8 | tables_.clip << 16; }
  std::size_t piece_bound(std::uint64_t count) const override {
    return blocks(count) * sizeof(float) + index_bytes(count, tables_.bits);
  }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    HWY_DYNAMIC_DISPATCH(Encode)(tables_, piece, bytes);
    return piece_bound(piece.count);
  }

  const Homomorphic* homomorphic() const override { return this; }
  std::uint32_t norm_count(std::uint64_t count) const override { return blocks(count); }
  std::uint64_t coordinates(std::uint64_t count) const override { return thc::coordinates(count); }
  std::uint32_t index_bits() const override { return tables_.bits; }
  std::uint32_t granularity() const override { return tables_.granularity; }
  bool legal(float norm) const override {
    return (norm >= kLeastNorm && norm <= kMostNorm) || (norm == 0.0f && !std::signbit(norm));
  }
  void norms(const PieceSource& piece, float* to) const override {
    HWY_DYNAMIC_DISPATCH(Norms)(piece.values, piece.residual_in, piece.count, to);
  }
  void encode(const PieceSource& piece, const float* shared, std::uint8_t* indices) const override {
    HWY_DYNAMIC_DISPATCH(EncodeShared)(tables_, piece, shared, indices);
  }
  void add(const std::uint8_t* indices, std::uint64_t n, std::uint16_t* sums) const override {
    add_indices(tables_, indices, n, sums);
  }
  void decode(const std::uint16_t* sums, const float* shared, int ranks, std::uint64_t count,
              const RandomCounter& counter, float* out) const override {
    decode_sums(tables_, sums, shared, ranks, count, counter, out);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter& counter,
                        float* acc) const override {
    if (in.size() != piece_bound(count)) return false;
    const std::uint32_t n = blocks(count);
    for (std::uint32_t b = 0; b < n; ++b) {
      float norm;
      std::memcpy(&norm, in.data() + b * sizeof norm, sizeof norm);
      if (!legal(norm)) return false;
      if (norm != 0.0f) continue;
      const std::size_t begin = n * sizeof norm + std::size_t{b} * kBlock * tables_.bits / 8,
                        end = b + 1 < n ? begin + kBlock * tables_.bits / 8 : in.size();
      for (std::size_t i = begin; i < end; ++i)
        if (in[i] != 0) return false;
    }
    HWY_DYNAMIC_DISPATCH(DecodeAdd)(tables_, in.data(), count, counter, acc);
    return true;
  }

  static constexpr Traits kTraits{.name = "thc",
                                  .wire_id = 23,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kMaxMagnitude};

 private:
  static Tables tables_of(const SpecValues& values) {
    const std::uint32_t bits = values[kBits], g = values[kGranularity];
    if (g < (1u << bits) - 1 || (g > 31 && g % 2 != 0)) values.refuse(kGranularity);
    return make_tables(bits, g, values[kClipped]);
  }
  Tables tables_;
  Traits traits_ = kTraits;
};

}  // namespace thc

CodecEntry thc_entry() {
  return {
      {.summary = "rotated blocks with a norm each, non-uniform stochastic levels whose table values can be summed",
       .formula =
           "y = H D a / sqrt(1024); u = (y sqrt(1024) / |a| + t_p) g / (2 t_p), cut to [0, g]; i or i + 1 between T[i] <= u < T[i+1] at random; "
           "d = D H (T[i] - g/2) (2 t_p / g) |a| / 1024",
       .source = "THC: Li et al., NSDI 2024",
       .bits = "4.03 (bits=3: 3.03, bits=2: 2.03)",
       .use =
           "gradients whose every value matters. Because one rotated coordinate in `clip` is clipped, what is sent is 1 - 1/clip of the values on average: 3.1 % too "
           "small by default (0.7 % of the energy). The residual returns it; with memory=none take a larger clip. The only codec whose payloads are summed "
           "as integers (algorithm homomorphic). g=17 has less variance than the published g=30 and sums 15 ranks in a byte in place of 8; g=15 is a uniform quantiser, 2 % "
           "more variance, 17 ranks",
       .traits = thc::Thc::kTraits,
       .parameters = {thc::kBits, thc::kGranularity, thc::kClipped}},
      make_as<thc::Thc>};
}

}  // namespace crimp
#endif
