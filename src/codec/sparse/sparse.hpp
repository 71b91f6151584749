// Pieces that hold the selected elements of a tensor and their places: Top-k, threshold, DGC and SIDCo, which differ in what they select.
// The byte layout is WIRE_FORMAT.md, section 4.18.
#pragma once
#include "core/host_device.hpp"
#include "codec/spec.hpp"
#include "codec/codec.hpp"
#include "core/types.hpp"

namespace crimp {

inline constexpr float kSparseMagnitude = 0x1p100f;  // with residuals over many steps sums stay finite

class SparseCodec : public Codec {
 public:
  const Traits& traits() const override { return traits_; }
  std::uint32_t parameter_word() const override { return value_ == Dtype::f16; }
  std::size_t piece_bound(std::uint64_t count) const override;
  std::size_t encode_piece(const PieceSource&, std::uint8_t* out) const override;
  bool marks_changes() const override { return true; }
  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const Place&, float* acc) const override;

  static CodecParameter value_parameter();

 protected:
  SparseCodec(const Traits&, const SpecValues&);

 private:
  std::size_t values_at() const;  // bytes of a piece before its values

  Traits traits_;
  Dtype value_;  // f32 or f16
};

// ratio: the share of a group's elements that is sent. As a float32 value, so that the canonical text says exactly what is used.
float sparse_ratio(const SpecValues&);
CodecParameter ratio_parameter();
// max(1, round(ratio * count)), halves upwards.
CRIMP_HD std::uint64_t share_of(float ratio, std::uint64_t count) {
  const auto share = static_cast<std::uint64_t>(static_cast<double>(ratio) * static_cast<double>(count) + 0.5);
  return share ? share : 1;
}
// None of the values is NaN or infinite.
bool all_finite(const float* values, std::uint64_t count);

}  // namespace crimp
