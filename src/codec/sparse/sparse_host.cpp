#include "codec/sparse/sparse.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/cast/fp16.hpp"
#include "codec/coding/bitmap.hpp"
#include "codec/coding/index_set.hpp"
#include "codec/coding/select.hpp"
#include "core/convert.hpp"
#include "memory/thread_scratch.hpp"

namespace crimp {
namespace {

constexpr std::size_t kHead = sizeof(std::uint16_t),
                      kScale = sizeof(std::uint16_t);  // the scale is there where values are float16

struct EncodeRoom {
  select::Picked picked;
  alignas(64) float narrowed[kPieceElements];
};
struct DecodeRoom {
  alignas(64) std::uint16_t indices[kPieceElements];
  alignas(64) float values[kPieceElements + bitmap::kRoom];
};

}  // namespace

bool all_finite(const float* values, std::uint64_t count) {
  std::uint32_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i)
    wrong += (std::bit_cast<std::uint32_t>(values[i]) & 0x7f800000) == 0x7f800000;
  return wrong == 0;
}

SparseCodec::SparseCodec(const Traits& traits, const SpecValues& values)
    : traits_(traits), value_(values[sparse::kValue] == sparse::ValueType::f16 ? Dtype::f16 : Dtype::f32) {
  if (value_ == Dtype::f16) traits_.min_magnitude = kLeastOfHalves;
}

std::size_t SparseCodec::values_at() const { return value_ == Dtype::f16 ? kHead + kScale : kHead; }

std::size_t SparseCodec::piece_bound(std::uint64_t count) const {
  return values_at() + static_cast<std::size_t>(count) * size_of(value_) + index_set::bitmap_bytes(count);
}

std::size_t SparseCodec::encode_piece(const PieceSource& piece, std::uint8_t* out) const {
  auto& room = thread_scratch_as<EncodeRoom>();
  auto& picked = room.picked;
  auto& narrowed = room.narrowed;
  select::pick(piece, picked);
  if (piece.changed) std::memcpy(piece.changed, picked.bits, (piece.count + 63) / 64 * sizeof *picked.bits);
  if (picked.count == 0) return 0;
  const std::size_t value_bytes = picked.count * size_of(value_);
  std::uint8_t* const values = out + values_at();
  if (value_ == Dtype::f16) {
    const std::uint16_t scale = fp16::scale_byte(
        std::bit_cast<std::uint32_t>(static_cast<float>(magnitude(Dtype::f32, picked.values, picked.count))));
    std::memcpy(out + kHead, &scale, kScale);
    const float up = std::bit_cast<float>(fp16::scale_bits(scale)),
                down = std::bit_cast<float>(fp16::inverse_bits(scale));
    // A residual may be beyond what the largest scale reaches: what the clamp cuts off is kept like what rounding does.
    for (std::uint32_t j = 0; j < picked.count; ++j)
      narrowed[j] = std::clamp(picked.values[j] * down, -fp16::kLargest, fp16::kLargest);
    narrow(value_, narrowed, values, picked.count);
    if (piece.residual_out) {
      widen(value_, values, narrowed, picked.count);
      picked.each([&](std::uint32_t j, std::uint32_t i) {
        const float rest = piece.residual_out[i] = picked.values[j] - narrowed[j] * up;
        if (piece.changed && rest == picked.values[j])
          piece.changed[i / 64] &= ~(std::uint64_t{1} << i % 64);  // rounded to zero
      });
    }
  } else {
    std::memcpy(values, picked.values, value_bytes);
  }
  const auto [bytes, head] = index_set::encode(picked.bits, piece.count, picked.count, values + value_bytes);
  std::memcpy(out, &head, kHead);
  return values_at() + value_bytes + bytes;
}

bool SparseCodec::decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                                   float* acc) const {
  if (in.empty()) return true;
  std::uint16_t head;
  if (in.size() < values_at()) return false;
  std::memcpy(&head, in.data(), kHead);
  const std::uint32_t selected = index_set::count_of(head, count);
  const std::size_t value_bytes = selected * size_of(value_);
  if (selected == 0 || in.size() < values_at() + value_bytes) return false;
  auto& [indices, values] = thread_scratch_as<DecodeRoom>();
  const auto places = in.subspan(values_at() + value_bytes);
  const bool dense = head & index_set::kBitmap;
  if (!(dense ? index_set::legal_bitmap(places, head, count) : index_set::decode(places, head, count, indices)))
    return false;
  if (value_ == Dtype::f16) {
    std::uint16_t scale;
    std::memcpy(&scale, in.data() + kHead, kScale);
    if (!fp16::legal(scale)) return false;
    widen(value_, in.data() + values_at(), values, selected);
    for (std::uint32_t j = 0; j < selected; ++j) values[j] *= std::bit_cast<float>(fp16::scale_bits(scale));
  } else {
    std::memcpy(values, in.data() + values_at(), value_bytes);
  }
  if (!all_finite(values, selected)) return false;
  if (dense) bitmap::add(places.data(), count, values, acc);
  else
    for (std::uint32_t j = 0; j < selected; ++j) acc[indices[j]] += values[j];
  return true;
}

}  // namespace crimp
