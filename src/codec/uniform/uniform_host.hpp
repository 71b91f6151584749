// What QSGD, TernGrad and max-min have in common on the host: one block's statistics, codes and values, in SIMD.
#pragma once
#include <algorithm>
#include <cstring>

#include "codec/coding/bit_pack.hpp"
#include "codec/registry.hpp"
#include "codec/uniform/uniform.hpp"

namespace crimp::uniform {

// Of a = values + in; in may be null.
Extent reach(const float* values, const float* in, std::uint64_t count);
Moments squares(const float* values, const float* in, std::uint64_t count);  // of the moments only the squares
Moments moments(const float* values, const float* in, std::uint64_t count);
// Writes the codes of a block, bit_pack::packed_bytes of its count and bits.
void encode_block(const Block&, const RandomCounter&, Rounding, std::uint8_t* bytes);
// acc += the block's values. False where a code is beyond the grid or a bit behind the last element is set.
bool decode_block(const std::uint8_t* bytes, std::uint64_t count, const Grid&, int bits, int offset, float* acc);

inline std::uint64_t blocks_of(std::uint64_t count, std::uint32_t block) { return (count + block - 1) / block; }

// Side information of every block, then the codes of all. `Derived` knows what a block's side information is: Side,
// measure(), grid(), legal().
template <class Derived>
class Blockwise : public Codec {
 public:
  const Traits& traits() const override { return Derived::kTraits; }
  std::size_t piece_bound(std::uint64_t count) const override {
    return blocks_of(count, block_) * sizeof(typename Derived::Side) +
           bit_pack::packed_bytes(count, static_cast<std::uint32_t>(bits_));
  }
  std::size_t encode_piece(const PieceSource& piece, std::uint8_t* bytes) const override {
    std::uint8_t* codes = bytes + blocks_of(piece.count, block_) * sizeof(typename Derived::Side);
    for (std::uint64_t at = 0; at < piece.count; at += block_) {
      const float* in = piece.residual_in ? piece.residual_in + at : nullptr;
      Block block{piece.values + at,
                  in,
                  piece.residual_out ? piece.residual_out + at : nullptr,
                  std::min<std::uint64_t>(block_, piece.count - at),
                  {},
                  bits_,
                  offset_,
                  static_cast<std::uint32_t>(at / bit_pack::kTile)};
      const auto side = derived().measure(block, &block.grid);
      std::memcpy(bytes, &side, sizeof side);
      bytes += sizeof side;
      encode_block(block, piece.counter, rounding_, codes);
      codes += bit_pack::packed_bytes(block.count, static_cast<std::uint32_t>(bits_));
    }
    return piece_bound(piece.count);
  }
  bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                        float* acc) const override {
    if (in.size() != piece_bound(count)) return false;
    const std::uint8_t* codes = in.data() + blocks_of(count, block_) * sizeof(typename Derived::Side);
    for (std::uint64_t at = 0, b = 0; at < count; at += block_, ++b) {
      typename Derived::Side side;
      std::memcpy(&side, in.data() + b * sizeof side, sizeof side);
      const std::uint64_t n = std::min<std::uint64_t>(block_, count - at);
      const Grid grid = derived().grid(side);
      if (!Derived::legal(side) || !finite(grid)) return false;
      if (!decode_block(codes, n, grid, bits_, offset_, acc + at)) return false;
      codes += bit_pack::packed_bytes(n, static_cast<std::uint32_t>(bits_));
    }
    return true;
  }

 protected:
  Blockwise(std::uint32_t block, int bits, int offset, Rounding rounding)
      : block_(block), bits_(bits), offset_(offset), rounding_(rounding) {}
  std::uint32_t block_;
  int bits_, offset_;
  Rounding rounding_;

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
};

}  // namespace crimp::uniform
