// What became of calls when their ranks had seen each other's values: where a rank's are no gradient's, or beyond what
// the codec carries (WireFlag), MPI has carried the call, behind an exchange by which all learnt it. Metrics, a
// solver's vectors, a training that has diverged: such calls come again and again, and payloads are exchanged for
// nothing. So from the third one in a row on they are asked about by headers first: who is asked says so before
// anything of weight is sent.
#pragma once
#include <cstdint>
#include <optional>
#include <tuple>

#include "collective/shares.hpp"
#include "core/bounded_map.hpp"
#include "core/types.hpp"
#include "mpi/request.hpp"

namespace crimp {

// A communicator's, equal on all its ranks where no call of MPI's has failed on some of them. Every member is called on
// all ranks alike. Not thread-safe.
class DeclinedCalls {
 public:
  // Of the call under way, before anything of it is sent: it will likely be declined. Makes the room that ended()
  // needs.
  bool expected(const AllreduceRequest&);
  // It was exchanged, and has been declined, or summed. Allocates nothing.
  void ended(const AllreduceRequest&, bool declined) noexcept;
  void clear() { in_a_row_.clear(); }

 private:
  static constexpr std::uint8_t kInARow = 2;
  // Count, type, digest of the layout where there are names, collective, end of the first share.
  using Key = std::tuple<std::uint64_t, Dtype, std::optional<std::uint64_t>, Collective, std::uint64_t>;
  static Key key_of(const AllreduceRequest&);
  static constexpr std::size_t kMost = 1024;
  BoundedMap<Key, std::uint8_t> in_a_row_{kMost};
};

}  // namespace crimp
