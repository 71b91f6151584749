// One communicator's state: its call sequence, plans, residuals and scratch. Calls on one communicator are ordered
// (MPI-3.1, 5.12), so a Session needs no lock.
//
// A call goes plan (collective/call_plan.hpp), choose (collective/call_choice.hpp), bind (bound_call.hpp), run and
// finish (call_run.hpp).
#pragma once
#include <mpi.h>

#include <atomic>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "collective/call_choice.hpp"
#include "collective/call_plan.hpp"
#include "collective/chooser.hpp"
#include "core/clock.hpp"
#include "core/pass_reason.hpp"
#include "core/records.hpp"
#include "mpi/arrivals.hpp"
#include "mpi/call_values.hpp"
#include "mpi/context.hpp"
#include "mpi/declined_calls.hpp"
#include "mpi/known_passes.hpp"
#include "mpi/mpi_node.hpp"
#include "mpi/new_names.hpp"
#include "mpi/recorded_calls.hpp"
#include "mpi/state_files.hpp"
#include "mpi/tensor_memory.hpp"
#include "mpi/timed_calls.hpp"
#include "schedule/call_sequence.hpp"
#include "schedule/delay_control.hpp"
#include "schedule/past_sums.hpp"

namespace crimp {

class Session {
 public:
  // Collective: compares the settings. Where they differ, rank 0 says which, and usable() is false on all ranks.
  // `request`: the call that makes the session, for who waits in it; may be null. Insists on its memory. Throws
  // Error{transport_failed}.
  static std::unique_ptr<Session> make(const Context&, MPI_Comm, int rank, int size, const AllreduceRequest* request);
  ~Session();  // local: MPI_Comm_free waits for nobody

  bool usable() const { return usable_; }
  // Sums over the communicator. False: the caller does it through MPI (nothing was changed here; all ranks get the same
  // answer), for *why. Throws Error after the exchange began and failed. Where it is for want of memory, what the
  // session holds only to be fast is given back before.
  bool allreduce(const AllreduceRequest&, PassReason* why);
  // Of a call with fewer than CRIMP_MIN_COUNT elements: sums it where its tensors are named and have momentum. False:
  // it is for MPI, as above.
  bool allreduce_small(const AllreduceRequest&);

  // The call that allreduce() left to MPI has ended, for who was named in AllreduceRequest::left.
  void left_ended() noexcept;

  // What is known at its end.
  void note_in(Report&) const;
  // crimp_set_algorithm, crimp_set_codec, crimp_set_learning_rate and crimp_set_extents (include/crimp/crimp.h), which
  // may be given anything. Collective; throws Error on all ranks alike, and nothing has changed then.
  void set_algorithm(const char* name);
  void set_codec(const char* pattern, const char* spec);
  void set_learning_rate(double);
  void set_idle_waits(bool waits) { idle_waits_ = waits; }
  void set_extents(const char* name, std::uint64_t rows, std::uint64_t cols);
  // crimp_save and crimp_load: a directory of the program's. Collective; false on all ranks alike where they could not.
  bool save(const char* directory);
  bool load(const char* directory, std::uint64_t* tensors);
  // The session ends: local.
  void save_last() noexcept;
  // crimp_set_codec has named a codec, so that there may be something to compress where CRIMP_CODEC says nothing.
  bool has_codecs() const { return planner_.any_codecs(); }

 private:
  // Local, and may be repeated where it lacks memory. device: some rank's values lie in the memory of one.
  Session(const Context&, MPI_Comm, int rank, int size, bool usable, bool device);
  void open(const CommunicatorNumbers&);  // collective
  // Collective; null on all ranks where there are none.
  const Hierarchy* open_nodes();
  // Whether the call is one of those of which is known that they pass, because plain MPI is faster: then it has been
  // counted, and nothing else is to be done.
  bool passes(const AllreduceRequest&);
  // How a call went.
  struct CallEnd {
    Clock::time_point begun = {};
    std::shared_ptr<const CallPlan> plan;
    ChosenParts chosen;              // nothing where the plan has it pass
    std::optional<PassReason> pass;  // it is not summed: it is for pass()
  };
  // What is not for the codecs. False: the caller does it through MPI, for *why.
  bool pass(const AllreduceRequest&, const CallEnd&, CallValues&, PassReason* why);
  // Who left the call to MPI is to say when it has ended, where that matters.
  void leave(const AllreduceRequest&, const std::shared_ptr<const CallPlan>&, Clock::time_point begun);
  void note_pass(const AllreduceRequest&, const CallPlan&, const ChosenParts&);
  // Sums the call through MPI, and tells the chooser how long that took.
  void try_plain(const AllreduceRequest&, const ChoiceQuery&, const Choice&);
  DelayControl* delay_control();  // null: CRIMP_CONTROL is off, or nothing is compressed
  ControlRecord control_record() const;
  // Of CRIMP_CODEC: it keeps something of tensors.
  bool keeps() const;
  bool follows_calls(const AllreduceRequest&) const;
  bool plain_sums() const;
  // Whether a call that names no tensors, of which nothing is kept either, goes through MPI: none of this rank's, for
  // what its values are. 0: it does not.
  std::uint8_t flags_of_unfollowed(const AllreduceRequest&, const CallValues&);
  // Whether the values of a call that names no tensors go on where an earlier sum ended. Its own is kept at its end,
  // where that is wanted.
  PastSums::Answer continues(const AllreduceRequest&, const CallValues&, const Sample&);
  // Of a call whose tensors a trainer names, as it does whatever it reduces. 0: they are gradients.
  std::uint8_t flags_of_negotiated(const AllreduceRequest&, const CallValues&);
  bool loses_much(const Codec&) const;  // more than by 16 bits, of sums
  void keep_sums(bool all) noexcept;
  void say_what_is_known(const CallSequence::Call&);
  // What is said once of a communicator, at info level.
  enum class Saying : std::uint8_t { tensors_known, tensors_not_known, goes_on, kinds };
  bool has_said(Saying what) const { return said_.test(static_cast<std::size_t>(what)); }
  void say_once(Saying, const std::string&);
  // Whether this rank says what is so of the communicator, of which a program may have hundreds; lines: those of this
  // kind that it has said.
  bool speaks(std::atomic<int>& lines) const;
  void say_what_it_took(const CallEnd&);
  void say_what_carries(const Choice&, const ChoiceQuery&) const;  // in place of the algorithm that was named
  // CRIMP_STATE_DIR; number: among communicators of all ranks. Collective
  void open_state(std::uint64_t number);
  void drop_waiting();               // what was loaded and nobody has asked for in so many calls
  void save_in_turn();               // where CRIMP_STATE_INTERVAL calls have been since. Collective then
  std::uint64_t take(SavedState&&);  // how many tensors wait to be asked for

