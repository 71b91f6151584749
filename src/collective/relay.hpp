// Exchanges in a few steps in place of one message to every rank (Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient
// algorithms for all-to-all communications in multiport message-passing systems", IEEE TPDS 8(11), 1997).
//
// alltoall: a block for the rank at distance d (counted upwards, modulo the ranks) goes the digits of d to base
// `radix` one after another, the lowest first: through the ranks on its way, which store and forward it. A step has one
// digit, and in it a rank sends one message for every value of that digit but 0, with all blocks that it holds and that
// have the value there. Base 2 has the fewest messages, ceil(log2 n) in place of n - 1, and a block travels half of
// them; base ceil(sqrt n) has 2 (base - 1), and a block travels twice. allgather: in every step a rank holds twice as
// many blocks; bytes do not grow.
//
// A step is an alltoallv of the transport's in which most sizes are 0, and MPI sends nothing there: so a step is
// subject to one order on all ranks as every exchange is, and somebody has to start the next one. A step's first
// message always has bytes, 64 zeros where there are none: no collective of MPI's is empty on some ranks only
// (docs/design_notes.md). Blocks arrive as their encoder made them, so who is to blame for one is known as ever.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "collective/transport.hpp"
#include "collective/wire.hpp"
#include "core/types.hpp"

namespace crimp {

// A step of an alltoall, by what one rank sends in it.
struct RelayStep {
  std::uint64_t messages, blocks;
};
RelayStep relay_step(std::uint64_t ranks, std::uint64_t radix, std::uint64_t weight);  // weight: radix^step
int relay_steps(int ranks, int radix);
// The bases to choose among: the smallest of so many steps, for two steps and more. Below kFewestRelayed ranks none:
// little is to be saved.
std::vector<int> relay_radices(int ranks);
inline constexpr int kFewestRelayed = 8;

// An exchange of several steps: begun by begin() of the classes below, then after every wait for ticket() advanced,
// until it is no longer under way. Once it is over it may begin again.
class Relay {
 public:
  Relay(Transport&, int steps);
  virtual ~Relay() = default;
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  bool under_way() const { return under_way_; }
  Transport::Ticket ticket() const { return ticket_; }
  // Takes what the step under way has brought, which has been waited for, and starts the next one if there is one.
  void advance();
  // Of the step under way, to and from other ranks.
  std::uint64_t sent_bytes() const { return sent_bytes_; }
  std::uint64_t received_bytes() const { return received_bytes_; }

 protected:
  // Says by send() and receive() what travels in a step, and returns where these lie: sent from, received at.
  struct Places {
    const std::uint8_t* sent;
    std::uint8_t* received;
  };
  virtual Places leave(int step) = 0;
  virtual void arrive(int step) = 0;
  void begin_steps();
  void send(std::size_t to, std::uint64_t bytes, std::uint64_t offset);
  void receive(std::size_t from, std::uint64_t bytes, std::uint64_t offset);
  std::size_t ranks() const { return ranks_; }
  // The rank so far upwards, modulo the ranks.
  std::size_t at(std::uint64_t distance) const { return (rank_ + distance) % ranks_; }
  std::size_t before(std::uint64_t distance) const { return (rank_ + ranks_ - distance) % ranks_; }

 private:
  void start();
  Transport& transport_;
  std::size_t rank_, ranks_;
  int steps_, step_ = 0;
  bool under_way_ = false;
  Transport::Ticket ticket_ = 0;
  std::uint64_t sent_bytes_ = 0, received_bytes_ = 0;
  std::vector<std::uint64_t> send_bytes_, send_offsets_, bytes_, offsets_;
};

// An alltoall.
class ScatterRelay : public Relay {
 public:
  // vary: blocks have different sizes.
  ScatterRelay(Transport&, int radix, bool vary);
  struct Blocks {
    const std::uint8_t* from;
    std::span<const std::uint64_t> offsets;  // the block for rank q is at from + offsets[q]
    std::uint8_t* to;                        // that of rank r ends at to + r * stride, where others wait before
    std::uint64_t stride;                    // no block is longer
    std::uint8_t *packed, *arrived;          // room for room(ranks, stride) bytes each
  };
  static std::uint64_t room(std::uint64_t ranks, std::uint64_t stride) { return ranks * stride + kPayloadAlign; }
  // bytes: of the blocks that this rank holds before each step and in the end, by their distance: a table of
  // relay_steps() + 1 rows, which is swapped with that of the last time. Where sizes do not vary it is empty, and all
  // have `stride`.
  void begin(const Blocks&, std::vector<std::uint64_t>& bytes);

 protected:
  Places leave(int step) override;
  void arrive(int step) override;
  std::uint64_t row(int step) const { return static_cast<std::uint64_t>(step) * ranks(); }
  // Whether the step moves a block.
  bool moves(int step, std::uint64_t distance) const { return distance / weight(step) % radix_ != 0; }
  const std::uint8_t* held(std::uint64_t distance) const { return blocks_.to + before(distance) * blocks_.stride; }

 private:
  std::uint64_t weight(int step) const;
  std::uint64_t size(int step, std::uint64_t distance) const {
    return bytes_.empty() ? blocks_.stride : bytes_[row(step) + distance];
  }
  std::uint64_t size_of_message(int step, int row) const;
  // Calls of(peer's distance, distance of the block) for what a step moves, message by message.
  template <class Of>
  void each_moved(int step, Of of) const;

  std::uint64_t radix_;
  Blocks blocks_{};
  std::vector<std::uint64_t> bytes_;
};

// An alltoall of headers, which notes what they say of the bodies that are to go the same way.
class HeaderRelay final : public ScatterRelay {
 public:
  HeaderRelay(Transport&, int radix);
  // mine[q] goes to rank q, theirs[r] comes from rank r. No body is longer than `most`.
  void begin(const std::vector<Header>& mine, std::vector<Header>& theirs, std::uint64_t most);
  std::vector<std::uint64_t> bodies;  // the table for the relay of the bodies

 private:
  void arrive(int step) override;
  std::uint64_t body_bytes(const std::uint8_t* header) const;
  std::uint64_t most_ = 0;
  std::vector<std::uint64_t> offsets_, none_;
  std::vector<Header> packed_, arrived_;
};

// An allgather.
class GatherRelay final : public Relay {
 public:
  explicit GatherRelay(Transport&);
  // all: this rank's block, behind it receives the others' in the order of their ranks upwards. bytes: of every rank's
  // block.
  void begin(std::uint8_t* all, std::span<const std::uint64_t> bytes);
  std::uint64_t offset_of(std::size_t rank) const { return ends_[(rank + ranks() - at(0)) % ranks()]; }

 private:
  Places leave(int step) override;
  void arrive(int) override {}
  std::uint8_t* all_ = nullptr;
  std::uint8_t nothing_[2 * kPayloadAlign] = {};
  std::vector<std::uint64_t> ends_;  // of the first 0, 1, ... blocks
};

}  // namespace crimp
