#include "mpi/recorded_calls.hpp"

#include <atomic>
#include <utility>

#include "collective/codec_rules.hpp"
#include "core/log.hpp"
#include "core/report.hpp"
#include "core/reserve.hpp"
#include "mpi/mpi_agreement.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/wait_texts.hpp"

namespace crimp {

// Threads may make communicators in another order on another rank.
void RecordedCalls::open(MPI_Comm comm, int size, std::uint64_t number) {
  if (context_.records && rank_ == 0)
    context_.report.note([&] { recorder_.emplace(ranks_text(world_ranks_), number); });
  if (!context_.replay) return;
  MPI_Request request;
  check_mpi(PMPI_Ibcast(&number, 1, MPI_UINT64_T, 0, comm, &request), "MPI_Ibcast");
  wait_for(request, rank_, size,
           [&] { return "for rank 0 of " + name_of(comm) + ", which counts them for CRIMP_REPLAY"; });
  insist([&] { replayed_.emplace(context_.replay->find(ranks_text(world_ranks_), number)); });
}

int RecordedCalls::level(std::uint64_t bytes, DelayControl& control) {
  const std::uint64_t calls = DelayControl::class_of(bytes);
  const int start = context_.codecs.ladder_start();
  int level = start;
  if (replayed_) {
    const auto recorded = replayed_->level(calls, static_cast<int>(context_.codecs.ladder().size()));
    level_missing_ = !recorded;
    level = recorded.value_or(start);
    insist([&] { control.follow(bytes, level); });
  } else {
    level = insist([&] { return control.level(bytes, start); });
  }
  if (recorder_) context_.report.note([&] { recorder_->level(calls, level); });
  return level;
}

void RecordedCalls::unnamed() {
  static std::atomic<bool> said{false};
  if (!replayed_ || world_ranks_[static_cast<std::size_t>(rank_)] != 0 || said.exchange(true)) return;
  context_.report.note([&] {
    log(LogLevel::info,
        "CRIMP_REPLAY: which tensors those calls bring that name none is found by their values, and by which buffers "
        "come again: they repeat where buffers do (docs/determinism.md)");
  });
}

ChosenParts RecordedCalls::decide(Chooser& chooser, const CallPlan& plan, int ranks,
                                  const std::function<ChosenParts()>& choose) {
  if (recorder_) context_.report.note([&] { recorder_->begin(plan); });
  ChosenParts chosen;
  if (replayed_) {
    auto [decision, how] = plan.controlled && level_missing_ ? ReplayedCalls::Call{nullptr, Report::Repeat::missing}
                                                             : replayed_->call(plan.kind_digest);
    bool repeated = false;
    chosen = repeat(chooser, plan, ranks, decision, &repeated);
    if (!repeated) how = Report::Repeat::missing;
    context_.report.repeated(how);
    if (!repeated) say_what_is_missing(plan);
  } else {
    chosen = choose();
  }
  if (recorder_) context_.report.note([&] { recorder_->decided(plan, chosen); });
  return chosen;
}

void RecordedCalls::passed_unseen(std::uint64_t kind) {
  if (replayed_) context_.report.repeated(replayed_->call(kind).how);
  if (recorder_) context_.report.note([&] { recorder_->unseen(kind); });
}

void RecordedCalls::note_in(Report& report) const {
  if (!recorder_) return;
  report.note([&] { report.decisions(report.has_room() ? recorder_->record().json() : std::string()); });
}

void RecordedCalls::say_what_is_missing(const CallPlan& plan) {
  static std::atomic<bool> said{false};
  if (std::exchange(told_missing_, true) || rank_ != 0 || said.exchange(true, std::memory_order_relaxed)) return;
  context_.report.note([&] {
    log(LogLevel::warn,
        "the record of CRIMP_REPLAY does not have all calls of this job: they take their codec's first "
        "algorithm, and the report counts them (replay, calls_missing). The first one is " +
            plan.kind + " on ranks " + ranks_text(world_ranks_) +
            (plan.controlled && level_missing_ ? ", of which the record has no level of CRIMP_LADDER" : ""));
  });
}

}  // namespace crimp
