// Codecs whose payloads are summed without being decoded: all ranks quantise with the same norms, and the integers that
// their indices stand for add up. Exact sums, so every order and every algorithm gives the same result.
//
// A piece is sent as indices of coordinates, tile by tile: a tile is 128 coordinates and 16 * index_bits() bytes.
// Threading and errors as Codec.
#pragma once
#include <cstdint>

#include "codec/codec.hpp"

namespace crimp {

class Homomorphic {
 public:
  static constexpr std::uint64_t kTile = 128;
  static constexpr std::uint32_t kMostSum = 65535;

  virtual ~Homomorphic() = default;
  // Of a piece of `count` elements. Coordinates are a multiple of kTile.
  virtual std::uint32_t norm_count(std::uint64_t count) const = 0;
  virtual std::uint64_t coordinates(std::uint64_t count) const = 0;
  virtual std::uint32_t index_bits() const = 0;
  // Sums over n ranks are at most n * granularity(), which must be at most kMostSum.
  virtual std::uint32_t granularity() const = 0;

  // The norms of values + residual_in. Legal norms of several ranks have a legal maximum; a norm 0 says that all values
  // are sent as 0.
  virtual void norms(const PieceSource&, float* norms) const = 0;
  virtual bool legal(float norm) const = 0;
  // Encodes with norms that are at least the piece's own; residual_out as in Codec::encode_piece.
  virtual void encode(const PieceSource&, const float* norms, std::uint8_t* indices) const = 0;
  // sums[i] += the integer of index i.
  virtual void add(const std::uint8_t* indices, std::uint64_t coordinates, std::uint16_t* sums) const = 0;
  // out[i] = the sum of the ranks' decoded values.
  virtual void decode(const std::uint16_t* sums, const float* norms, int ranks, std::uint64_t count,
                      const RandomCounter&, float* out) const = 0;
};

}  // namespace crimp
