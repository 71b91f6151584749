// Calls of which is known that they pass, because plain MPI is faster: they are decided without looking at them.
#pragma once
#include <cstdint>
#include <optional>
#include <tuple>

#include "collective/account.hpp"
#include "collective/call_plan.hpp"
#include "collective/chooser.hpp"
#include "core/bounded_map.hpp"
#include "mpi/request.hpp"

namespace crimp {

// A communicator's, equal on all its ranks. Not thread-safe.
class KnownPasses {
 public:
  struct Pass {
    // Digest; none: of tensors that the sequence of calls knows, or that need not be known. Which passes are remembered
    // must be equal on all ranks, where a layout may be another object each time.
    std::optional<std::uint64_t> layout;
    std::uint64_t count;
    Dtype dtype;
    std::shared_ptr<const Shares> shares = nullptr;
    std::uint64_t kind = 0;  // CallPlan::kind_digest
    Chooser::Settled settled = {};
    // Null: nobody asks for times. It has learnt what is known of such calls, which does not change while they are
    // settled.
    Account* account = nullptr;
    std::uint64_t elements = 0, plain_bytes = 0;  // of its one part
    int seen = 0;                                 // in a row
    bool of(const AllreduceRequest&) const;
  };
  // Tensors of one size may have codecs of their own: one of them does not speak for the others.
  static constexpr int kInARow = 8;

  const Pass* find(const AllreduceRequest&) const;  // null: not known
  // Such a call has passed, and this was what the chooser says of the next one. What is known of it from now on; the
  // account is the caller's to set.
  Pass& add(const AllreduceRequest&, const CallPlan&, const Chooser::Settled&);
  void clear() { passes_.clear(); }

 private:
  static constexpr std::size_t kMost = 1024;
  // Count, type, digest of the layout, collective, end of the first share.
  using Key = std::tuple<std::uint64_t, Dtype, std::optional<std::uint64_t>, Collective, std::uint64_t>;
  static Key key_of(const AllreduceRequest&);
  BoundedMap<Key, Pass> passes_{kMost};
};

}  // namespace crimp
