// How a call's elements are cut: into chunks, which travel one after another, and some algorithms cut chunks into
// shards.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "codec/payload.hpp"
#include "collective/plan.hpp"

namespace crimp {

// A run of a call's elements, cut for a codec: groups end where segments do.
struct Slice {
  Slice(const Layout&, std::uint64_t begin, std::uint64_t end);
  Slice(std::uint64_t from, std::uint64_t end) : begin(from) {
    partition.add_gap(end - from);
  }  // of which nothing is read or written
  std::uint64_t footprint() const {
    return sizeof *this + partition.pieces().size() * (sizeof(ChunkPartition::Piece)) +
           segments.size() * (sizeof(Group) + 8);
  }

  std::uint64_t begin;  // in the call
  ChunkPartition partition;
  std::vector<std::uint32_t> segments;  // of the groups
};

// What Slice(layout, begin, end).partition.body_bound(codec) is, found without memory.
std::uint64_t body_bound(const Codec&, const Layout&, std::uint64_t begin, std::uint64_t end);

// A route whose calls go chunk by chunk.
class ChunkedRoute : public RoutePlan {
 public:
  ChunkedRoute(Algorithm, const PartPlan&, std::uint64_t chunk, int ranks);
  void prepare(Backend&) const override;
  std::uint64_t footprint() const override;
  RouteBytes bytes(const std::vector<powersgd::Extents*>&) const override;

  // The first alone where the part is declined. Of runs one each.
  const std::vector<Slice>& chunks() const { return chunks_; }
  // Of new residuals that wait aside, twice, and of encode_body(); what Pipeline::begin() takes.
  std::uint64_t spare_bytes() const;
  std::uint64_t spare_states() const;  // floats of them before the states
  std::uint64_t scratch_bytes() const;

 protected:
  // Of runs of elements that are not one behind another, `at_once` of them a chunk.
  struct Runs {
    std::vector<Shares::Run> runs;
    std::size_t at_once;
    std::uint64_t elements;  // of the largest chunk, or more
  };
  ChunkedRoute(Algorithm, const PartPlan&, const Runs&, int ranks);
  // The largest of bound(partition) over the chunks.
  template <class Bound>
  std::uint64_t largest(Bound bound) const {
    std::uint64_t most = 0;
    for (const Slice& slice : chunks_) most = std::max<std::uint64_t>(most, bound(slice.partition));
    return most;
  }
  Slice slice(std::uint64_t begin, std::uint64_t end) const {
    return part.declined ? Slice(begin, end) : Slice(*part.layout, begin, end);
  }
  // Bodies, and besides what begin() takes.
  void set_bytes(std::uint64_t bodies, std::uint64_t besides = 0);  // besides: of values

  RouteBytes bytes_;

 private:
  std::vector<Slice> chunks_;
  std::size_t at_once_ = 1;
};

}  // namespace crimp
