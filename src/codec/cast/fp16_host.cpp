// fp16 on the host: the largest magnitude of a block, then, from L1, its values divided by the scale as float16.
#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/cast/fp16.hpp"
#include "codec/registry.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/cast/fp16_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/half-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::fp16::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace half = crimp::half::HWY_NAMESPACE;
using half::D16, half::Df, half::Half;
using Di = hn::RebindToSigned<Df>;

// Bits of the largest magnitude of a block; of NaN and Inf they are the largest of all.
template <bool has_in>
HWY_INLINE std::uint32_t largest(const float* values, const float* in, std::uint64_t count) {
  const Df d;
  const Di di;
  const std::size_t lanes = hn::Lanes(d);
  const auto bits_at = [&](std::uint64_t i) HWY_ATTR {
    auto a = hn::LoadU(d, values + i);
    if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, in + i));
    return hn::BitCast(di, hn::Abs(a));
  };
  auto top = hn::Zero(di), other = top;
  std::uint64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes) {
    top = hn::Max(top, bits_at(i));
    other = hn::Max(other, bits_at(i + lanes));
  }
  auto bits = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, hn::Max(top, other))));
  for (; i < count; ++i)
    bits = std::max(bits, std::bit_cast<std::uint32_t>(has_in ? values[i] + in[i] : values[i]) & 0x7fffffff);
  return bits;
}

// One block; returns its scale byte.
template <bool has_in, bool has_out>
HWY_INLINE std::uint8_t encode(const float* values, const float* in, float* out, std::uint64_t count,
                               std::uint8_t* HWY_RESTRICT codes) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  const std::uint8_t scale = scale_byte(largest<has_in>(values, in, count));
  const auto up = hn::Set(d, std::bit_cast<float>(scale_bits(scale))),
             down = hn::Set(d, std::bit_cast<float>(inverse_bits(scale)));
  const auto one = [&](const float* from, const float* more, float* rest, std::uint8_t* to) HWY_ATTR {
    auto a = hn::LoadU(d, from);
    if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, more));
    const auto code = Half::encode(hn::Mul(a, down));
    hn::StoreU(code, D16(), reinterpret_cast<std::uint16_t*>(to));
    if constexpr (has_out) hn::StoreU(hn::Sub(a, hn::Mul(Half::decode(code), up)), d, rest);
  };
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes) one(values + i, has_in ? in + i : in, has_out ? out + i : out, codes + 2 * i);
  if (i == count) return scale;
  const std::uint64_t left = count - i;
  float from[16] = {}, more[16] = {}, rest[16];
  std::uint8_t to[32];
  std::memcpy(from, values + i, left * sizeof(float));
  if constexpr (has_in) std::memcpy(more, in + i, left * sizeof(float));
  one(from, more, rest, to);
  std::memcpy(codes + 2 * i, to, 2 * left);
  if constexpr (has_out) std::memcpy(out + i, rest, left * sizeof(float));
  return scale;
}

template <bool has_in, bool has_out>
HWY_INLINE void encode_blocks(const float* values, const float* in, float* out, std::uint32_t count,
                              std::uint8_t* bytes) {
  std::memset(bytes, 0, kBlocks);
  for (std::uint32_t b = 0, at = 0; at < count; ++b, at += kBlock)
    bytes[b] = encode<has_in, has_out>(values + at, has_in ? in + at : in, has_out ? out + at : out,
                                       std::min(kBlock, count - at), bytes + kBlocks + 2 * at);
}
void EncodePiece(const float* values, const float* in, float* out, std::uint32_t count, std::uint8_t* bytes) {
  if (in && out) return encode_blocks<true, true>(values, in, out, count, bytes);
  if (in) return encode_blocks<true, false>(values, in, out, count, bytes);
  if (out) return encode_blocks<false, true>(values, in, out, count, bytes);
  encode_blocks<false, false>(values, in, out, count, bytes);
}

HWY_INLINE void add_block(std::uint8_t scale, const std::uint8_t* HWY_RESTRICT codes, std::uint32_t count,
                          float* HWY_RESTRICT acc) {
  const Df d;
  const std::uint32_t lanes = static_cast<std::uint32_t>(hn::Lanes(d));
  const auto up = hn::Set(d, std::bit_cast<float>(scale_bits(scale)));
  const auto add = [&](const std::uint8_t* from, float* to) HWY_ATTR {
    const auto code = hn::LoadU(D16(), reinterpret_cast<const std::uint16_t*>(from));
    hn::StoreU(hn::Add(hn::LoadU(d, to), hn::Mul(Half::decode(code), up)), d, to);
  };
  std::uint32_t i = 0;
  for (; i + lanes <= count; i += lanes) add(codes + 2 * i, acc + i);
  if (i == count) return;
  std::uint8_t from[32] = {};
  float sums[16] = {};
  std::memcpy(from, codes + 2 * i, 2 * (count - i));
  std::memcpy(sums, acc + i, (count - i) * sizeof(float));
  add(from, sums);
  std::memcpy(acc + i, sums, (count - i) * sizeof(float));
}
void AddPiece(const std::uint8_t* bytes, std::uint32_t count, float* acc) {
  for (std::uint32_t b = 0, at = 0; at < count; ++b, at += kBlock)
    add_block(bytes[b], bytes + kBlocks + 2 * at, std::min(kBlock, count - at), acc + at);
}

}  // namespace crimp::fp16::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace fp16 {
namespace {
HWY_EXPORT(EncodePiece);
HWY_EXPORT(AddPiece);

class Fp16 final : public Codec {
 public:
  explicit Fp16(const SpecValues&) {}
  const Traits& traits() const override { return kTraits; }
  std::size_t piece_bound(std::uint64_t count) const override { return kBlocks + 2 * count; }

  std::size_t encode_piece(const PieceSource& p, std::uint8_t* bytes) const override {
    HWY_DYNAMIC_DISPATCH(EncodePiece)
    (p.values, p.residual_in, p.residual_out, static_cast<std::uint32_t>(p.count), bytes);
    return piece_bound(p.count);
  }
  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t elements, const RandomCounter&,
                        float* acc) const override {
    if (in.size() != piece_bound(elements)) return false;
    const auto count = static_cast<std::uint32_t>(elements);
    for (std::uint32_t b = 0; b < kBlocks; ++b)
      if (!legal(in[b], b, count)) return false;
    HWY_DYNAMIC_DISPATCH(AddPiece)(in.data(), count, acc);
    return true;
  }

  // Every float has a scale: nothing is too small.
  static constexpr Traits kTraits{.name = "fp16",
                                  .wire_id = 2,
                                  .fixed_size = true,
                                  .biased = false,
                                  .memory = FeedbackKind::none,
                                  .max_magnitude = 0x1p100f,
                                  .min_magnitude = 0.0f,
                                  .summable = true};
};

}  // namespace
}  // namespace fp16

CodecEntry fp16_entry() {
  return {{.summary = "float16 with a power of two per 1280 elements, rounded to nearest even, summed in float32",
           .formula = "scale = the least power of two with max|a| / scale <= 65504, d = scale * half(a / scale)",
           .source = "IEEE 754 binary16",
           .bits = "16 and 8 bytes a piece: 16.006",
           .use = "a safe factor of 2 for values of any size; what buffers of unknown tensors get",
           .traits = fp16::Fp16::kTraits},
          make_as<fp16::Fp16>};
}

}  // namespace crimp
#endif
