// What one process has one of: settings, codecs, workers, report, trace, and the sessions of its communicators.
//
// Life: start() at MPI_Init (or at the first call, where the library was loaded later), finish() at MPI_Finalize. The
// object is leaked, because host programs finalize MPI from atexit handlers.
#pragma once
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "collective/codec_rules.hpp"
#include "collective/replay.hpp"
#include "collective/shared_models.hpp"
#include "core/pass_reason.hpp"
#include "core/report.hpp"
#include "core/settings.hpp"
#include "core/trace.hpp"
#include "memory/workers.hpp"
#include "mpi/context.hpp"
#include "mpi/job_files.hpp"
#include "mpi/mpi_agreement.hpp"
#include "mpi/private_world.hpp"
#include "schedule/layout_cache.hpp"
#include "schedule/merge_plan.hpp"

namespace crimp {

class NonblockingSums;
class Session;
struct AllreduceRequest;

using AllreduceFn = int (*)(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm);

class Runtime {
 public:
  static Runtime& get() {  // inline: every call of MPI's asks
    Runtime* const made = made_.load(std::memory_order_acquire);
    return made ? *made : make();
  }

  // After MPI_Init: reads the settings, compares them over MPI_COMM_WORLD (collective where `world` is true), says the
  // start-up line.
  void start(bool world);
  // Horovod runs in this process: CRIMP_CODEC=auto now means its default codec. On all ranks, before Horovod's first
  // data call.
  void horovod_recognised();
  // Before MPI_Finalize: ends all sessions, says the summary, writes report and trace (collective where start() was).
  // What fails of it is logged.
  void finish() noexcept;

  bool running() const { return state_.load(std::memory_order_acquire) == State::running; }
  bool finished() const { return state_.load(std::memory_order_acquire) == State::finished; }
  bool started() const { return state_.load(std::memory_order_acquire) != State::idle; }
  // A codec was chosen, settings are legal and agreed, and MPI_Pcontrol has not switched it off.
  bool compressing() const { return codecs_.any() && usable_ && switched_on.load(std::memory_order_relaxed); }
  // The codec was not asked for, but is what Horovod's sums have by default (horovod_recognised()).
  bool only_for_horovod() const { return only_for_horovod_.load(std::memory_order_relaxed); }
  std::atomic<bool> switched_on{true};              // MPI_Pcontrol
  std::atomic<bool> told_codecs{false};             // a communicator has codecs of its own (crimp_set_codec)
  PassReason why_off() const;                       // where not compressing()
  bool legal() const { return illegal_rank_ < 0; }  // no setting has an illegal value
  // Loaded after MPI_Init, so that nothing was compared over MPI_COMM_WORLD: every communicator's first call, of
  // whatever kind, must make its session, or a rank with other settings would not take part.
  bool late() const { return !world_start_; }
  // A call that passes, in the report.
  void passed(PassReason why) {
    if (one_thread_) report.passed_alone(why);
    else report.passed(why);
  }

  const Settings& settings() const { return settings_; }
  bool momentum() const { return codecs_.momentum(); }  // a codec keeps the training's
  bool may_keep_momentum() const { return momentum() || told_codecs.load(std::memory_order_relaxed); }
  // CRIMP_MERGE; off where settings are illegal or differ, or Crimp is switched off.
  MergePlan merge_plan() const { return usable_ ? merge_plan_ : MergePlan(); }
  // By CRIMP_RULES, the most that a tensor has.
  std::uint8_t codecs_to_choose_from() const { return static_cast<std::uint8_t>(codecs_.alternatives()); }
  // Of this rank, in the job that CRIMP_REPLAY repeats; null: it is unset.
  const std::vector<PlanTurns>* recorded_plans(int world_rank) const {
    return replay_ ? &replay_->plans(world_rank) : nullptr;
  }
  // Nodes of a communicator of these ranks, by CRIMP_NODE_SIZE; empty where hosts are not known (loaded after MPI_Init,
  // another world), or the private world is not open.
  std::vector<std::vector<int>> nodes_of(const std::vector<int>& world_ranks) const;
  // Likewise, whatever CRIMP_NODE_SIZE is, as crimp::group_of().
  std::uint64_t group_of(const std::vector<int>& world_ranks) const;
  // Of the communicator's ranks, how many share each host; 0 where hosts differ, or where that is not known (loaded
  // after MPI_Init).
  int ranks_per_host(MPI_Comm) const;
  Trace* trace() const { return files_.trace(); }  // null: there is none
  bool cuda_aware() const { return cuda_aware_; }  // MPI takes device pointers
  Report report;
  SharedModels models;
  LayoutCache layouts;         // of crimp_allreduce
  PrivateWorld private_world;  // open where nodes of several ranks are possible

