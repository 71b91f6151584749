// What became of calls when their ranks had seen each other's values: where a rank's are no gradient's, or beyond what
// the codec carries (WireFlag), MPI has carried the call, behind an exchange by which all learnt it. Metrics, a
// solver's vectors, a training that has diverged: such calls come again and again, and the exchange is for nothing.
#pragma once
#include <cstdint>
#include <optional>
#include <tuple>

#include "collective/shares.hpp"
#include "core/bounded_map.hpp"
#include "core/pass_reason.hpp"
#include "core/types.hpp"
#include "mpi/request.hpp"

namespace crimp {

// A communicator's, equal on all its ranks: every member is called on all ranks alike. Not thread-safe.
class DeclinedCalls {
 public:
  // Declined calls in a row from which on the next one is asked about by headers, before any payload leaves. From
  // kLeave on of values that no gradient has, or from kLeaveLate on where there have been gradients among them, some
  // are not asked about at all: as many in a row as an eighth of those that were declined, and kMostLeft at most. Else
  // tensors of one size whose squares are summed as well would go to MPI with these.
  static constexpr std::uint32_t kHeadersFirst = 2, kLeave = 64, kLeaveLate = 4096, kMostLeft = 64;
  enum class Next {
    usual,
    headers_first,  // it will likely be declined: whoever is asked says so before anything of weight is sent
    left,           // it is MPI's, because no gradient has such values, and nobody is asked
  };

  // What the call under way takes. may_leave: nothing but its sum is wanted, of no tensor that has a name or is known.
  Next next(const AllreduceRequest&, bool may_leave);
  // A call that was exchanged has been declined for `why`, or summed.
  void ended(const AllreduceRequest&, std::optional<PassReason> why);
  void clear() { kinds_.clear(); }

 private:
  struct Kind {
    std::uint32_t declined = 0;      // in a row
    std::uint32_t no_gradients = 0;  // of these the last ones, for that reason
    std::uint32_t left = 0;          // since the last one that was not
    bool summed = false;             // one has been, so that some are gradients
  };
  // Count, type, digest of the layout where there are names, collective, end of the first share.
  using Key = std::tuple<std::uint64_t, Dtype, std::optional<std::uint64_t>, Collective, std::uint64_t>;
  static Key key_of(const AllreduceRequest&);
  static constexpr std::size_t kMost = 1024;
  BoundedMap<Key, Kind> kinds_{kMost};
};

}  // namespace crimp
