// Sums of indices instead of values (codec/homomorphic.hpp), as far as both algorithms on them agree. Per chunk: the
// norms of all ranks go to all ranks, who quantise with the largest; the integers that the indices stand for are added
// up; every rank decodes the sums once. Who adds is the algorithm's: the indices' owners (homomorphic.cpp) or MPI
// (integer_sum.cpp). Integers, so both give the same bits.
//
// What touches values, indices or sums are steps of the backend (SumSteps), in its memory; norms, indices and sums come
// through host memory on their way to other ranks and from them.
#pragma once
#include <cstdint>
#include <vector>

#include "codec/sum_steps.hpp"
#include "collective/algorithms.hpp"
#include "collective/partition.hpp"
#include "collective/pipeline.hpp"

namespace crimp {

// Parts of a call's scratch, one behind another: of the host's, which MPI reads and writes, and of the backend's
// memory, where steps work. Where there is only the one arena both lie in it. Of no arena (null) only their bytes.
class ArenaParts {
 public:
  ArenaParts(Arena* host, Arena* backend) : host_(host), backend_(backend) {}
  template <class T>
  T* host(std::uint64_t count) {
    return take<T>(host_, host_bytes_, count);
  }
  template <class T>
  T* backend(std::uint64_t count) {
    return take<T>(backend_ ? backend_ : host_, backend_bytes_, count);
  }
  // Where the backend finds `count` elements that stand in the host's memory: a copy, or they themselves where it
  // sees them.
  template <class T>
  T* mirror(T* host, std::uint64_t count) {
    mirror_bytes_ += Arena::padded(count * sizeof(T));
    return backend_ ? reinterpret_cast<T*>(backend_->take(count * sizeof(T))) : host;
  }
  RouteBytes bytes() const { return {host_bytes_ + backend_bytes_, host_bytes_, backend_bytes_ + mirror_bytes_}; }

 private:
  template <class T>
  static T* take(Arena* from, std::uint64_t& bytes, std::uint64_t count) {
    bytes += Arena::padded(count * sizeof(T));
    return from ? reinterpret_cast<T*>(from->take(count * sizeof(T))) : nullptr;
  }
  Arena *host_, *backend_;
  std::uint64_t host_bytes_ = 0, backend_bytes_ = 0, mirror_bytes_ = 0;
};

// What both algorithms know of a part: its largest chunk's sizes.
class IntegerRoute : public ChunkedRoute {
 public:
  // A chunk's exchanges follow one another, each hidden behind work on the neighbouring chunks, so there are many small
  // chunks: so many are open. A device has many pieces of work at once, and takes the long chunks that are its own.
  static constexpr std::uint64_t kMostChunk = 20 * kPieceElements;
  static constexpr std::size_t kOpen = 5;
  // Sums and what they are made of are under way for two chunks at once.
  static constexpr std::size_t kSumming = 2;

  IntegerRoute(Algorithm, const PartPlan&, std::uint64_t chunk, int ranks);
  void prepare(Backend& backend) const override {
    if (SumSteps* const steps = backend.sum_steps(*part.codec)) steps->load();
  }
  const Homomorphic& codec() const { return *part.codec->homomorphic(); }

  std::uint64_t pieces, norms, coordinates;  // of the largest chunk
  int width;                                 // bits of a sum

 protected:
  void set_bytes(const ArenaParts& parts) { bytes_ = parts.bytes(); }
};

class IntegerSums : protected Pipeline {
 public:
  static constexpr std::size_t kOpen = IntegerRoute::kOpen, kSumming = IntegerRoute::kSumming;
  // What both algorithms take of the call's scratch. `there`: where the backend's steps find it.
  struct Scratch {
    Scratch(const IntegerRoute&, ArenaParts&);
    struct Of {
      SumPiece *pieces, *pieces_there;
      float *mine, *mine_there, *shared, *shared_there;
      std::uint8_t* received;  // norms of all ranks
    };
    Of chunk[kOpen];
    std::uint8_t* indices;  // of one chunk; where steps work, as the sums
    std::uint16_t* sums;
  };

 protected:
  IntegerSums(Transport&, Workers&, const IntegerRoute&, const CallBuffers&, Trace*);

  struct Chunk {
    Header mine;
    std::vector<Header> headers;  // of all ranks
    BoundSlice bound;
    SumChunk pieces;  // there
    std::uint64_t norm_bytes = 0, coordinates = 0;
    bool good = true;  // all that has arrived so far
    Transport::Ticket headers_under_way = 0, norms_under_way = 0;
  };
  Chunk& chunk(std::uint64_t i) { return open_[i % kOpen]; }

  // The steps before indices: the norms of a chunk, and a round later to all ranks.
  void find_norms(std::uint64_t i);
  void accept_headers(std::uint64_t i);
  void start_headers(std::uint64_t i);
  void start_norms(std::uint64_t i);
  Transport::Ticket headers_of(std::uint64_t i) { return chunk(i).headers_under_way; }
  Transport::Ticket norms_of(std::uint64_t i) { return chunk(i).norms_under_way; }
  // With the norms, which have arrived, makes indices() of the chunk and then what `rest` does with them, unless the
  // norms are corrupt or a step fails (Chunk::good).
  template <class Rest>
  void quantise(std::uint64_t i, Rest&& rest) {
    Chunk& c = chunk(i);
    c.good = share_norms(i);
    if (c.good) c.good = attempt([&] { start_quantise(i), rest(), steps_->finish(mover()); });
  }
  // Decodes sums(), unless something is corrupt. Exchanges go on in any case, so that no rank waits for this one; the
  // error is the call's result.
  void decode_sums(std::uint64_t i);
  // False: a step has failed, which becomes the call's error. Nothing waits for this rank then.
  template <class Work>
  bool attempt(Work&& work) {
    try {
      work();
      return true;
    } catch (const std::exception& e) {
      failed(e);
      return false;
    }
  }
  // What has arrived, or was made here, to where steps find it, and what they made from there.
  void bring(void* there, const void* here, std::size_t bytes) {
    if (there != here && bytes) backend_.write(there, here, bytes);
  }
  void fetch(void* here, const void* there, std::size_t bytes) {
    if (there != here && bytes) backend_.read(here, there, bytes);
  }

  std::uint8_t* indices() const { return integers_.indices; }
  std::uint16_t* sums() const { return integers_.sums; }
  std::uint64_t index_bytes(std::uint64_t n) const { return n * codec_.index_bits() / 8; }

  const Homomorphic& codec_;
  ArenaParts parts_;  // of the call's arenas
  SumSteps* steps_;   // the backend's; null: it has none, so that norms fail

 private:
  const Scratch::Of& scratch(std::uint64_t i) const { return integers_.chunk[i % kOpen]; }
  void place_pieces(std::uint64_t i);
  bool share_norms(std::uint64_t i);  // joins those of all ranks; false: some are corrupt
  void start_quantise(std::uint64_t i);
  void count_gathered(std::uint64_t bytes);

  const std::vector<Slice>& slices_;
  Scratch integers_;
  Chunk open_[kOpen];
};

// What the rows of both have alike; names, costs and what runs are theirs.
AlgorithmEntry integer_sums_entry();

}  // namespace crimp
