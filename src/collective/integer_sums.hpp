// Sums of indices instead of values (codec/homomorphic.hpp), as far as both algorithms on them agree. Per chunk: the
// norms of all ranks go to all ranks, who quantise with the largest; the integers that the indices stand for are added
// up; every rank decodes the sums once. Who adds is the algorithm's: the indices' owners (homomorphic.cpp) or MPI
// (integer_sum.cpp). Integers, so both give the same bits.
#pragma once
#include <cstdint>
#include <vector>

#include "codec/homomorphic.hpp"
#include "collective/algorithms.hpp"
#include "collective/partition.hpp"
#include "collective/pipeline.hpp"

namespace crimp {

// Parts of an arena, one behind another; of none (null) only their bytes.
class ArenaParts {
 public:
  explicit ArenaParts(Arena* arena) : arena_(arena) {}
  template <class T>
  T* take(std::uint64_t count) {
    bytes_ += Arena::padded(count * sizeof(T));
    return arena_ ? reinterpret_cast<T*>(arena_->take(count * sizeof(T))) : nullptr;
  }
  std::uint64_t bytes() const { return bytes_; }

 private:
  Arena* arena_;
  std::uint64_t bytes_ = 0;
};

// What both algorithms know of a part: its largest chunk's sizes.
class IntegerRoute : public ChunkedRoute {
 public:
  // A chunk's exchanges follow one another, each hidden behind work on the neighbouring chunks, so there are many small
  // chunks: so many are open.
  static constexpr std::uint64_t kMostChunk = 20 * kPieceElements;
  static constexpr std::size_t kOpen = 5;
  // Sums and what they are made of are under way for two chunks at once.
  static constexpr std::size_t kSumming = 2;
  // A chunk's coordinates are a multiple of this, and are shared out in such units: multiples of 64 bytes as indices of
  // 2, 3 or 4 bits and as sums of any width.
  static constexpr std::uint64_t kUnit = 512;

  IntegerRoute(Algorithm, const PartPlan&, std::uint64_t chunk, int ranks);
  const Homomorphic& codec() const { return *part.codec->homomorphic(); }

  std::uint64_t norms, coordinates;  // of the largest chunk
  int width;                         // bits of a sum

 protected:
  void set_bytes(const ArenaParts& parts) { bytes_ = {parts.bytes(), parts.bytes(), 0}; }
};

class IntegerSums : protected Pipeline {
 public:
  static constexpr std::size_t kOpen = IntegerRoute::kOpen, kSumming = IntegerRoute::kSumming;
  static constexpr std::uint64_t kUnit = IntegerRoute::kUnit;
  // What both algorithms take of the arena.
  struct Scratch {
    Scratch(const IntegerRoute&, ArenaParts&);
    struct Norms {
      float *mine, *shared;
      std::uint8_t* received;  // of all ranks
    };
    Norms norms[kOpen];
    std::uint8_t* indices;  // of one chunk
    std::uint16_t* sums;
  };

 protected:
  IntegerSums(Transport&, Workers&, const IntegerRoute&, const CallBuffers&, Trace*);

  struct Chunk {
    Header mine;
    std::vector<Header> headers;  // of all ranks
    BoundSlice bound;
    std::vector<std::uint64_t> norm_at, coordinate_at;  // per piece, where its norms and coordinates begin
    std::uint64_t coordinates = 0;
    bool good = true;  // all that has arrived so far
    Transport::Ticket headers_under_way = 0, norms_under_way = 0;
  };
  Chunk& chunk(std::uint64_t i) { return open_[i % kOpen]; }
  const Scratch::Norms& norms(std::uint64_t i) const { return integers_.norms[i % kOpen]; }

  // The steps before indices: the norms of a chunk, and a round later to all ranks.
  void find_norms(std::uint64_t i);
  void accept_headers(std::uint64_t i);
  void start_headers(std::uint64_t i);
  void start_norms(std::uint64_t i);
  Transport::Ticket headers_of(std::uint64_t i) { return chunk(i).headers_under_way; }
  Transport::Ticket norms_of(std::uint64_t i) { return chunk(i).norms_under_way; }
  // With the norms, which have arrived, makes indices() of the chunk, unless they are corrupt (Chunk::good).
  void quantise(std::uint64_t i);
  // Decodes sums(), unless something is corrupt. Exchanges go on in any case, so that no rank waits for this one; the
  // error is the call's result.
  void decode_sums(std::uint64_t i);

  std::uint8_t* indices() const { return integers_.indices; }
  std::uint16_t* sums() const { return integers_.sums; }
  std::uint64_t index_bytes(std::uint64_t n) const { return n * codec_.index_bits() / 8; }

  const Homomorphic& codec_;
  ArenaParts parts_;  // of the call's arena

 private:
  bool share_norms(std::uint64_t i);  // joins those of all ranks; false: some are corrupt
  void count_gathered(std::uint64_t bytes);
  PieceSource source(const Chunk&, std::size_t piece) const;
  template <class Fn>
  void each_piece(const Chunk&, Fn&&);

  const std::vector<Slice>& slices_;
  Scratch integers_;
  Chunk open_[kOpen];
};

// What the rows of both have alike; names, costs and what runs are theirs.
AlgorithmEntry integer_sums_entry();

}  // namespace crimp
