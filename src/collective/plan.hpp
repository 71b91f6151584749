// A compressed collective in three parts. PartPlan says what it is about and RoutePlan how one algorithm carries it:
// both are functions of values that are equal on all ranks, made once, and shared by all calls of the same tensors.
// CallBuffers says where the values lie in one call, and is complete before the call starts.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.hpp"
#include "codec/codec.hpp"
#include "collective/shares.hpp"
#include "collective/transport.hpp"
#include "core/types.hpp"
#include "core/values.hpp"
#include "schedule/delay_control.hpp"
#include "schedule/layout.hpp"

namespace crimp {

class Exchange;
class Trace;
class Workers;
namespace powersgd {
struct Extents;  // src/codec/powersgd/powersgd_extents.hpp
}

// The tensors of a call that have one codec.
struct PartPlan {
  const Codec* codec;                    // lives as long as the plan
  std::shared_ptr<const Layout> layout;  // tiles the call's buffer; tensors of other parts are skipped
  std::uint64_t count;                   // elements of the buffer
  Dtype dtype = Dtype::f32;              // the caller's type, for the header
  bool checksum = true;
  bool remembers = false;                          // calls may bring residuals (CallBuffers), else none has any
  bool declined = false;                           // this rank had no memory to plan it: see plan_route()
  std::shared_ptr<const Shares> shares = nullptr;  // null: every rank receives all sums
};

// What of its values the rank has to give to others, in bytes of the caller's type: all, but its own share where there
// are shares; a root has none. What a report calls bytes_in.
std::uint64_t bytes_for_others(const PartPlan&, int rank);

// Bytes of scratch that a call takes.
struct RouteBytes {
  std::uint64_t together = 0;            // of one arena, where the values lie in host memory
  std::uint64_t bodies = 0, values = 0;  // of two, where they lie in a backend's memory
};

// Where one call's values lie. Constant while the call runs.
struct CallBuffers {
  ConstValues in;  // PartPlan::count values; may equal out. Of float32, or both of the program's type where
  Values out;      // the route and the backend convert. out receives the sums, from the element on that follows
  std::uint64_t out_begin = 0;
  // One per segment (null where skipped), or empty: none. The codec's arrays behind one another, its state behind them.
  std::vector<float*> residuals = {};
  // Of sums that this rank encodes as their owner: one per segment and as long, the codec's state_elements() behind
  // (null where skipped), or empty: none.
  std::vector<float*> owner_residuals = {};
  // Of each segment: whether this rank's values are all zeros, beside others that are not. Empty: none is. Where the
  // sum is zeros, too, what the owner of a part of it holds back waits.
  std::vector<bool> idle = {};
  bool idle_waits = false;                // so does what is held back where all of the call's values are zeros
  std::vector<std::uint32_t> turns = {};  // of each segment (Codec::select_in_turn), or empty: `sequence`
  // Algorithm low_rank: what is known of the tensors' shapes, one per segment (null: nothing, and nothing is to be
  // found), or empty. The call adds to it.
  std::vector<powersgd::Extents*> extents = {};
  bool read_again = false;       // what `out` receives is read by the rest of the call
  Arena* arena = nullptr;        // has RoutePlan::bytes(); null: this rank had no memory, which `flags` says
  std::uint8_t* room = nullptr;  // RoutePlan::room bytes of the host's memory, which a rank without an arena has, too
  Arena* values = nullptr;     // of backend->memory(); null where the values lie in host memory and one arena is enough
  Backend* backend = nullptr;  // where `in`, `out` and the memories are; null: in host memory
  std::uint8_t flags = 0;      // WireFlag: this rank's reasons for sending the call through MPI
  bool first = true;           // of the call's parts: until it is accepted MPI may still sum the call
  std::uint32_t sequence = 0;  // compressed calls on this communicator so far
  // Of 31 bits, for RandomCounter: tells this rank from one that has its number in another communicator, where both may
  // sum the same elements in a call of the same number.
  std::uint32_t salt = 0;
  int exponent = 0;      // algorithm one_shot: the values were divided by 2^exponent on this rank
  bool zeros = false;    // algorithm one_shot: all that is sent is 0, so that `exponent` means nothing
  DelayNote delay = {};  // this rank's word to CRIMP_CONTROL
};

// How an algorithm carries a part. Immutable, so any number of calls may use it.
class RoutePlan {
 public:
  RoutePlan(Algorithm carries, const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : id(next_id()), algorithm(carries), part(of), chunk(chunk_elements), ranks(transport_ranks) {}
  virtual ~RoutePlan() = default;
  RoutePlan(const RoutePlan&) = delete;
  RoutePlan& operator=(const RoutePlan&) = delete;

  // This rank's side of one call. The route and all arguments stay as they are until it has ended.
  virtual std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const = 0;
  // Scratch of a call. Of low_rank it depends on what is known of the tensors' shapes by then (CallBuffers::extents).
  virtual RouteBytes bytes(const std::vector<powersgd::Extents*>& extents) const = 0;
  // Makes room in a backend other than the host's (Backend::prepare), once for all calls. Throws Error{out_of_memory}.
  virtual void prepare(Backend&) const {}
  // The runs of the call's elements whose sums this rank of the transport encodes, in order; none where nobody does so.
  virtual std::vector<Shares::Run> owned(int /*rank*/) const { return {}; }
  // Bytes of memory that the plan itself takes, about.
  virtual std::uint64_t footprint() const { return sizeof *this; }

  const std::uint64_t id;     // no other route of the process has it
  const Algorithm algorithm;  // of the headers
  const PartPlan part;
  const std::uint64_t chunk;  // elements, a multiple of kPieceElements
  const int ranks;            // that exchange payloads

  // Facts of the algorithm's row (src/collective/algorithms.hpp), set by plan_route() and in_nodes() before the plan is
  // shared.
  const char* name = "";      // for reports
  bool encodes = true;        // this rank encodes values of its own; false: the leader of its node does
  bool owner_memory = false;  // calls want CallBuffers::owner_residuals
  bool sums_encoded = false;
  bool any_backend = false;
  bool converts = false;
  bool host_bodies = false;
  // Bytes that a rank sends and receives before it hears of the others, and which calls that block have (CallBuffers::
  // room) before they ask for anything that this rank can do without; 0: headers alone.
  std::uint64_t room = 0;

 private:
  static std::uint64_t next_id();
};

// Which groups of `values` are all zeros, in the memory of a backend or, where that is null, the host's.
std::vector<bool> all_zeros(Backend*, const float* values, std::span<const Group>);

}  // namespace crimp
