// Spans of time for CRIMP_TRACE, in the Chrome trace event format that Perfetto opens: docs/traces.md says what is in
// the file. Thread-safe; off: one branch per span, at the callers.
//
// A process of the format is a rank, a thread of the format one track of one thread of the rank. Spans that begin while
// another of their track runs either end in it, and are drawn below it, or go to a further row of that track.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.hpp"
#include "core/clock_line.hpp"
#include "core/records.hpp"

namespace crimp {

struct Settings;

class Trace {
 public:
  enum class Track : std::uint8_t { wait, calls, encode, wire, under_way, decode, passed, other };
  // ranks: whose traces become one file, which the first of them has in memory: more than kAlone keep less each.
  explicit Trace(int ranks = 1) : share_(static_cast<std::size_t>((std::max(1, ranks) + kAlone - 1) / kAlone)) {}
  static constexpr int kAlone = 16;

  // Work on a chunk of a call. name: a literal, which says the track.
  void add(const char* name, std::uint32_t call, std::uint32_t chunk, Clock::time_point begin,
           Clock::time_point end) noexcept;

  // What the file says of a call, or of its part to a codec. Texts are copied, `const char*` are literals.
  struct Call {
    std::string_view label = {};     // its tensors
    std::uint32_t communicator = 0;  // of communicator()
    std::uint32_t call = 0;          // as in add()
    const char* dtype = "";
    std::uint64_t elements = 0, bytes = 0;  // a part's own, in the caller's type; record.bytes: all of the call's
    CallRecord record = {};
    bool blocks = true;  // false: it lasts from the call to its completion, any number at a time
  };
  void call(const Call&, Clock::time_point begin, Clock::time_point end) noexcept;
  // A call that MPI did; why: PassReason's text.
  void passed(const char* why, std::uint64_t count, Clock::time_point begin, Clock::time_point end) noexcept;
  // CRIMP_SKEW: ahead of a call this rank waited for the others, of whom `last` (in MPI_COMM_WORLD; -1: not known) came
  // last, and `lost` seconds for its sake.
  void waited(std::uint32_t communicator, std::uint32_t call, int last, double lost_s, Clock::time_point begin,
              Clock::time_point end) noexcept;

  // A number for a communicator of these ranks, and whether there have been others of the same.
  std::uint32_t communicator(const std::string& ranks) noexcept;

  struct Rank {
    int rank;
    std::string host;
    ClockLine clock;
  };
  // This rank's events, comma separated, no brackets: JSON in UTF-8 whatever the names are.
  std::string events(const Rank&) const;

 private:
  enum class Kind : std::uint8_t { work, call, nonblocking, passed, waited };
  struct Span {
    const char* name;  // literal; of calls unused
    Clock::time_point begin, end;
    std::uint64_t thread;
    std::uint64_t of;  // passed: elements; waited: nanoseconds lost; calls: index in details_
    std::uint32_t call;
    std::int32_t chunk;  // waited: who was last
    std::uint32_t communicator;
    Kind kind;
    Track track;
  };
  struct Detail {  // of calls
    std::uint32_t label, codec;
    const char *dtype, *algorithm, *why, *layout;
    std::uint64_t elements, bytes, bytes_in, sent, received;
  };
  // Of each kind so many spans are kept, or a share of them: later ones, and those without memory, are dropped and
  // counted.
  static constexpr std::array<std::size_t, 5> kMost = {1u << 20, 1u << 18, 1u << 18, 1u << 18, 1u << 18};
  // Texts are kept once each, so many and so long.
  static constexpr std::size_t kMostTexts = 1u << 15, kLongestText = 200;

  // With the lock held. text() alone may throw.
  bool has_room(Kind) noexcept;
  void keep(Span) noexcept;
  std::uint32_t text(std::string_view);

  friend class TraceText;
  const std::size_t share_;
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  std::vector<Detail> details_;
  std::vector<std::string> texts_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;  // of texts_
  std::vector<std::string> communicators_;
  std::array<std::size_t, 5> kept_{}, dropped_{};
};

// The file, from the events of all ranks; empty ones are of ranks that could not make theirs.
std::string trace_file(const Settings&, const std::vector<std::string>& of_ranks);

}  // namespace crimp
