#include "codec/randomk/randomk.hpp"

#include <bit>
#include <cstring>

#include "codec/registry.hpp"
#include "codec/sparse/sparse.hpp"
#include "memory/thread_scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/randomk/randomk_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/coding/dither-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::randomk::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The random bits of the piece's first `tiles` * 128 elements.
void Draw(const RandomCounter& counter, std::uint32_t tiles, std::uint16_t* bits) {
  using D32 = dither::HWY_NAMESPACE::D32;
  const hn::RebindToSigned<D32> di;
  const hn::Rebind<std::uint16_t, D32> d16;
  for (std::uint32_t t = 0; t < tiles; ++t)
    dither::HWY_NAMESPACE::for_tile(counter, dither::kShared, t,
                                    [&](std::size_t half, std::size_t lane, hn::Vec<D32> b) HWY_ATTR {
                                      hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, b)), d16,
                                                 bits + t * dither::kTile + half * dither::kLanes + lane);
                                    });
}

void Add(const float* values, const float* in, float* out, std::uint64_t count) {
  const hn::CappedTag<float, 16> d;
  const std::size_t lanes = hn::Lanes(d);
  std::uint64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Add(hn::LoadU(d, values + i), hn::LoadU(d, in + i)), d, out + i);
  for (; i < count; ++i) out[i] = values[i] + in[i];
}

}  // namespace crimp::randomk::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace randomk {
HWY_EXPORT(Draw);
HWY_EXPORT(Add);

struct Draws {
  alignas(64) std::uint16_t at[2 * kPieceElements + dither::kTile];
};
struct EncodeRoom : Draws {
  alignas(64) float sent[kPieceElements], rest[kPieceElements];
};
struct DecodeRoom : Draws {
  alignas(64) float values[kPieceElements];
};

class RandomK final : public Codec {
 public:
  explicit RandomK(const SpecValues& values) : ratio_(values[kRatio]), scale_(values[kUnbiased]), traits_(kTraits) {
    if (!scale_) return;
    traits_.biased = false;
    traits_.memory = FeedbackKind::none;
    traits_.diverges_with_residual = true;  // |a - d| is up to 1 / ratio - 1 times |a|
  }
  const Traits& traits() const override { return traits_; }
  std::uint32_t parameter_word() const override {
    return std::bit_cast<std::uint32_t>(ratio_) | (scale_ ? 0x80000000u : 0);
  }
  std::size_t piece_bound(std::uint64_t count) const override { return sizeof(float) * share_of(ratio_, count); }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* out) const override {
    auto& room = thread_scratch_as<EncodeRoom>();
    auto* const at = room.at;
    auto *const sent = room.sent, *const rest = room.rest;
    const auto n = static_cast<std::uint32_t>(piece.count), k = draw(piece.count, piece.counter, at);
    const bool scales = scale_ && piece.counter.rank < kSums;
    for (std::uint32_t j = 0; j < k; ++j) {
      const float a = piece.residual_in ? piece.values[at[j]] + piece.residual_in[at[j]] : piece.values[at[j]];
      sent[j] = scales ? scaled(a, width(j, n, k)) : a;
      rest[j] = a - sent[j];
    }
    std::memcpy(out, sent, k * sizeof(float));
    if (piece.residual_out) {
      if (piece.residual_in) {
        HWY_DYNAMIC_DISPATCH(Add)(piece.values, piece.residual_in, piece.residual_out, piece.count);
      } else {
        std::memcpy(piece.residual_out, piece.values, piece.count * sizeof(float));
      }
      for (std::uint32_t j = 0; j < k; ++j) piece.residual_out[at[j]] = rest[j];
    }
    return k * sizeof(float);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter& counter,
                        float* acc) const override {
    if (in.size() != piece_bound(count)) return false;
    auto& room = thread_scratch_as<DecodeRoom>();
    auto* const at = room.at;
    auto* const values = room.values;
    std::memcpy(values, in.data(), in.size());
    const std::uint64_t k = share_of(ratio_, count);
    if (!all_finite(values, k)) return false;
    draw(count, counter, at);
    for (std::uint64_t j = 0; j < k; ++j) acc[at[j]] += values[j];
    return true;
  }

  double error_of_two_encodings() const override { return 1; }  // what is drawn of a sum is all that it has

  static constexpr Traits kTraits{.name = "randomk",
                                  .wire_id = 19,
                                  .fixed_size = true,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kSparseMagnitude,
                                  .min_magnitude = 0.0f,
                                  .summable = true};

 private:
  // at[j] = the element of stratum j; returns the number of strata.
  std::uint32_t draw(std::uint64_t count, RandomCounter counter, std::uint16_t* at) const {
    const auto n = static_cast<std::uint32_t>(count), k = static_cast<std::uint32_t>(share_of(ratio_, count));
    counter.rank = 0;
    HWY_DYNAMIC_DISPATCH(Draw)(counter, (2 * k + dither::kTile - 1) / dither::kTile, at);
    for (std::uint32_t j = 0; j < k; ++j)
      at[j] = static_cast<std::uint16_t>(element(j, n, k, at[2 * j] | std::uint32_t{at[2 * j + 1]} << 16));
    return k;
  }
  float ratio_;
  bool scale_;
  Traits traits_;
};

}  // namespace randomk

CodecEntry randomk_entry() {
  return {
      {.summary = "one random element of each of k strata, the same on all ranks, so that places are not sent",
       .formula = "d = a (scale=1: stratum width * a) where the element is drawn, else 0",
       .source = "Stich et al., NeurIPS 2018 (rand-k); Wangni et al., NeurIPS 2018 (unbiased)",
       .bits = "32 ratio: 0.32 at 0.01",
       .use =
           "many ranks: payloads add up without growing; needs many more steps than topk. scale=1 is unbiased and keeps no memory",
       .traits = randomk::RandomK::kTraits,
       .parameters = {randomk::kRatio, randomk::kUnbiased}},
      make_as<randomk::RandomK>};
}

}  // namespace crimp
#endif
