// SketchML on the host. A piece lies in the scratch of its thread; histogram, buckets' numbers and sums are look-ups,
// an element a step, and all else are vectors.
#include "codec/sketchml/sketchml.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/coding/bit_plane.hpp"
#include "codec/payload.hpp"
#include "codec/registry.hpp"
#include "memory/thread_scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/sketchml/sketchml_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef CRIMP_SKETCHML_ONCE
#define CRIMP_SKETCHML_ONCE
namespace crimp::sketchml {

inline constexpr std::uint32_t kTables = 4;  // neighbours count into different ones, so that none waits for another
inline constexpr std::size_t kPadding = 64;  // behind the last element; zeros, where they are looked at

struct EncodeRoom {
  alignas(64) float a[kPieceElements + kPadding];
  alignas(64) std::uint16_t bins[kPieceElements + kPadding], filled[kTables][kBins];
  alignas(64) std::uint8_t bucket[kBins], ids[kPieceElements + kPadding];
};
struct DecodeRoom {
  alignas(64) std::uint8_t ids[kPieceElements + kPadding];
};

}  // namespace crimp::sketchml
#endif

HWY_BEFORE_NAMESPACE();
namespace crimp::sketchml::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Di = hn::RebindToSigned<Df>;
using D8 = hn::CappedTag<std::uint8_t, 64>;
using D16 = hn::Rebind<std::uint16_t, Df>;
using DId = hn::Rebind<std::uint8_t, Df>;
using Vf = hn::Vec<Df>;
constexpr std::size_t kLanes = hn::MaxLanes(Df()), kLanes8 = hn::MaxLanes(D8());

// The mean of each element's bucket. Up to 64 means lie in registers: a gather takes a load for every lane, and on
// processors that are patched against Downfall many times that.
class Means {
 public:
  HWY_INLINE Means(const float* means, std::uint32_t buckets) : means_(means), few_(kLanes > 4 && buckets <= kFew) {
    alignas(64) float padded[kFew] = {};
    if (few_) std::memcpy(padded, means, buckets * sizeof(float));
    for (std::size_t t = 0; t < kParts; ++t) parts_[t] = hn::Load(Df(), padded + t * kLanes);
  }
  template <class F>  // f(i, the means of ids[i, i + kLanes))
  HWY_INLINE void for_each(const std::uint8_t* ids, std::size_t count, F&& f) const {
    const auto all = [&](auto few) HWY_ATTR {
      for (std::size_t i = 0; i < count; i += kLanes) {
        const auto id = hn::PromoteTo(Di(), hn::LoadU(DId(), ids + i));
        f(i, few ? in_registers(id) : hn::GatherIndex(Df(), means_, id));
      }
    };
    few_ ? all(std::true_type()) : all(std::false_type());
  }

 private:
  static constexpr std::size_t kFew = 64, kParts = kFew / kLanes;

  HWY_INLINE Vf in_registers(hn::Vec<Di> id) const {
    const Df d;
    const auto lane = hn::IndicesFromVec(d, hn::And(id, hn::Set(Di(), static_cast<std::int32_t>(kLanes - 1))));
    Vf found[kParts];
    for (std::size_t t = 0; t < kParts; ++t) found[t] = hn::TableLookupLanes(parts_[t], lane);
    // The next bit of the number decides between neighbours.
    int shift = 31 - std::countr_zero(kLanes);
    for (std::size_t parts = kParts; parts > 1; parts /= 2, --shift) {
      const auto second = hn::BitCast(d, hn::ShiftLeftSame(id, shift));
      for (std::size_t t = 0; t < parts / 2; ++t)
        found[t] = hn::IfNegativeThenElse(second, found[2 * t + 1], found[2 * t]);
    }
    return found[0];
  }

  const float* means_;
  bool few_;
  Vf parts_[kParts];
};

