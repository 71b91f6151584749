// none, fp16 and bf16: every value on its own, no scale, fixed size.
#include <algorithm>
#include <tuple>

#include "codec/host_codecs.hpp"
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
      for (std::uint64_t i = 0; i < n; ++i) sum[i] = in ? values[at + i] + in[at + i] : values[at + i];  // adding 0 would lose -0
      narrow(type_, sum, bytes + at * size_of(type_), n);
      if (!out) continue;
      widen(type_, bytes + at * size_of(type_), back, n);
      for (std::uint64_t i = 0; i < n; ++i) out[at + i] = sum[i] - back[i];
    }
    return piece_bound(count);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const Place&, float* acc) const override {
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

// max_magnitude: float16's largest finite value; otherwise an eighth of the range, so that what a few ranks add stays finite as in MPI.
constexpr Codec::Traits kNone{"none", 1, true, false, MemoryKind::none, 0x1p125f, true};
constexpr Codec::Traits kFp16{"fp16", 2, true, false, MemoryKind::none, 65504.0f, true};
constexpr Codec::Traits kBf16{"bf16", 3, true, false, MemoryKind::none, 0x1p125f, true};

}  // namespace

CodecEntry none_entry() {
  return {{"none", "float32 as it is: for uncompressed segments of a mixed buffer, and as a measure", "d = a", "-", "32", "as a measure, and for tensors of a merged buffer that must stay exact", kNone, {}},
          [](const SpecValues&) -> std::shared_ptr<Codec> { return std::make_shared<Cast>(Dtype::f32, kNone); }};
}

CodecEntry fp16_entry() {
  return {{"fp16", "float16, rounded to nearest even, summed in float32", "d = half(a)", "IEEE 754 binary16", "16", "a safe factor of 2; what buffers of unknown tensors get", kFp16, {}},
          [](const SpecValues&) -> std::shared_ptr<Codec> { return std::make_shared<Cast>(Dtype::f16, kFp16); }};
}

CodecEntry bf16_entry() {
  return {{"bf16", "bfloat16, rounded to nearest even, summed in float32", "d = bfloat16(a)", "the upper half of binary32", "16", "gradients beyond float16's range", kBf16, {}},
          [](const SpecValues&) -> std::shared_ptr<Codec> { return std::make_shared<Cast>(Dtype::bf16, kBf16); }};
}

}  // namespace crimp
