// Pieces that hold the selected elements of a tensor and their places: Top-k, threshold, DGC and SIDCo, which differ in
// what they select. The byte layout is WIRE_FORMAT.md, section 4.18.
#pragma once
#include "codec/codec.hpp"
#include "codec/spec.hpp"
#include "core/host_device.hpp"
#include "core/types.hpp"

namespace crimp {

inline constexpr float kLeastOfHalves = 0x1p-80f;    // of all selected values as float16; float32 are sent as they are
inline constexpr float kSparseMagnitude = 0x1p100f;  // with residuals over many steps sums stay finite

namespace sparse {

// Rounded to float32, so that the canonical text says exactly what is used.
inline constexpr Parameter<float> kRatio{
    {.key = "ratio",
     .default_value = 0.01,
     .least = 0,
     .most = 1,
     .above_least = true,
     .help = "share of a tensor's elements that is sent: max(1, round(ratio * elements)) of its part in a chunk"}};
enum class ValueType { f32, f16 };
inline constexpr std::string_view kValueWords[] = {"f32", "f16"};
inline constexpr Parameter<ValueType> kValue{
    {.key = "value",
     .words = kValueWords,
     .help =
         "type of the values sent; f16 has a power of two per piece as a scale, and what it rounds away stays in the memory"}};
// topk
inline constexpr Parameter<std::uint32_t> kReuse{
    {.key = "reuse",
     .default_value = 1,
     .least = 1,
     .most = 65536,
     .step = 1,
     .help =
         "calls that use a threshold, of a tensor's part in a chunk: the first finds the k-th largest magnitude, the others send what reaches it, about k elements; found "
         "anew at once where that would be less than k/2 or more than 2k (counted; of parts above 65536 elements with k of 128 and more in a sample). Kept and "
         "dropped with the residual, so every call is exact where there is none"}};
// threshold
inline constexpr Parameter<float> kLimit{{.key = "v",
                                          .default_value = 0.01,
                                          .least = 0,
                                          .most = 0x1.fffffep127,
                                          .help = "elements with |a| > v are sent; the others wait in the memory"}};
// dgc
inline constexpr Parameter<float> kSample{
    {.key = "sample",
     .default_value = 1,
     .least = 0,
     .most = 1,
     .above_least = true,
     .help =
         "share of the elements that the threshold is taken from, as in the paper (0.001 to 0.01), corrected at most 3 times by 1.3 or 0.7, then exact; "
         "1: exact at once, which costs the same one pass"}};
inline constexpr Parameter<std::uint64_t> kWarmup{
    {.key = "warmup",
     .default_value = 0,
     .least = 0,
     .most = 0x1p31,
     .step = 1,
     .help =
         "calls of a tensor in which more of it is sent: 25, 6.25, 1.5625 and 0.390625 % in a quarter of them each, never less than ratio "
         "(section 3.4, whose warm-up is 4 epochs: give the steps of so many). Without a memory: calls of the communicator"}};
// sidco
enum class Tail : std::uint8_t { exponential, pareto, gamma };
inline constexpr std::string_view kTailWords[] = {"exp", "gp", "gamma"};
inline constexpr Parameter<Tail> kTail{
    {.key = "dist",
     .words = kTailWords,
     .help = "what is fitted: exponential, generalised Pareto, or gamma and then generalised Pareto"}};
inline constexpr Parameter<int> kStages{
    {.key = "stages",
     .default_value = 2,
     .least = 1,
     .most = 8,
     .step = 1,
     .help = "fits, each on what exceeds the one before; the first keeps a quarter"}};

}  // namespace sparse
namespace topk {

// Of parts above kWhole elements kRuns runs are counted, so that about kExpected of them reach the threshold: together
// one in k / kExpected elements, but no fewer than one in kSmallestSample.
inline constexpr std::uint64_t kWhole = 65536, kExpected = 64, kSmallestSample = 64, kRuns = 64;

}  // namespace topk
namespace adaq {

inline constexpr Parameter<float> kRatio{
    {.key = "ratio",
     .default_value = 0.01,
     .least = 0,
     .most = 1,
     .above_least = true,
     .help =
         "share of the positives, and of the negatives, of a tensor's part in a chunk that is sent: max(1, round(ratio * number)) of each"}};
// A larger mean, of residuals that have grown, or one whose sum overflows is sent as this, and the rest waits: 10,240
// ranks' have a finite sum.
inline constexpr float kMostMean = 0x1p114f;

}  // namespace adaq

class SparseCodec : public Codec {
 public:
  const Traits& traits() const override { return traits_; }
  std::uint32_t parameter_word() const override { return value_ == Dtype::f16; }
  std::size_t piece_bound(std::uint64_t count) const override;
  std::size_t encode_piece(const PieceSource&, std::uint8_t* out) const override;
  bool marks_changes() const override { return true; }
  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override;

 protected:
  SparseCodec(const Traits&, const SpecValues&);

 private:
  std::size_t values_at() const;  // bytes of a piece before its values

  Traits traits_;
  Dtype value_;  // f32 or f16
};

// max(1, round(ratio * count)), halves upwards.
CRIMP_HD std::uint64_t share_of(float ratio, std::uint64_t count) {
  const auto share = static_cast<std::uint64_t>(static_cast<double>(ratio) * static_cast<double>(count) + 0.5);
  return share ? share : 1;
}
// None of the values is NaN or infinite.
bool all_finite(const float* values, std::uint64_t count);

}  // namespace crimp
