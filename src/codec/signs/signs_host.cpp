// The 1-bit methods on the host. The first pass over a piece packs the signs and sums the two classes; only a residual
// needs a second one, from L2.
#include "codec/signs/signs.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/registry.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/signs/signs_host.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/coding/bit_plane-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::signs::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using bit_plane::HWY_NAMESPACE::load16;
using bit_plane::HWY_NAMESPACE::store16;

constexpr std::size_t kLanes = hn::MaxLanes(Df()), kVectors = kSumLanes / kLanes;

// sums[0..64): the lanes of the negatives, sums[64..128): of the rest; null: not wanted.
template <bool has_in, bool has_sums>
HWY_INLINE void pack(const float* values, const float* in, std::uint64_t count, std::uint8_t* plane, float* sums) {
  const Df d;
  const auto zero = hn::Zero(d);
  hn::Vec<Df> negatives[kVectors], rest[kVectors];
  for (std::size_t k = 0; k < kVectors; ++k) negatives[k] = rest[k] = zero;
  // 64 elements from v (+ r) to eight bytes at `to`.
  const auto stripe = [&](const float* v, const float* r, std::uint8_t* to) HWY_ATTR {
    for (std::size_t part = 0; part < kSumLanes; part += 16)
      store16(d, to + part / 8, [&](std::size_t lane) HWY_ATTR {
        const std::size_t i = part + lane;
        auto a = hn::LoadU(d, v + i);
        if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, r + i));
        const auto negative = hn::Lt(a, zero);
        if constexpr (has_sums) {
          const std::size_t k = i / kLanes;
          negatives[k] = hn::Add(negatives[k], hn::IfThenElseZero(negative, a));
          rest[k] = hn::Add(rest[k], hn::IfThenZeroElse(negative, a));
        }
        return negative;
      });
  };
  std::uint64_t at = 0;
  for (; at + kSumLanes <= count; at += kSumLanes) stripe(values + at, in + at, plane + at / 8);
  if (at < count) {  // zeros add nothing and their bits are clear
    HWY_ALIGN float v[kSumLanes] = {}, r[kSumLanes] = {};
    std::uint8_t bits[kSumLanes / 8];
    std::memcpy(v, values + at, (count - at) * sizeof(float));
    if constexpr (has_in) std::memcpy(r, in + at, (count - at) * sizeof(float));
    stripe(v, r, bits);
    std::memcpy(plane + at / 8, bits, bit_plane::bytes_of(count - at));
  }
  if constexpr (has_sums)
    for (std::size_t k = 0; k < kVectors; ++k) {
      hn::StoreU(negatives[k], d, sums + k * kLanes);
      hn::StoreU(rest[k], d, sums + kSumLanes + k * kLanes);
    }
}

void Pack(const float* values, const float* in, std::uint64_t count, std::uint8_t* plane, float* sums) {
  if (in && sums) return pack<true, true>(values, in, count, plane, sums);
  if (in) return pack<true, false>(values, in, count, plane, sums);
  if (sums) return pack<false, true>(values, values, count, plane, sums);
  pack<false, false>(values, values, count, plane, sums);
}

// The planes of votes; returns whether there is a zero. Where there is none the second one is all zeros.
template <bool has_in>
HWY_INLINE bool pack_votes(const float* values, const float* in, std::uint64_t count, std::uint8_t* plane,
                           std::uint8_t* zeros) {
  const Df d;
  const auto zero = hn::Zero(d);
  std::uint64_t any = 0;
  const auto stripe = [&](const float* v, const float* r, std::uint8_t* to, std::uint8_t* to_zeros) HWY_ATTR {
    for (std::size_t part = 0; part < kSumLanes; part += 16) {
      const auto a_at = [&](std::size_t lane) HWY_ATTR {
        auto a = hn::LoadU(d, v + part + lane);
        if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, r + part + lane));
        return a;
      };
      store16(d, to + part / 8, [&](std::size_t lane) HWY_ATTR { return hn::Lt(a_at(lane), zero); });
      store16(d, to_zeros + part / 8, [&](std::size_t lane) HWY_ATTR { return hn::Eq(a_at(lane), zero); });
    }
    std::uint64_t bits;
    std::memcpy(&bits, to_zeros, sizeof bits);
    any |= bits;
  };
  std::uint64_t at = 0;
  for (; at + kSumLanes <= count; at += kSumLanes) stripe(values + at, in + at, plane + at / 8, zeros + at / 8);
  if (at < count) {  // ones are neither negative nor zero
    HWY_ALIGN float v[kSumLanes], r[kSumLanes] = {};
    for (float& x : v) x = 1.0f;
    std::uint8_t bits[kSumLanes / 8], zero_bits[kSumLanes / 8];
    std::memcpy(v, values + at, (count - at) * sizeof(float));
    if constexpr (has_in) std::memcpy(r, in + at, (count - at) * sizeof(float));
    stripe(v, r, bits, zero_bits);
    std::memcpy(plane + at / 8, bits, bit_plane::bytes_of(count - at));
    std::memcpy(zeros + at / 8, zero_bits, bit_plane::bytes_of(count - at));
  }
  return any != 0;
}

