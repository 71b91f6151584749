// INCEPTIONN on the host. All three codes of every element are made by loops that vectorise; then every element is
// written to all three arrays of the piece and only one of them moves on, so that nothing branches on the data.
#include "codec/inceptionn/inceptionn.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "codec/coding/bit_plane.hpp"
#include "codec/payload.hpp"
#include "codec/registry.hpp"
#include "memory/thread_scratch.hpp"

namespace crimp {
namespace inceptionn {
namespace {

// Of every element of a piece, or of those of a class in element order; one place more for what is written or read but
// does not count.
struct Arrays {
  alignas(64) std::uint8_t classes[kPieceElements + 8];
  alignas(64) std::uint8_t bytes[kPieceElements + 8];
  alignas(64) std::uint16_t halves[kPieceElements + 8];
  alignas(64) float floats[kPieceElements + 8];
};

struct DecodeRoom {
  Arrays from, of;
};
struct EncodeRoom {
  Arrays of, to;
};

class Inceptionn final : public Codec {
 public:
  explicit Inceptionn(const SpecValues& values)
      : bound_exponent_(-values[kLog2Bound]), limits_(limits_of(bound_exponent_)) {}
  const Traits& traits() const override { return kTraits; }
  std::uint32_t parameter_word() const override { return static_cast<std::uint32_t>(bound_exponent_); }
  std::size_t piece_bound(std::uint64_t count) const override {
    return 2 * bit_plane::bytes_of(count) + count * sizeof(float);
  }

  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* out) const override {
    // Copies of the pointers: bytes that are written might be the piece's own.
    const float *const values = piece.values, *const residual = piece.residual_in;
    if (residual)
      return encode(
          piece, [=](std::uint64_t i) { return values[i] + residual[i]; }, out);
    return encode(
        piece, [=](std::uint64_t i) { return values[i]; }, out);
  }

  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    const std::uint64_t plane = bit_plane::bytes_of(count);
    if (in.size() < 2 * plane) return false;
    const std::uint8_t *const low = in.data(), *const high = low + plane;
    if (!bit_plane::padded_with_zeros(low, count) || !bit_plane::padded_with_zeros(high, count)) return false;
    std::size_t bytes = 0, halves = 0, floats = 0;
    for (std::uint64_t b = 0; b < plane; ++b) {
      const unsigned l = low[b], h = high[b];
      bytes += static_cast<std::size_t>(std::popcount(l & ~h));
      halves += static_cast<std::size_t>(std::popcount(h & ~l));
      floats += static_cast<std::size_t>(std::popcount(h & l));
    }
    if (in.size() != 2 * plane + bytes + 2 * halves + 4 * floats) return false;
    const Limits limits = limits_;
    auto& [from, of] = thread_scratch_as<DecodeRoom>();
    std::memcpy(from.bytes, high + plane, bytes);
    std::memcpy(from.halves, high + plane + bytes, 2 * halves);
    std::memcpy(from.floats, high + plane + bytes + 2 * halves, 4 * floats);
    for (std::size_t i = 0; i < floats; ++i)
      if (!std::isfinite(from.floats[i])) return false;
    from.bytes[bytes] = 0;
    from.halves[halves] = 0;
    from.floats[floats] = 0;
    for (std::uint64_t b = 0; b < plane; ++b) {
      const std::uint64_t eight = bit_plane::spread(low[b]) | bit_plane::spread(high[b]) << 1;
      std::memcpy(of.classes + 8 * b, &eight, sizeof eight);
    }
    bytes = halves = floats = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t c = of.classes[i];
      of.bytes[i] = from.bytes[bytes];
      of.halves[i] = from.halves[halves];
      of.floats[i] = from.floats[floats];
      bytes += c == kByte;
      halves += c == kHalf;
      floats += c == kFloat;
    }
    for (std::uint64_t i = 0; i < count; ++i)
      acc[i] += decode(of.classes[i], of.bytes[i], of.halves[i], of.floats[i], limits);
    return true;
  }

  static constexpr Traits kTraits{.name = "inceptionn",
                                  .wire_id = 13,
                                  .fixed_size = false,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = kMaxMagnitude};

 private:
  // a(i): element i of what is encoded.
  template <class A>
  std::size_t encode(const PieceSource& piece, A&& a, std::uint8_t* out) const {
    const std::uint64_t count = piece.count, plane = bit_plane::bytes_of(count);
    const Limits limits = limits_;  // bytes that are written might be its own, were it not a copy
    auto& [of, to] = thread_scratch_as<EncodeRoom>();
    for (std::uint64_t i = 0; i < count; ++i) {
      const float x = a(i), magnitude = std::fabs(x);
      of.classes[i] = static_cast<std::uint8_t>(class_of(magnitude, limits));
      of.bytes[i] = static_cast<std::uint8_t>(byte_code(x, magnitude, limits));
      of.halves[i] = static_cast<std::uint16_t>(half_code(x, magnitude));
      of.floats[i] = x;
    }
    std::memset(of.classes + count, 0, 8);
    for (std::uint64_t b = 0; b < plane; ++b) {
      std::uint64_t eight;
      std::memcpy(&eight, of.classes + 8 * b, sizeof eight);
      out[b] = bit_plane::gather(eight);
      out[plane + b] = bit_plane::gather(eight >> 1);
    }
    std::size_t bytes = 0, halves = 0, floats = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t c = of.classes[i];
      to.bytes[bytes] = of.bytes[i];
      to.halves[halves] = of.halves[i];
      to.floats[floats] = of.floats[i];
      bytes += c == kByte;
      halves += c == kHalf;
      floats += c == kFloat;
    }
    std::uint8_t* end = out + 2 * plane;
    const auto append = [&](const void* from, std::size_t size) {
      std::memcpy(end, from, size);
      end += size;
    };
    append(to.bytes, bytes);
    append(to.halves, 2 * halves);
    append(to.floats, 4 * floats);
    if (piece.residual_out)
      for (std::uint64_t i = 0; i < count; ++i)
        piece.residual_out[i] = of.floats[i] - decode(of.classes[i], of.bytes[i], of.halves[i], of.floats[i], limits);
    return static_cast<std::size_t>(end - out);
  }

  int bound_exponent_;
  Limits limits_;
};

}  // namespace
}  // namespace inceptionn

CodecEntry inceptionn_entry() {
  return {
      {.summary = "0, 8, 16 or 32 bits by the size of the value, under an absolute error bound",
       .formula =
           "B = 2^log2_bound, H = 2^-ceil(-log2_bound / 2): d = 0 where |a| < B; a to a multiple of H/128 where |a| < H, of 2^-15 where |a| < 1; else a",
       .source = "INCEPTIONN: Li et al., MICRO 2018",
       .bits = "2 to 34",
       .use = "gradients within (-1, 1) whose scale is known: the bound is absolute",
       .traits = inceptionn::Inceptionn::kTraits,
       .parameters = {inceptionn::kLog2Bound}},
      make_as<inceptionn::Inceptionn>};
}

}  // namespace crimp
