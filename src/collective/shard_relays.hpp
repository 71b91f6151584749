// two_shot's exchanges by relays (relay.hpp): a chunk's shards to their owners, then the sums of these to every rank;
// both times headers first, then bodies.
//
// Relays have to be led on: at the same points of the call on all ranks, because what is started must be in one order.
// So a step of the call that works on all shards of a chunk does it in parts, and after each one every relay that is
// under way has its turn; and a step that needs what a relay brings leads it to its end. Of each kind one is under way
// at a time: it ends before that of the next chunk begins.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "collective/relay.hpp"
#include "memory/memory_resource.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

// One call's. Nothing of it allocates but its construction.
class ShardRelays {
 public:
  // In their order for one chunk.
  enum Kind { kHeaders, kBodies, kSumHeaders, kSumBodies, kKinds };
  // What the call does at each exchange: waits for it on behalf of a chunk; notes that a step of a relay has started.
  using Wait = std::function<void(Transport::Ticket, std::uint64_t chunk)>;
  using Started = std::function<void(const Relay&)>;
  // No shard's body is longer than `largest`.
  ShardRelays(Transport&, int radix, std::uint64_t largest, Wait, Started);

  // Bytes that take() takes of the call's arena, which the host can read and write; bodies need them.
  static std::uint64_t transit_bytes(std::uint64_t ranks, std::uint64_t largest);
  void take(Arena&);

  // Each begins one relay of a chunk, where that of its kind has ended; what is named stays as it is until it has.
  // mine[q] goes to rank q, theirs[r] comes from rank r.
  void scatter_headers(std::uint64_t chunk, const std::vector<Header>& mine, std::vector<Header>& theirs);
  // The bodies of the headers that came last. That for rank q is at mine + offsets[q], that of rank r ends at theirs +
  // r * largest.
  void scatter(std::uint64_t chunk, const std::uint8_t* mine, std::span<const std::uint64_t> offsets,
               std::uint8_t* theirs);
  void gather_headers(std::uint64_t chunk, const Header& mine, std::vector<Header>& all);
  // bytes: of every rank's body; offsets: says where in `all` each one ends.
  void gather(std::uint64_t chunk, const std::uint8_t* mine, std::span<const std::uint64_t> bytes, std::uint8_t* all,
              std::span<std::uint64_t> offsets);

  // Before a step's work on what a chunk's relay of this kind brings: leads on what has to end by then, which is that
  // relay, and the one of the next kind, which this work begins anew. False: the work may begin; else the step comes
  // again.
  bool lead_on(Kind, std::uint64_t chunk);
  // What lead_on() would wait for; Pipeline::kNothing: nothing.
  Transport::Ticket due(Kind, std::uint64_t chunk) const;

  // A step's work(first, last) on all shards. Does the next part, or leads on the relay whose turn it is behind the
  // last one; true: the step comes again.
  template <class Work>
  bool in_parts(Work work) {
    if (lead_turn()) return true;
    const auto part = next_part();
    if (part) work(part->first, part->last);
    return part.has_value();
  }
  // What in_parts() would wait for; Pipeline::kNothing: nothing.
  Transport::Ticket turn() const;

 private:
  struct Part {
    std::size_t first, last;
  };
  Kind to_end(Kind, std::uint64_t chunk) const;
  void begun(Kind, std::uint64_t chunk);
  void advance(Kind);
  Kind next_turn() const;
  bool lead_turn();
  std::optional<Part> next_part();

  const std::uint64_t largest_;
  const Wait wait_;
  const Started started_;
  const std::size_t rank_, ranks_;
  HeaderRelay headers_;
  ScatterRelay bodies_;
  GatherRelay sum_headers_, sum_bodies_;
  Relay* const all_[kKinds] = {&headers_, &bodies_, &sum_headers_, &sum_bodies_};
  std::uint64_t chunk_[kKinds] = {};         // of the last ones
  std::vector<Header> arriving_;             // of sums, this rank's first
  std::vector<Header>* gathered_ = nullptr;  // where these go
  std::vector<std::uint64_t> header_bytes_;
  std::uint8_t *leaving_ = nullptr, *arrived_ = nullptr;  // transit
  const std::size_t parts_;                               // as many as the longest relay has steps
  std::size_t part_ = 0;                                  // the next one of the step that runs
  Kind turn_ = kKinds;                                    // whose it is at the earliest; kKinds: nobody's
};

// Seconds of a chunk's exchanges by relays of the query's radix, where the largest shard has so many elements.
double shard_relays_s(const CostQuery&, double largest_shard);

}  // namespace crimp