bool PackVotes(const float* values, const float* in, std::uint64_t count, std::uint8_t* plane, std::uint8_t* zeros) {
  return in ? pack_votes<true>(values, in, count, plane, zeros)
            : pack_votes<false>(values, values, count, plane, zeros);
}

void AddVotes(const std::uint8_t* plane, const std::uint8_t* zeros, std::uint64_t count, float* acc) {
  const Df d;
  const auto set = hn::Set(d, -1.0f), clear = hn::Set(d, 1.0f);
  std::uint64_t at = 0;
  for (; at + 16 <= count; at += 16)
    for (std::size_t lane = 0; lane < 16; lane += kLanes) {
      float* const p = acc + at + lane;
      const auto vote = hn::IfThenElse(load16(d, plane + at / 8, lane), set, clear);
      hn::StoreU(hn::Add(hn::LoadU(d, p), hn::IfThenZeroElse(load16(d, zeros + at / 8, lane), vote)), d, p);
    }
  for (; at < count; ++at) acc[at] += vote(bit_plane::get(plane, at), bit_plane::get(zeros, at));
}

template <bool has_in>
HWY_INLINE void subtract(const float* values, const float* in, float* out, std::uint64_t count, Levels levels) {
  const Df d;
  const auto zero = hn::Zero(d), set = hn::Set(d, -levels.m0), clear = hn::Set(d, levels.m1);
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    auto a = hn::LoadU(d, values + i);
    if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, in + i));
    hwy::Prefetch(values + count + i);  // the next piece, so that its first pass finds it in L2
    if constexpr (has_in) hwy::Prefetch(in + count + i);
    hn::StoreU(hn::Sub(a, hn::IfThenElse(hn::Lt(a, zero), set, clear)), d, out + i);
  }
  for (; i < count; ++i) {
    const float a = has_in ? values[i] + in[i] : values[i];
    out[i] = a - decode(a < 0.0f, levels);
  }
}

void Subtract(const float* values, const float* in, float* out, std::uint64_t count, Levels levels) {
  if (in) return subtract<true>(values, in, out, count, levels);
  subtract<false>(values, in, out, count, levels);
}

void AddDecoded(const std::uint8_t* plane, std::uint64_t count, Levels levels, float* acc) {
  const Df d;
  const auto set = hn::Set(d, -levels.m0), clear = hn::Set(d, levels.m1);
  std::uint64_t at = 0;
  for (; at + 16 <= count; at += 16)
    for (std::size_t lane = 0; lane < 16; lane += kLanes) {
      float* const p = acc + at + lane;
      hn::StoreU(hn::Add(hn::LoadU(d, p), hn::IfThenElse(load16(d, plane + at / 8, lane), set, clear)), d, p);
    }
  for (; at < count; ++at) acc[at] += decode(bit_plane::get(plane, at), levels);
}

void Vote(float* acc, std::uint64_t count, float ranks) {
  const Df d;
  const auto zero = hn::Zero(d), up = hn::Set(d, ranks), down = hn::Set(d, -ranks);
  std::uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto sum = hn::LoadU(d, acc + i);
    hn::StoreU(hn::IfThenElse(hn::Lt(sum, zero), down, hn::IfThenElseZero(hn::Gt(sum, zero), up)), d, acc + i);
  }
  for (; i < count; ++i) acc[i] = majority(acc[i], ranks);
}

}  // namespace crimp::signs::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace signs {
HWY_EXPORT(Pack);
HWY_EXPORT(Subtract);
HWY_EXPORT(AddDecoded);
HWY_EXPORT(Vote);
HWY_EXPORT(PackVotes);
HWY_EXPORT(AddVotes);

