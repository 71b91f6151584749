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

#include "core/clock.hpp"
#include "core/history.hpp"
#include "core/pass_reason.hpp"
#include "core/records.hpp"

namespace crimp {

struct JobProgress;
struct Settings;

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
  // each rank of what its History is. nodes: by which Crimp went; 0: it has asked for none, and names of hosts count.
  static std::string of_job(const Settings&, int ranks, const std::string& simd, const char* status,
                            const std::vector<std::string>& of_ranks, std::size_t nodes = 0);

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
