// What codecs whose payloads are summed as integers (codec/homomorphic.hpp) need of a backend: the steps around the
// exchanges of algorithms homomorphic and integer_sum, made where the values are. All pointers but the pieces' span
// itself are to that memory.
//
// What is started happens in the order of starting, behind what Backend::write() has begun before and ahead of what
// Backend::read() begins afterwards. Not thread-safe. Errors as backend/backend.hpp.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "codec/homomorphic.hpp"
#include "codec/payload.hpp"
#include "core/values.hpp"

namespace crimp {

// A piece of a chunk, with its memory and where its norms and coordinates are among the chunk's.
struct SumPiece {
  std::uint64_t offset;  // of its elements among the chunk's
  const float* residual_in;
  float* residual_out;  // of its first element, or null
  std::uint64_t coordinate;
  std::uint32_t count, norm;
};
struct SumChunk {
  std::span<const SumPiece> pieces;  // of ascending norms and coordinates
  ConstValues values;                // of the chunk's first element, as out; of float32 in host memory
  Values out;
  RandomCounter counter;  // likewise
  bool streamed = false;  // out is written past the caches (memory/streamed.hpp), where that is the host's
};

// A chunk's coordinates are a multiple of this, and are shared out in such units: multiples of 64 bytes as indices of
// 2, 3 or 4 bits and as sums of any width.
inline constexpr std::uint64_t kSumUnit = 512;
// Where share r of so many begins.
constexpr std::uint64_t share_begin(std::uint64_t coordinates, std::uint64_t r, std::uint64_t shares) {
  return coordinates / kSumUnit * r / shares * kSumUnit;
}
// Packed sums (codec/packed_sums.hpp) of a chunk, share r of them at bytes + r * stride. All multiples of 16.
struct PackedShares {
  const std::uint8_t* bytes;
  std::uint64_t stride;
  std::uint32_t shares;
  int width;
};
// Likewise the ranks' indices of one share.
struct IndexShares {
  const std::uint8_t* bytes;
  std::uint64_t stride;
  std::uint32_t ranks;
};

class SumSteps {
 public:
  virtual ~SumSteps() = default;
  // Before a call's first header: what its steps need that there might be no memory for. Throws Error{out_of_memory}.
  virtual void load() {}
  // As the functions of Homomorphic, for all pieces of a chunk.
  virtual void norms(const SumChunk&, float* norms, const Progress&) = 0;
  // Zeros behind the last piece's indices, up to `coordinates`.
  virtual void encode(const SumChunk&, const float* norms, std::uint64_t coordinates, std::uint8_t* indices,
                      const Progress&) = 0;
  virtual void decode(const SumChunk&, const std::uint16_t* sums, const float* norms, int ranks, const Progress&) = 0;
  // The integers that indices stand for, of `bytes` (1 or 2) each.
  virtual void integers(const std::uint8_t* indices, std::uint64_t coordinates, int bytes, void* to) = 0;
  // Their sums over the ranks, packed. scratch: `coordinates` elements.
  virtual void add(const IndexShares&, std::uint64_t coordinates, int width, std::uint16_t* scratch, std::uint8_t* to,
                   const Progress&) = 0;
  // All shares' sums. largest, one for each share and 0 before, receive the share's largest sum where that is above
  // `most`.
  virtual void unpack(const PackedShares&, std::uint64_t coordinates, std::uint32_t most, std::uint16_t* sums,
                      std::uint32_t* largest) = 0;
  // Everything that was started, and what the backend reads and writes, is complete. `progress` is called while
  // waiting.
  virtual void finish(const Progress& progress) = 0;
};

// In host memory: complete when a step returns. The codec is Homomorphic and outlives it.
std::unique_ptr<SumSteps> host_sum_steps(const Codec&, Workers&);

}  // namespace crimp