// a = what is encoded, zeros behind it; returns the largest magnitude_bits.
template <bool has_in>
HWY_INLINE std::uint32_t load(const PieceSource& p, float* HWY_RESTRICT a) {
  const Df d;
  auto largest = hn::Zero(Di());
  std::uint64_t i = 0;
  for (; i + kLanes <= p.count; i += kLanes) {
    Vf x = hn::LoadU(d, p.values + i);
    if constexpr (has_in) x = hn::Add(x, hn::LoadU(d, p.residual_in + i));
    hn::Store(x, d, a + i);
    largest = hn::Max(largest, hn::BitCast(Di(), hn::Abs(x)));
  }
  auto most = static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(Di(), largest)));
  for (; i < p.count; ++i) {
    a[i] = has_in ? p.values[i] + p.residual_in[i] : p.values[i];
    most = std::max(most, magnitude_bits(a[i]));
  }
  std::fill_n(a + i, kPadding, 0.0f);
  return most;
}

HWY_INLINE void find_bins(const float* HWY_RESTRICT a, std::size_t count, std::uint32_t base,
                          std::uint16_t* HWY_RESTRICT bins) {
  const Df d;
  const Di di;
  const auto middle = hn::Set(di, static_cast<std::int32_t>(kHalf)), zero = hn::Zero(di),
             first = hn::Set(di, static_cast<std::int32_t>(base)), of = hn::Set(di, kBins - 1);
  for (std::size_t i = 0; i < count; i += kLanes) {
    const Vf x = hn::Load(d, a + i);
    const auto upper = hn::ShiftRight<16>(hn::BitCast(di, hn::Abs(x)));
    const auto m = hn::Add(middle, hn::Max(hn::Sub(upper, first), zero));
    const auto negative = hn::VecFromMask(di, hn::RebindMask(di, hn::Lt(x, hn::Zero(d))));
    hn::StoreU(hn::DemoteTo(D16(), hn::And(hn::Xor(m, negative), of)), D16(), bins + i);
  }
}

// Plane p holds bit p of the numbers.
HWY_INLINE void store_planes(const std::uint8_t* ids, std::size_t count, std::uint32_t bits, std::uint8_t* planes) {
  const D8 d;
  const std::size_t plane_bytes = bit_plane::bytes_of(count);
  for (std::uint32_t p = 0; p < bits; ++p) {
    std::uint8_t* const plane = planes + p * plane_bytes;
    const auto bit = hn::Set(d, static_cast<std::uint8_t>(1u << p));
    std::size_t i = 0;
    for (; i + kLanes8 <= count; i += kLanes8)
      hn::StoreMaskBits(d, hn::TestBit(hn::Load(d, ids + i), bit), plane + i / 8);
    if (i == count) continue;
    std::uint8_t last[8];
    hn::StoreMaskBits(d, hn::TestBit(hn::Load(d, ids + i), bit), last);
    std::memcpy(plane + i / 8, last, bit_plane::bytes_of(count - i));
  }
}
// Returns the largest number.
HWY_INLINE std::uint8_t load_planes(const std::uint8_t* planes, std::size_t count, std::uint32_t bits,
                                    std::uint8_t* HWY_RESTRICT ids) {
  const D8 d;
  const std::size_t plane_bytes = bit_plane::bytes_of(count);
  auto largest = hn::Zero(d);
  const auto row = [&](std::size_t i, auto&& mask_of_plane) HWY_ATTR {
    auto id = hn::Zero(d);
    for (std::uint32_t p = 0; p < bits; ++p)
      id = hn::Or(id, hn::IfThenElseZero(mask_of_plane(planes + p * plane_bytes + i / 8),
                                         hn::Set(d, static_cast<std::uint8_t>(1u << p))));
    hn::Store(id, d, ids + i);
    largest = hn::Max(largest, id);
  };
  std::size_t i = 0;
  for (; i + kLanes8 <= count; i += kLanes8)
    row(i, [&](const std::uint8_t* from) HWY_ATTR { return hn::LoadMaskBits(d, from); });
  if (i < count)
    row(i, [&](const std::uint8_t* from) HWY_ATTR {
      std::uint8_t last[8] = {};
      std::memcpy(last, from, bit_plane::bytes_of(count - i));
      return hn::LoadMaskBits(d, last);
    });
  alignas(64) std::uint8_t each[kLanes8];
  hn::Store(largest, d, each);
  return *std::max_element(each, each + kLanes8);
}