// 1bit and efsignsgd.
class Signs final : public Codec {
 public:
  Signs(Scales scales, const Traits& traits, bool tensor = false) : scales_(scales), traits_(traits) {
    traits_.selects = tensor;
  }
  const Traits& traits() const override { return traits_; }
  std::size_t piece_bound(std::uint64_t count) const override { return scale_bytes() + bit_plane::bytes_of(count); }

  // Of efsignsgd alone: the mean of |a| of the group.
  Selection select(const float* values, const float* residual, std::uint64_t count,
                   const RandomCounter&) const override {
    alignas(64) float sums[2 * kSumLanes];
    std::uint8_t plane[kPieceElements / 8];
    double sum = 0;
    for (std::uint64_t at = 0; at < count; at += kPieceElements) {
      HWY_DYNAMIC_DISPATCH(Pack)
      (values + at, residual ? residual + at : nullptr, std::min(kPieceElements, count - at), plane, sums);
      sum += static_cast<double>(tree_sum(sums + kSumLanes) - tree_sum(sums));
    }
    return {.scale = static_cast<float>(std::min(sum / static_cast<double>(count), static_cast<double>(kMostScale)))};
  }
  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    alignas(64) float sums[2 * kSumLanes];
    std::uint8_t* const plane = bytes + scale_bytes();
    HWY_DYNAMIC_DISPATCH(Pack)(piece.values, piece.residual_in, piece.count, plane, sums);
    const float negatives = tree_sum(sums), rest = tree_sum(sums + kSumLanes);
    const auto count = static_cast<std::uint32_t>(piece.count);
    Levels levels = scales_ == Scales::mean ? mean_magnitude(negatives, rest, count)
                                            : class_means(negatives, rest, set_bits(plane, count), count);
    if (traits_.selects) levels = {piece.selection.scale, piece.selection.scale};
    std::memcpy(bytes, &levels, scale_bytes());
    if (piece.residual_out)
      HWY_DYNAMIC_DISPATCH(Subtract)(piece.values, piece.residual_in, piece.residual_out, piece.count, levels);
    return piece_bound(piece.count);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    if (in.size() != piece_bound(count)) return false;
    const std::uint8_t* const plane = in.data() + scale_bytes();
    Levels levels{};
    std::memcpy(&levels, in.data(), scale_bytes());
    if (scales_ == Scales::mean) levels.m1 = levels.m0;
    for (const float m : {levels.m0, levels.m1})
      if (!std::isfinite(m) || std::signbit(m)) return false;
    if (!bit_plane::padded_with_zeros(plane, count)) return false;
    HWY_DYNAMIC_DISPATCH(AddDecoded)(plane, count, levels, acc);
    return true;
  }

 private:
  std::size_t scale_bytes() const { return static_cast<std::size_t>(scales_) * sizeof(float); }
  static std::uint32_t set_bits(const std::uint8_t* plane, std::uint64_t count) {
    int bits = 0;
    std::uint64_t at = 0;
    const std::uint64_t n = bit_plane::bytes_of(count);
    for (; at + 8 <= n; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, plane + at, sizeof word);
      bits += std::popcount(word);
    }
    for (; at < n; ++at) bits += std::popcount(plane[at]);
    return static_cast<std::uint32_t>(bits);
  }

  Scales scales_;
  Traits traits_;
};

// signsgd and signum.
class Votes final : public Codec {
 public:
  explicit Votes(const Traits& traits) : traits_(traits) {}
  const Traits& traits() const override { return traits_; }
  std::size_t piece_bound(std::uint64_t count) const override { return 2 * bit_plane::bytes_of(count); }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    const std::size_t plane = bit_plane::bytes_of(piece.count);
    const bool zeros =
        HWY_DYNAMIC_DISPATCH(PackVotes)(piece.values, piece.residual_in, piece.count, bytes, bytes + plane);
    if (piece.residual_out)
      for (std::uint64_t i = 0; i < piece.count; ++i) {
        const float a = piece.residual_in ? piece.values[i] + piece.residual_in[i] : piece.values[i];
        piece.residual_out[i] = a - vote(a < 0.0f, a == 0.0f);
      }
    return zeros ? 2 * plane : plane;
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    const std::size_t plane = bit_plane::bytes_of(count);
    if (in.size() != plane && in.size() != 2 * plane) return false;
    const std::uint8_t* const zeros = in.data() + plane;
    if (!bit_plane::padded_with_zeros(in.data(), count)) return false;
    if (in.size() == plane) {
      HWY_DYNAMIC_DISPATCH(AddDecoded)(in.data(), count, {1.0f, 1.0f}, acc);
      return true;
    }
    if (!bit_plane::padded_with_zeros(zeros, count)) return false;
    for (std::size_t i = 0; i < plane; ++i)
      if (in[i] & zeros[i]) return false;
    HWY_DYNAMIC_DISPATCH(AddVotes)(in.data(), zeros, count, acc);
    return true;
  }

  void finish_piece(float* acc, std::uint64_t count, int ranks) const override {
    HWY_DYNAMIC_DISPATCH(Vote)(acc, count, static_cast<float>(ranks));
  }
  double error_of_two_encodings() const override { return 1; }  // the result has three values, and all of them are sent

 private:
  Traits traits_;
};