  // The communicator's session, made at its first eligible call (collective over it). Null: calls on it pass through,
  // for *why. Throws Error{transport_failed}. `request`: the call that needs it, where it is known.
  Session* session(MPI_Comm comm, PassReason* why, const AllreduceRequest* request = nullptr);
  // The communicator's sums that do not block; nothing collective. Null: they are MPI's, on all ranks, for *why.
  std::shared_ptr<NonblockingSums> nonblocking(MPI_Comm comm, PassReason* why);
  // Counts a communicator with these ranks (world_ranks.hpp). Local; once for each session, in the program's thread,
  // because others come in any order. What throws has counted nothing.
  CommunicatorNumbers count(const std::vector<int>& world_ranks);
  // Ends the communicator's session, if it has one, as MPI_Comm_free does: local.
  void forget(MPI_Comm comm);
  // Where it has been made and may be used; nothing collective.
  Session* known_session(MPI_Comm comm);
  bool usable() const {
    return usable_ && switched_on.load(std::memory_order_relaxed);
  }  // compressing, but for a codec

 private:
  enum class State { idle, running, finished };
  Runtime();
  void agree();  // with the other ranks of MPI_COMM_WORLD
  void read();
  void read_replay();
  void leave_files_to_parents();  // of a world that MPI_Comm_spawn has made, which was told the same names
  void find_hosts();              // collective over MPI_COMM_WORLD
  std::vector<int> hosts_of(const std::vector<int>& world_ranks) const;  // empty: not known of all
  Context context();
  void announce() const;
  void compress_horovod();    // with mutex_ held; nothing before start()
  void say_unmerged() const;  // where CRIMP_MERGE has found no Horovod
  void end(Session*);
  std::string report_text(const std::vector<std::string>& of_ranks) const;
  static int forget_session(MPI_Comm, int keyval, void* session, void* extra);
  static int forget_nonblocking(MPI_Comm, int keyval, void* sums, void* extra);
  static int finish_late(MPI_Comm, int keyval, void*, void*);

  static Runtime& make();
  static std::atomic<Runtime*> made_;
  std::atomic<State> state_{State::idle};
  std::atomic<bool> only_for_horovod_{false}, met_horovod_{false};
  std::mutex mutex_;  // start, sessions_; not held over MPI calls after start: they may wait for forget_session()
  Settings settings_;
  std::vector<Complaint> complaints_;
  Agreement agreement_;
  CodecRules codecs_;
  MergePlan merge_plan_;
  std::unique_ptr<Workers> workers_;
  JobFiles files_;
  std::optional<Replay> replay_;
  std::string state_dir_;
  std::map<std::uint64_t, std::uint64_t> communicators_;  // so far, by the digest of their ranks
  std::uint64_t of_world_ = 0;                            // of them those that have all ranks
  std::set<Session*> sessions_;
  std::map<void*, std::shared_ptr<NonblockingSums>> nonblocking_;  // by the attributes' values
  int keyval_ = MPI_KEYVAL_INVALID, nonblocking_keyval_ = MPI_KEYVAL_INVALID;
  int world_rank_ = 0, world_size_ = 1;
  std::vector<int> host_of_rank_;  // the lowest rank of MPI_COMM_WORLD on the same host
  // The lowest rank that has an illegal setting; -1: none (known of all ranks where start() was collective).
  int illegal_rank_ = -1;
  bool cuda_aware_ = false;
  bool together_ = false;  // all ranks are in MPI_Init and of one build, so that they may exchange something
  bool usable_ = false, differ_ = false, world_start_ = false, one_thread_ = false;
};

}  // namespace crimp
