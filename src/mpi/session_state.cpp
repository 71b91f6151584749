// What a session saves of its tensors, and loads.
#include <algorithm>
#include <utility>

#include "core/log.hpp"
#include "core/report.hpp"
#include "core/reserve.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/session.hpp"
#include "mpi/wait_texts.hpp"

namespace crimp {

// Of communicators of all ranks: which one it is, is said by how many of them there were before, which threads may make
// in another order on another rank.
void Session::open_state(std::uint64_t number) {
  MPI_Request request;
  check_mpi(PMPI_Ibcast(&number, 1, MPI_UINT64_T, 0, comm_, &request), "MPI_Ibcast");
  wait_for(request, rank_, size_,
           [&] { return "for rank 0 of " + name_of(comm_) + ", which counts communicators for CRIMP_STATE_DIR"; });
  insist([&] {
    state_.emplace(comm_, rank_, size_, context_.state_dir, "comm" + std::to_string(number), state_failures_);
  });
  state_->prepare();
  std::optional<SavedState> found = state_->load("residuals begin from zeros");
  if (!found) return;
  const StateHeader header = found->header;
  // Jobs that save at their end only would leave one more each: all ranks have just read a later one.
  if (header.generation > 1) state_->remove_older(header.generation - 1);
  const std::uint64_t tensors = take(std::move(*found));
  if (rank_ == 0)
    context_.report.note([&] {
      log(LogLevel::info,
          "state of " + std::to_string(tensors) + " tensors loaded from CRIMP_STATE_DIR=" +
              context_.settings.state_dir + ", generation " + std::to_string(header.generation) +
              (header.ranks == static_cast<std::uint32_t>(size_)
                   ? std::string()
                   : " of " + std::to_string(header.ranks) + " ranks, spread over these " + std::to_string(size_)) +
              ": they take it when they first come");
    });
}

std::uint64_t Session::take(SavedState&& state) {
  fill_reserve();
  const auto tensors = static_cast<std::uint64_t>(
      std::count_if(state.tensors.begin(), state.tensors.end(), [](const SavedTensor& t) { return !t.owner; }));
  logged("names of what was saved", [&] {
    for (const SavedTensor& t : state.tensors)
      if (t.source == Layout::Source::negotiated) names_.add(PastSums::key_of(TensorMemory::name_of(t.name), t.count));
  });
  // A rank without memory for it goes on without: what all ranks must have alike is in what follows, and the extents.
  logged("what was saved of residuals", [&] { memory_.load(std::move(state.tensors), state.extents); });
  sequence_ = state.header.sequence;
  unsaved_ = since_load_ = 0;
  momentum_unsaved_ = false;
  dropped_ = 0;
  return tensors;
}

void Session::drop_waiting() {
  if (since_load_ <= kWaiting || !memory_.waiting()) return;
  dropped_ += memory_.loaded().waiting;
  memory_.forget_waiting();
}

// Before a call that all ranks are known to come to. Clocks decide nothing, calls are counted.
void Session::save_in_turn() {
  const std::uint64_t interval = context_.settings.state_interval;
  if (!interval || unsaved_ < interval) return;
  unsaved_ = 0;
  momentum_unsaved_ = false;
  const auto begun = Clock::now();
  std::vector<TensorView> tensors;
  std::vector<SavedExtents> extents;
  const bool listed = logged("CRIMP_STATE_DIR", [&] { tensors = memory_.saved(), extents = memory_.saved_extents(); });
  saved_ += state_->save(listed, sequence_, tensors, extents);
  saving_s_ += seconds(Clock::now() - begun);
}

void Session::save_last() noexcept {
  if (!state_ || (unsaved_ == 0 && !momentum_unsaved_)) return;
  logged("CRIMP_STATE_DIR", [&] {
    if (const std::size_t n = memory_.unnamed(); n && rank_ == 0)
      log(LogLevel::info,
          std::to_string(n) + " residuals are of tensors that no one names: CRIMP_STATE_DIR does not have them");
    saved_ += state_->save_alone(sequence_, memory_.saved(), memory_.saved_extents());
  });
}

bool Session::save(const char* directory) {
  StateFiles files(comm_, rank_, size_, directory ? directory : "", "saved", save_failures_);
  files.look();
  std::vector<TensorView> tensors;
  std::vector<SavedExtents> extents;
  const bool listed = logged("crimp_save", [&] { tensors = memory_.saved(), extents = memory_.saved_extents(); });
  const bool done = files.save(listed, sequence_, tensors, extents);
  saved_ += done;
  return done;
}

bool Session::load(const char* directory, std::uint64_t* tensors) {
  StateFailures failures;
  StateFiles files(comm_, rank_, size_, directory ? directory : "", "saved", failures);
  std::optional<SavedState> found = files.load("what is kept stays");
  if (!found) return false;
  const std::uint64_t n = take(std::move(*found));
  if (tensors) *tensors = n;
  passes_.clear();
  return true;
}

}  // namespace crimp