constexpr Codec::Traits kOneBit{.name = "1bit",
                                .wire_id = 9,
                                .fixed_size = true,
                                .biased = true,
                                .memory = FeedbackKind::residual,
                                .max_magnitude = kMaxMagnitude};
constexpr Codec::Traits kEfSign{.name = "efsignsgd",
                                .wire_id = 12,
                                .fixed_size = true,
                                .biased = true,
                                .memory = FeedbackKind::residual,
                                .max_magnitude = kMaxMagnitude};
constexpr Codec::Traits voting(const char* name, std::uint8_t wire_id, FeedbackKind memory) {
  return {.name = name,
          .wire_id = wire_id,
          .fixed_size = false,
          .biased = true,
          .memory = memory,
          .max_magnitude = kMaxMagnitude,
          .min_magnitude = 0.0f,  // a sign has none
          .votes = true,
          .diverges_with_residual = true};
}
constexpr Codec::Traits kSign = voting("signsgd", 10, FeedbackKind::none),
                        kSignum = voting("signum", 11, FeedbackKind::average);

}  // namespace signs

CodecEntry onebit_entry() {
  return {
      {.summary = "the sign and, per piece, the means of the negatives and of the rest",
       .formula = "d = mean of the negative a of the piece where a < 0, else mean of the others",
       .source = "1-bit SGD: Seide, Fu, Droppo, Li, Yu, Interspeech 2014",
       .bits = "1.01",
       .use = "slow networks; dense gradients of one magnitude. Zeros are not kept: sparse gradients suit 3lc better",
       .traits = signs::kOneBit},
      [](const SpecValues&) -> std::shared_ptr<Codec> {
        return std::make_shared<signs::Signs>(signs::Scales::class_means, signs::kOneBit);
      }};
}

CodecEntry signsgd_entry() {
  return {
      {.summary = "the sign; the result is the majority of the ranks",
       .formula = "d = sign(a): -1, 0 or +1; result = ranks * sign(sum of d), a tie is 0",
       .source = "SignSGD with majority vote: Bernstein et al., ICML 2018",
       .bits = "1, 2 in pieces with zeros (which are no votes)",
       .use =
           "with a learning rate made for it: every element of the averaged result is -1, 0 or +1, whatever the gradient's size",
       .traits = signs::kSign},
      [](const SpecValues&) -> std::shared_ptr<Codec> { return std::make_shared<signs::Votes>(signs::kSign); }};
}

CodecEntry signum_entry() {
  return {{.summary = "SignSGD of each rank's running average of its gradients",
           .formula = "m = momentum m + (1 - momentum) g, a = m; d and result as signsgd",
           .source = "Signum: Bernstein et al., ICML 2018, algorithm 2",
           .bits = "as signsgd",
           .use = "as signsgd, less noisy; the optimizer itself then runs without momentum",
           .traits = signs::kSignum},
          [](const SpecValues&) -> std::shared_ptr<Codec> { return std::make_shared<signs::Votes>(signs::kSignum); }};
}

CodecEntry efsignsgd_entry() {
  return {
      {.summary = "the sign times the mean magnitude of the piece, with error feedback",
       .formula = "M = mean |a| of a piece (scale=tensor: of a tensor), d = -M where a < 0, else M",
       .source = "EF-SignSGD: Karimireddy, Rebjock, Stich, Jaggi, ICML 2019",
       .bits = "1.003",
       .use =
           "slow networks; keeps the gradient's size, so that learning rates need no change; the paper's scale is a layer's (scale=tensor)",
       .traits = signs::kEfSign,
       .parameters = {kScaleOf}},
      [](const SpecValues& values) -> std::shared_ptr<Codec> {
        return std::make_shared<signs::Signs>(signs::Scales::mean, signs::kEfSign, values[kScaleOf] == ScaleOf::tensor);
      }};
}

}  // namespace crimp
#endif