  // A call whose tensors its place in the sequence of calls may tell.
  bool allreduce_unnamed(const AllreduceRequest&, CallValues&, PassReason* why);
  // Of tensors that are known, or known to be unknown. flags: what this rank's values are known to be (WireFlag).
  // False: the caller does it through MPI, for *why.
  bool reduce(const AllreduceRequest&, std::shared_ptr<const Layout>, std::uint8_t flags, CallValues&, PassReason* why);
  // Plan, choose, bind, run, finish. What is not summed has a reason in `end`, which says how far the call came also
  // where this throws.
  void allreduce(const AllreduceRequest&, std::shared_ptr<const Layout>, std::uint8_t flags, CallValues&, CallEnd& end);

  const Context context_;
  MPI_Comm comm_;
  int rank_, size_;
  bool device_;  // some rank's values lie in the memory of a device, as far as all ranks know
  bool usable_;
  std::uint32_t sequence_ = 0;  // compressed calls so far
  std::bitset<static_cast<std::size_t>(Saying::kinds)> said_;
  const char* told_instead_ = nullptr;  // the reason of the last call that went otherwise
  Planner planner_;
  CallSequence calls_;
  PastSums sums_;
  struct Summed {
    std::uint64_t key;
    Sample gave;
    const void* sum;
    std::uint64_t count;
    Dtype dtype;
    std::size_t most;
    bool wanted;
  };
  std::vector<Summed> summed_;  // by the call under way, for keep_sums()
  // What of a trainer's call is looked at.
  struct Negotiated {
    std::uint32_t rules = 0;  // CodecRules::version()
    std::size_t segments = 0;
    bool first = false;  // the next call is the first with one of its names
    struct Tensor {
      std::size_t segment;
      std::uint64_t key;  // of sums_
      bool gradient;      // by CRIMP_RULES
    };
    std::vector<Tensor> looked_at;
    std::vector<std::size_t> fresh;  // segments with names that are new
  };
  Negotiated& negotiated(const Layout&);
  std::map<std::uint64_t, Negotiated> negotiated_;  // by the layouts' digests
  // A program that makes new names in every step goes on as others do behind so many calls.
  static constexpr std::uint32_t kMostFirstCalls = 4096;
  std::uint32_t first_calls_ = 0;
  std::vector<std::size_t> once_;  // this call's segments with new names, which are among many that come once
  NewNames names_;
  Chooser chooser_;
  std::optional<DelayControl> control_;
  std::vector<int> world_ranks_;
  const std::uint32_t salt_;  // CallBuffers::salt
  RecordedCalls recorded_;
  TimedCalls times_;
  std::optional<Arrivals> arrivals_;  // under CRIMP_SKEW
  double waited_s_ = 0;               // ahead of the call under way
  std::uint32_t in_trace_ = 0;
  KnownPasses passes_;
  DeclinedCalls declined_;
  bool idle_waits_ = false;
  std::optional<MpiHierarchy> nodes_;               // nothing: not needed yet, or none
  StateFailures state_failures_, save_failures_;    // of CRIMP_STATE_DIR; of crimp_save
  std::optional<StateFiles> state_;                 // of CRIMP_STATE_DIR
  std::uint64_t unsaved_ = 0, since_load_ = 0;      // calls that were compressed since
  bool momentum_unsaved_ = false;                   // of what is summed exactly
  std::uint64_t saved_ = 0, dropped_ = 0;           // generations; tensors that nobody had asked for
  double saving_s_ = 0;                             // in turn
  static constexpr std::uint32_t kWaiting = 65536;  // calls in which loaded tensors must be asked for
  TensorMemory memory_;
  SessionBuffers scratch_;
};

}  // namespace crimp
