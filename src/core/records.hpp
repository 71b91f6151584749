// What parts of Crimp count of their work, and say to the report (core/report.hpp).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crimp {

// What looking for the same tensors in calls that name none has come to (src/schedule/call_sequence.hpp), over all
// communicators.
struct SequenceRecord {
  std::uint64_t tensors = 0;  // known by their values; where the codec keeps residuals each has one
  std::uint64_t ambiguous =
      0;  // kinds of calls (count and type) whose tensors could not be told apart, without residuals
  std::uint64_t foreign = 0,
                withdrawn = 0;  // calls that were not the expected tensor's; how often what was known was given up
  std::uint64_t forgotten = 0;  // tensors that were known, where calls have too many counts, or that came no more
};

// What CRIMP_CONTROL decided on one communicator (src/schedule/delay_control.hpp).
struct ControlRecord {
  struct Class {
    std::uint64_t bytes, calls;  // bytes: of its smallest calls
    int level;
    std::vector<std::uint64_t> calls_at;  // each level
  };
  struct Decision {
    std::uint64_t call, bytes;  // of the class with calls from so many bytes
    int from, to;
    const char* why;
    double wait_us, target_us;  // of a call
  };
  std::vector<std::string> ladder;
  std::vector<Class> classes;
  std::vector<Decision> decisions;  // the first ones
  std::uint64_t changes = 0;
};

// What was saved of a communicator's residuals and loaded into them (CRIMP_STATE_DIR, crimp_save, crimp_load).
struct StateRecord {
  std::uint64_t saved = 0;            // generations that this rank wrote
  std::uint64_t failed = 0;           // generations that are not whole, because some rank could not write its part
  std::uint64_t restored = 0;         // tensors that were loaded and came
  std::uint64_t unfit = 0;            // of these, with another count or kind of memory: they began from zeros
  std::uint64_t never_asked_for = 0;  // tensors that were loaded and never came
  double saving_s = 0;                // what the program waited for it, at intervals
};

// A call, or its part to a codec where its tensors have several. Of all, and of each codec, algorithm, reason, layout
// and class of sizes, calls are counted once each, bytes and seconds are added over their parts.
struct CallRecord {
  std::string_view codec = {};  // canonical text of the codec that ran, which outlives this
  const char* layout = "";      // name_of(Layout::Source)
  const char* algorithm = "";
  const char* why = "";                 // this algorithm
  double predicted_s = 0, plain_s = 0;  // by the model, of this algorithm and of plain MPI; 0: not predicted
  std::uint64_t bytes = 0;              // of all of the call's values, whoever receives them; its class of sizes
  // bytes_in: what of these other ranks receive, or sums of it, and so MPI would be given for them; sent_bytes: what
  // it was given (CollectiveResult).
  std::uint64_t bytes_in = 0, sent_bytes = 0, received_bytes = 0;
  double encode_s = 0, wire_s = 0, decode_s = 0, total_s = 0;
  double wait_s = 0;  // CRIMP_SKEW: for the last rank to come, before all of these
  // Of the call's parts; of those that the algorithm carries, for any reason and for this one.
  bool first = true, first_by_algorithm = true, first_for_why = true;
};

// CRIMP_SKEW: what a rank waited for others ahead of calls, and what others waited for it (mpi/arrivals.hpp).
struct SkewRecord {
  std::uint64_t calls = 0;
  double waited_s = 0;
  std::uint64_t last = 0;  // calls to which it came last
  double late_s = 0;       // what all others together waited for it in these, beyond what it waited itself
};

// What calls took, and what they would have taken otherwise, as far as that is known. Seconds.
struct TimeRecord {
  struct Otherwise {
    std::uint64_t calls = 0;  // of which it is known
    double took_s = 0;        // these calls
    double own_s = 0;         // of that what compares with `s`: without waiting for a late rank, where it is known
    double s = 0;             // what they would have taken
    std::uint64_t again = 0;  // as below
    void operator+=(const Otherwise&);
  };
  std::uint64_t calls = 0, elements = 0;
  double took_s = 0;
  Otherwise best;                             // by the fastest of what was measured
  Otherwise plain_measured, plain_predicted;  // by MPI alone
  // Of the calls, those that count with another codec, which has more of their elements: in the sum over codecs they
  // are counted more than once.
  std::uint64_t again = 0;
  void operator+=(const TimeRecord&);
};

}  // namespace crimp
