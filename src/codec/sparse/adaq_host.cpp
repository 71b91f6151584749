// AdaQ: the largest positive and the largest negative elements, each as the mean of its kind in the piece.
// WIRE_FORMAT.md, section 4.17.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/coding/index_set.hpp"
#include "codec/coding/select.hpp"
#include "codec/registry.hpp"
#include "codec/sparse/sparse.hpp"
#include "memory/thread_scratch.hpp"

namespace crimp {
namespace {

constexpr std::uint32_t kLanes = 16;
constexpr std::size_t kHead = sizeof(std::uint16_t), kMeans = 2 * sizeof(float);

float tree(float* lanes) {
  for (std::uint32_t half = kLanes / 2; half; half /= 2)
    for (std::uint32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

class AdaQ final : public Codec {
 public:
  explicit AdaQ(const SpecValues& values) : ratio_(values[adaq::kRatio]) {}
  const Traits& traits() const override { return kTraits; }
  std::size_t piece_bound(std::uint64_t count) const override {
    return kHead + kMeans + 2 * index_set::bitmap_bytes(count);
  }

  Selection select(const float* values, const float* residual, std::uint64_t count,
                   const RandomCounter&) const override {
    const auto threshold = [&](select::Side side) {
      const std::uint64_t candidates = select::count_above(values, residual, count, 0.0f, side);
      return candidates ? select::largest(values, residual, count, share_of(ratio_, candidates), side)
                        : select::Threshold{};
    };
    const auto up = threshold(select::Side::positive), down = threshold(select::Side::negative);
    return {up.value, down.value, up.ties, down.ties};
  }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* out) const override {
    auto& picked = thread_scratch_as<select::Picked>();
    select::pick(piece, picked);
    if (picked.count == 0) return 0;
    alignas(64) float plus[kLanes] = {}, minus[kLanes] = {};
    std::uint32_t negatives = 0;
    std::uint8_t signs[kPieceElements / 8] = {};
    for (std::uint32_t j = 0; j < picked.count; ++j) {
      const float a = picked.values[j];
      const bool negative = a < 0.0f;
      float* const side =
          negative ? minus : plus;  // a choice between arrays as such is miscompiled by GCC 12's -fsanitize=bounds
      side[j % kLanes] += std::fabs(a);
      negatives += negative;
      signs[j / 8] = static_cast<std::uint8_t>(signs[j / 8] | negative << j % 8);
    }
    const std::uint32_t positives = picked.count - negatives;
    const auto mean = [](float* lanes, std::uint32_t users) {
      return users ? std::min(tree(lanes) / static_cast<float>(users), adaq::kMostMean) : 0.0f;
    };
    const float means[2] = {mean(plus, positives), mean(minus, negatives)};
    if (piece.residual_out)
      picked.each([&](std::uint32_t j, std::uint32_t i) {
        const float a = picked.values[j];
        piece.residual_out[i] = a < 0.0f ? a + means[1] : a - means[0];
      });
    const std::size_t sign_bytes = index_set::bitmap_bytes(picked.count);
    const auto [bytes, head] =
        index_set::encode(picked.bits, piece.count, picked.count, out + kHead + kMeans + sign_bytes);
    std::memcpy(out, &head, kHead);
    std::memcpy(out + kHead, means, kMeans);
    std::memcpy(out + kHead + kMeans, signs, sign_bytes);
    return kHead + kMeans + sign_bytes + bytes;
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    if (in.empty()) return true;
    if (in.size() < kHead + kMeans) return false;
    std::uint16_t head;
    float means[2];
    std::memcpy(&head, in.data(), kHead);
    std::memcpy(means, in.data() + kHead, kMeans);
    const std::uint32_t selected = index_set::count_of(head, count);
    const std::size_t sign_bytes = index_set::bitmap_bytes(selected);
    if (selected == 0 || in.size() < kHead + kMeans + sign_bytes) return false;
    const std::uint8_t* signs = in.data() + kHead + kMeans;
    if (selected % 8 && signs[sign_bytes - 1] >> selected % 8) return false;
    std::uint32_t negatives = 0;
    for (std::size_t i = 0; i < sign_bytes; ++i) negatives += static_cast<std::uint32_t>(__builtin_popcount(signs[i]));
    // A mean is there exactly where something has it.
    const auto legal = [](float mean, std::uint32_t users) {
      return std::isfinite(mean) && (users ? mean > 0.0f : mean == 0.0f && !std::signbit(mean));
    };
    if (!legal(means[0], selected - negatives) || !legal(means[1], negatives)) return false;
    alignas(64) std::uint16_t indices[kPieceElements];
    if (!index_set::decode(in.subspan(kHead + kMeans + sign_bytes), head, count, indices)) return false;
    const float decoded[2] = {means[0], -means[1]};
    for (std::uint32_t j = 0; j < selected; ++j) acc[indices[j]] += decoded[signs[j / 8] >> j % 8 & 1];
    return true;
  }

  static constexpr Traits kTraits{.name = "adaq",
                                  .wire_id = 17,
                                  .fixed_size = false,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kSparseMagnitude,
                                  .selects = true};

 private:
  float ratio_;
};

}  // namespace

CodecEntry adaq_entry() {
  return {
      {.summary = "adaptive quantisation: the largest positive and the largest negative elements, sent as two means",
       .formula =
           "d = mean of the selected positives (negatives) of a piece where a is among the share `ratio` of the positives (negatives) that is largest, else 0",
       .source = "Dryden et al., MLHPC 2016",
       .bits = "0.11 at ratio 0.01, 0.91 at 0.1",
       .use = "a quarter of topk's bytes at the same ratio, where the magnitudes of what is sent are alike",
       .traits = AdaQ::kTraits,
       .parameters = {adaq::kRatio}},
      make_as<AdaQ>};
}

}  // namespace crimp
