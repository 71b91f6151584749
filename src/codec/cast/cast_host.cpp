// fp32 and bf16: every value on its own, no scale, fixed size.
#include <algorithm>
#include <tuple>

#include "codec/registry.hpp"
#include "core/convert.hpp"

namespace crimp {
namespace {

class Cast final : public Codec {
 public:
  Cast(Dtype type, const Traits& traits) : type_(type), traits_(traits) {}
  const Traits& traits() const override { return traits_; }
  std::size_t piece_bound(std::uint64_t count) const override { return count * size_of(type_); }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    const auto [values, in, out, count] = std::tuple(piece.values, piece.residual_in, piece.residual_out, piece.count);
    if (!in && !out) {
      narrow(type_, values, bytes, count);
      return piece_bound(count);
    }
    float sum[kStep], back[kStep];
    for (std::uint64_t at = 0; at < count; at += kStep) {
      const std::uint64_t n = std::min(kStep, count - at);
      for (std::uint64_t i = 0; i < n; ++i)
        sum[i] = in ? values[at + i] + in[at + i] : values[at + i];  // adding 0 would lose -0
      narrow(type_, sum, bytes + at * size_of(type_), n);
      if (!out) continue;
      widen(type_, bytes + at * size_of(type_), back, n);
      for (std::uint64_t i = 0; i < n; ++i) out[at + i] = sum[i] - back[i];
    }
    return piece_bound(count);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    if (in.size() != piece_bound(count)) return false;
    add_widened(type_, in.data(), acc, count);
    return true;
  }

  double error_of_two_encodings() const override { return type_ == Dtype::f32 ? 1 : 2; }

 private:
  static constexpr std::uint64_t kStep = 1024;
  Dtype type_;
  Traits traits_;
};

// max_magnitude: of fp32 an eighth of the range, so that what a few ranks add stays finite as in MPI; rounding could
// carry sums of bf16 beyond it. min_magnitude: fp32 is exact; bfloat16 has fewer bits where float32 has, below 2^-126.
constexpr Codec::Traits kFp32{.name = "fp32",
                              .wire_id = 1,
                              .fixed_size = true,
                              .biased = false,
                              .memory = FeedbackKind::none,
                              .max_magnitude = 0x1p125f,
                              .min_magnitude = 0.0f,
                              .summable = true};
constexpr Codec::Traits kBf16{.name = "bf16",
                              .wire_id = 3,
                              .fixed_size = true,
                              .biased = false,
                              .memory = FeedbackKind::none,
                              .max_magnitude = 0x1p100f,
                              .summable = true};

}  // namespace

CodecEntry fp32_entry() {
  return {{.summary = "float32 as it is: for uncompressed segments of a mixed buffer, and as a measure",
           .formula = "d = a",
           .source = "-",
           .bits = "32",
           .use = "as a measure, and for tensors of a merged buffer that must stay exact",
           .traits = kFp32},
          [](const SpecValues&) -> std::shared_ptr<Codec> { return std::make_shared<Cast>(Dtype::f32, kFp32); }};
}

CodecEntry bf16_entry() {
  return {
      {.summary = "bfloat16, rounded to nearest even, summed in float32",
       .formula = "d = bfloat16(a)",
       .source = "the upper half of binary32",
       .bits = "16",
       .use =
           "where a fixed rounding of every value by itself is wanted; fp16 has the same size and is eight times finer",
       .traits = kBf16},
      [](const SpecValues&) -> std::shared_ptr<Codec> { return std::make_shared<Cast>(Dtype::bf16, kBf16); }};
}

}  // namespace crimp