void Encode(const PieceSource& p, std::uint32_t quantiles, std::uint8_t* bytes) {
  const auto n = static_cast<std::uint32_t>(p.count);
  const std::uint32_t buckets = buckets_of(quantiles, n);
  auto& [a, bins, filled, bucket, ids] = thread_scratch_as<EncodeRoom>();
  const std::uint32_t largest = p.residual_in ? load<true>(p, a) : load<false>(p, a);
  find_bins(a, n, base_of(largest), bins);
  std::memset(filled, 0, sizeof filled);
  for (std::uint32_t i = 0; i < n; ++i) ++filled[i % kTables][bins[i]];

  for (std::uint32_t t = 1; t < kTables; ++t)
    for (std::uint32_t bin = 0; bin < kBins; ++bin)
      filled[0][bin] = static_cast<std::uint16_t>(filled[0][bin] + filled[t][bin]);

  std::uint32_t counts[kMostBuckets] = {};
  // bucket_of(), which never decreases: that of the bin before, or further on. Empty bins get one, too, without asking.
  std::uint32_t b = 0;
  for (std::uint32_t bin = 0, below = 0; below < n; ++bin) {
    const std::uint32_t here = filled[0][bin], middle = buckets * (2 * below + here - (here != 0));
    while (middle >= 2 * n * (b + 1)) ++b;
    bucket[bin] = static_cast<std::uint8_t>(b);
    counts[b] += here;
    below += here;
  }

  const double unit = unit_of(largest);
  std::int64_t sums[2][kMostBuckets] = {};
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::uint8_t id = ids[i] = bucket[bins[i]];
    sums[i % 2][id] += fixed_point(a[i], unit);
  }
  std::memset(ids + n, 0, kPadding);
  float means[kMostBuckets];
  for (std::uint32_t i = 0; i < buckets; ++i) means[i] = mean_of(sums[0][i] + sums[1][i], counts[i], unit);
  std::memcpy(bytes, means, buckets * sizeof(float));
  store_planes(ids, n, bits_of(buckets), bytes + buckets * sizeof(float));

  if (!p.residual_out) return;
  const Df d;
  const std::size_t whole = n / kLanes * kLanes;
  const Means mean(means, buckets);
  mean.for_each(ids, whole, [&](std::size_t i, Vf m) HWY_ATTR {
    hn::StoreU(hn::Sub(hn::Load(d, a + i), m), d, p.residual_out + i);
  });
  for (std::size_t i = whole; i < n; ++i) p.residual_out[i] = a[i] - means[ids[i]];
}

// `means` is kMostBuckets long. False where a number is of no bucket; nothing is added then.
bool DecodeAdd(const float* means, std::uint32_t buckets, const std::uint8_t* planes, std::uint64_t count,
               float* HWY_RESTRICT acc) {
  const Df d;
  std::uint8_t* const ids = thread_scratch_as<DecodeRoom>().ids;
  if (load_planes(planes, count, bits_of(buckets), ids) >= buckets) return false;
  const std::size_t whole = count / kLanes * kLanes;
  const Means mean(means, buckets);
  mean.for_each(ids, whole,
                [&](std::size_t i, Vf m) HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, acc + i), m), d, acc + i); });
  for (std::size_t i = whole; i < count; ++i) acc[i] += means[ids[i]];
  return true;
}

}  // namespace crimp::sketchml::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace sketchml {
namespace {
HWY_EXPORT(Encode);
HWY_EXPORT(DecodeAdd);

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
    HWY_DYNAMIC_DISPATCH(Encode)(piece, quantiles_, bytes);
    return piece_bound(piece.count);
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
    for (std::uint32_t p = 0; p < bits; ++p)
      if (!bit_plane::padded_with_zeros(planes + p * bit_plane::bytes_of(count), count)) return false;
    return HWY_DYNAMIC_DISPATCH(DecodeAdd)(means, buckets, planes, count, acc);
  }

  static constexpr Traits kTraits{.name = "sketchml",
                                  .wire_id = 16,
                                  .fixed_size = true,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kMaxMagnitude};

 private:
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
#endif
