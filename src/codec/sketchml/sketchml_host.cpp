// SketchML on the host. Scatter and look-up dominate: plain loops over the piece in L1, eight elements a step where
// bits are moved.
#include "codec/sketchml/sketchml.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/coding/bit_plane.hpp"
#include "codec/payload.hpp"
#include "codec/registry.hpp"
#include "memory/thread_scratch.hpp"

namespace crimp {
namespace sketchml {
namespace {

struct EncodeRoom {
  alignas(64) std::uint16_t bins[kPieceElements], filled[kBins];
  alignas(64) std::uint8_t bucket[kBins], ids[kPieceElements + 8];
};

class SketchMl final : public Codec {
 public:
  explicit SketchMl(const SpecValues& values) : quantiles_(values[kQuantiles]) {}
  const Traits& traits() const override { return kTraits; }
  std::uint32_t parameter_word() const override { return quantiles_; }
  std::size_t piece_bound(std::uint64_t count) const override {
    const std::uint32_t buckets = buckets_of(quantiles_, count);
    return buckets * sizeof(float) + bits_of(buckets) * bit_plane::bytes_of(count);
  }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    // Copies of the pointers: bytes that are written might be the piece's own.
    const float *const values = piece.values, *const residual = piece.residual_in;
    if (residual)
      return encode(
          piece, [=](std::uint64_t i) { return values[i] + residual[i]; }, bytes);
    return encode(
        piece, [=](std::uint64_t i) { return values[i]; }, bytes);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    const std::uint32_t buckets = buckets_of(quantiles_, count), bits = bits_of(buckets);
    if (in.size() != piece_bound(count)) return false;
    float means[kMostBuckets] = {};
    std::memcpy(means, in.data(), buckets * sizeof(float));
    for (const float m : means)
      if (!std::isfinite(m)) return false;
    const std::uint8_t* const planes = in.data() + buckets * sizeof(float);
    const std::uint64_t plane_bytes = bit_plane::bytes_of(count);
    for (std::uint32_t p = 0; p < bits; ++p)
      if (!bit_plane::padded_with_zeros(planes + p * plane_bytes, count)) return false;
    alignas(64) std::uint8_t ids[kPieceElements + 8];
    std::uint8_t highest = 0;
    for (std::uint64_t b = 0; b < plane_bytes; ++b) {
      std::uint64_t eight = 0;
      for (std::uint32_t p = 0; p < bits; ++p) eight |= bit_plane::spread(planes[p * plane_bytes + b]) << p;
      std::memcpy(ids + 8 * b, &eight, sizeof eight);
    }
    for (std::uint64_t i = 0; i < count; ++i) highest = std::max(highest, ids[i]);
    if (highest >= buckets) return false;
    for (std::uint64_t i = 0; i < count; ++i) acc[i] += means[ids[i]];
    return true;
  }

  static constexpr Traits kTraits{.name = "sketchml",
                                  .wire_id = 16,
                                  .fixed_size = true,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kMaxMagnitude};

 private:
  // a(i): element i of what is encoded.
  template <class A>
  std::size_t encode(const PieceSource& piece, A&& a, std::uint8_t* bytes) const {
    const auto n = static_cast<std::uint32_t>(piece.count);
    const std::uint32_t buckets = buckets_of(quantiles_, n), bits = bits_of(buckets);
    std::uint32_t largest = 0;
    for (std::uint32_t i = 0; i < n; ++i) largest = std::max(largest, magnitude_bits(a(i)));
    const std::uint32_t base = base_of(largest);
    auto& [bins, filled, bucket, ids] = thread_scratch_as<EncodeRoom>();
    std::memset(filled, 0, sizeof filled);
    for (std::uint32_t i = 0; i < n; ++i) bins[i] = static_cast<std::uint16_t>(bin_of(a(i), base));
    for (std::uint32_t i = 0; i < n; ++i) ++filled[bins[i]];

    for (std::uint32_t bin = 0, below = 0; below < n; below += filled[bin++])
      if (filled[bin]) bucket[bin] = static_cast<std::uint8_t>(bucket_of(below, filled[bin], n, buckets));

    const double unit = unit_of(largest);
    std::int64_t sums[kMostBuckets] = {};
    std::uint32_t counts[kMostBuckets] = {};
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint8_t id = ids[i] = bucket[bins[i]];
      sums[id] += fixed_point(a(i), unit);
      ++counts[id];
    }
    std::memset(ids + n, 0, 8);
    float means[kMostBuckets];
    for (std::uint32_t b = 0; b < buckets; ++b) means[b] = mean_of(sums[b], counts[b], unit);
    std::memcpy(bytes, means, buckets * sizeof(float));
    std::uint8_t* const planes = bytes + buckets * sizeof(float);
    const std::uint64_t plane_bytes = bit_plane::bytes_of(n);
    for (std::uint64_t b = 0; b < plane_bytes; ++b) {
      std::uint64_t eight;
      std::memcpy(&eight, ids + 8 * b, sizeof eight);
      for (std::uint32_t p = 0; p < bits; ++p) planes[p * plane_bytes + b] = bit_plane::gather(eight >> p);
    }
    if (piece.residual_out)
      for (std::uint32_t i = 0; i < n; ++i) piece.residual_out[i] = a(i) - means[ids[i]];
    return piece_bound(n);
  }

  std::uint32_t quantiles_;
};

}  // namespace
}  // namespace sketchml

CodecEntry sketchml_entry() {
  return {{.summary = "equally filled buckets of the sorted values, each element as the mean of its bucket",
           .formula =
               "d = mean of the a in the bucket of a; buckets between the quantiles of a piece (to 1/128 of a value)",
           .source = "SketchML: Jiang, Fu, Yang, Cui, SIGMOD 2018",
           .bits = "6.2 with 64 quantiles",
           .use = "any distribution of values: tails and zeros get their own buckets; works with memory=none too",
           .traits = sketchml::SketchMl::kTraits,
           .parameters = {sketchml::kQuantiles}},
          make_as<sketchml::SketchMl>};
}

}  // namespace crimp
