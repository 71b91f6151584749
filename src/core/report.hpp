// What was done: counted while running, said once at the end (summary line, CRIMP_REPORT). Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/history.hpp"

namespace crimp {

struct JobProgress;
struct Settings;

// Why a call went through MPI unchanged. One list makes the enum and the texts.
#define CRIMP_PASSES(ITEM)                                                                           \
  ITEM(off, "switched off")                                                                          \
  ITEM(operation, "not a sum")                                                                       \
  ITEM(type, "not a recognised floating-point type")                                                 \
  ITEM(small, "fewer elements than CRIMP_MIN_COUNT")                                                 \
  ITEM(communicator, "one rank or an intercommunicator")                                             \
  ITEM(odd_arguments, "arguments left to MPI to judge")                                              \
  ITEM(no_codec, "no lossy codec chosen")                                                            \
  ITEM(settings_differ, "settings differ between ranks")                                             \
  ITEM(unknown_layout, "tensors unknown and CRIMP_UNKNOWN_LAYOUT=none")                              \
  ITEM(rules, "tensors excluded by CRIMP_RULES")                                                     \
  ITEM(range, "NaN, Inf or values outside the codec's range")                                        \
  ITEM(outlier, "values far from their tensor's usual size")                                         \
  ITEM(foreign, "values that are not the expected tensor's")                                         \
  ITEM(no_gradient, "values that no gradient has: whole numbers, of one sign, or of an earlier sum") \
  ITEM(first, "first sums of tensors that a trainer names")                                          \
  ITEM(memory, "a rank was out of memory")                                                           \
  ITEM(adasum, "dot products of Horovod's Adasum")                                                   \
  ITEM(slower, "plain MPI faster, or tried")                                                         \
  ITEM(shares, "a codec of whole tensors, of which ranks receive shares")                            \
  ITEM(early, "a communicator's first calls, before anything is measured for it")                    \
  ITEM(nonblocking, "sums that do not block, which one exchange of payloads would not shorten")      \
  ITEM(unprepared, "on ranks whose settings were not compared at MPI_Init")

enum class PassReason : std::size_t {
#define CRIMP_ITEM(name, text) name,
  CRIMP_PASSES(CRIMP_ITEM)
#undef CRIMP_ITEM
      count
};
const char* name_of(PassReason);
const char* text_of(PassReason);

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
  std::string codec;        // canonical text of the codec that ran
  const char* layout = "";  // name_of(Layout::Source)
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

class Report {
 public:
  void passed(PassReason why) { passes_[static_cast<std::size_t>(why)].fetch_add(1, std::memory_order_relaxed); }
  // Where no other thread is in a call of MPI's: without the lock, which takes some 6 ns of a passing call (Zen 3).
  void passed_alone(PassReason why) {
    auto& passes = passes_[static_cast<std::size_t>(why)];
    passes.store(passes.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  void compressed(const CallRecord&);
  // A call of this rank in which something was measured or tried, or too young for it: its time is not that of later
  // ones. learnt(): how many there were.
  void learning() { learnt_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t learnt() const { return learnt_.load(std::memory_order_relaxed); }
  void skew(const SkewRecord&);  // of one communicator, when it ends
  void error() { errors_.fetch_add(1, std::memory_order_relaxed); }
  // Runs work(), which says something here or in the log: of a call that must go on. Where that fails for want of
  // memory it is only counted.
  template <class Work>
  void note(Work&& work) noexcept {
    try {
      work();
    } catch (...) {
      unrecorded_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  // What a part of Crimp that this layer does not know has counted. The last text given under a name stays. json: an
  // object, which the file has under `name`; clause: stands in the summary, empty where there is nothing to say.
  void section(const std::string& name, const std::string& json, const std::string& clause);
  void sequence(const SequenceRecord&);  // of one communicator, when it ends
  // What came of CRIMP_RULES: patterns that no tensor came to, and the first tensor's name; empty: nobody named any.
  void rules(std::vector<std::string> idle, std::string first);
  void control(const ControlRecord&);  // likewise
  void times(const std::string& codec, std::uint64_t from_elements,
             const TimeRecord&);  // likewise, of a class of sizes
  // What was decided on a communicator whose rank 0 this is, when it ends: an object (collective/decisions.hpp). Beyond
  // some communicators, which has_room() knows, they are only counted.
  void decisions(std::string json);
  bool has_room() const;
  // What a communicator's steps were seen to be, when it ends: an object (schedule/step_trace.hpp). Of the first ones.
  void steps(std::string json);
  // Under CRIMP_REPLAY a decision was taken from the record; from its end, where the last one stays; or the record has
  // none for the call.
  enum class Repeat : std::size_t { recorded, beyond, missing, count };
  void repeated(Repeat how) { repeats_[static_cast<std::size_t>(how)].fetch_add(1, std::memory_order_relaxed); }
  void excluded(std::string_view tensor, std::uint64_t count);  // a rule had it summed exactly
  // A compressed call in device memory; `why` not: its values went through host memory. Empty: they did not.
  void on_device(const std::string& why);
  // How often the exchanges of a communicator's ranks were timed.
  void measured(std::uint64_t networks) { measured_.fetch_add(networks, std::memory_order_relaxed); }
  // A call that passed through with buffers copied from and to device memory.
  void staged() { staged_.fetch_add(1, std::memory_order_relaxed); }
  // How the job goes, from now on, before the first call. Null: there will be no report, and nothing is kept.
  void keep_history(Clock::time_point origin) { history_ = std::make_unique<History>(origin); }
  History* history() const { return history_.get(); }
  void state(const StateRecord&);  // of one communicator, when it ends
  void residuals(std::uint64_t bytes) { residual_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  // While the job runs: what has been counted (core/progress.hpp), with the times that sessions say when they are
  // asked, which they see at their next call by a number that has changed.
  JobProgress progress() const;
  void want_times() { times_wanted_.fetch_add(1, std::memory_order_relaxed); }
  std::uint32_t times_wanted() const { return times_wanted_.load(std::memory_order_relaxed); }
  void times_until_now(const void* session, const TimeRecord&);
  void times_ended(const void* session);  // times() has them

  bool compressed_any() const;
  std::string summary() const;  // one or two lines for people
  std::string json() const;     // one rank's object
  // The file: settings, what json() gave on each rank, or that it gave none, and behind them "timeline", a line for
  // each rank of what its History is.
  static std::string of_job(const Settings&, int ranks, const std::string& simd, const char* status,
                            const std::vector<std::string>& of_ranks);

 private:
  struct Sum {
    std::uint64_t calls = 0, bytes_in = 0, sent = 0, received = 0;
    double ratio() const;  // 0: these calls had nothing for other ranks but headers
    double encode = 0, wire = 0, decode = 0, total = 0, wait = 0, predicted = 0, plain = 0;
    void note(const CallRecord&, bool counts);
  };
  static constexpr std::size_t kListed = 256;  // tensors that are listed by name
  struct Excluded {
    std::uint64_t elements, calls;
  };
  mutable std::mutex mutex_;
  std::unique_ptr<History> history_;
  struct Section {
    std::string json, clause;
  };
  std::map<std::string, Section> sections_;
  bool ruled_ = false;
  std::vector<std::string> idle_rules_;
  std::string first_name_;
  SequenceRecord sequence_;
  SkewRecord skew_;
  StateRecord state_;
  std::vector<ControlRecord> controls_;
  static constexpr std::size_t kCommunicators = 1024, kDecisionBytes = std::size_t{32} << 20;
  std::vector<std::string> decisions_;
  std::size_t decision_bytes_ = 0;
  std::uint64_t decisions_left_out_ = 0;  // communicators
  static constexpr std::size_t kStepTraces = 64;
  std::vector<std::string> steps_;
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Repeat::count)> repeats_{};
  std::map<std::string, Excluded, std::less<>> excluded_;
  std::uint64_t excluded_calls_ = 0, excluded_unlisted_ = 0;  // counted by call and tensor
  Sum all_;
  std::map<std::string, Sum> by_codec_;
  std::map<std::string, Sum> by_algorithm_;
  std::map<std::string, std::map<std::string, std::uint64_t>> reasons_;  // by algorithm
  std::map<std::string, Sum> by_layout_;
  std::map<int, Sum> by_size_;  // key: floor(log2(bytes))
  std::map<std::pair<std::string, std::uint64_t>, TimeRecord> times_;
  std::map<const void*, TimeRecord> times_until_now_;  // of sessions that live
  std::atomic<std::uint32_t> times_wanted_{0};
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(PassReason::count)> passes_{};
  std::uint64_t device_calls_ = 0;
  std::map<std::string, std::uint64_t> through_host_;  // by reason
  std::atomic<std::uint64_t> errors_{0}, residual_bytes_{0}, staged_{0}, measured_{0}, unrecorded_{0}, learnt_{0};
};

}  // namespace crimp
