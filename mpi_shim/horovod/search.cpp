#include "horovod/search.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace crimp::horovod {
namespace {
double seconds(Search::Clock::duration d) { return std::chrono::duration<double>(d).count(); }
}  // namespace

void Search::begin(const std::vector<std::uint64_t>& tensor_bytes, std::vector<bool> may_begin) {
  reduced_.resize(tensor_bytes.size());
  // Whether groups are held, for how many steps, and of each tensor whether a group begins there.
  message_.assign(2 + tensor_bytes.size(), 0);
  message_[1] = MergeTrials::kWindow;
  resume();
  steps_left_ = 0;
  if (leader_.here) trials_ = std::make_unique<MergeTrials>(tensor_bytes, std::move(may_begin));
}

void Search::resume() {
  reduced_.assign(reduced_.size(), false);
  left_ = reduced_.size();
  step_ended_ = true;
  timed_ = false;
}

// A step is over when all of its tensors were reduced, or one for the second time.
void Search::reduced(std::size_t tensor) {
  const auto over = [&] {
    reduced_.assign(reduced_.size(), false);
    left_ = reduced_.size();
    step_ended_ = true;
  };
  if (reduced_[tensor]) over();
  reduced_[tensor] = true;
  if (--left_ == 0) over();
}

void Search::time_step(Clock::time_point now) {
  const std::uint64_t learnt = leader_.learnt();
  if (timed_) trials_->stepped(seconds(now - step_begin_), ready_s_, learnt != learnt_);
  timed_ = true;
  step_begin_ = now;
  learnt_ = learnt;
  ready_s_.assign(reduced_.size(), -1);
}

std::optional<MergeTrials::Plan> Search::plan(Clock::time_point (*time)()) {
  if (!std::exchange(step_ended_, false)) return {};
  const bool turn_over = steps_left_ <= 1;
  // Whatever the leader lacks, the other ranks wait for its message.
  try {
    if (trials_) time_step(time());
    if (trials_ && turn_over) {
      if (steps_left_ == 1 && trials_->next()) leader_.chosen(*record());
      std::fill(message_.begin(), message_.end(), std::uint8_t{0});
      message_[0] = trials_->plan().holds;
      message_[1] = static_cast<std::uint8_t>(trials_->steps());
      for (const auto cut : trials_->plan().cuts) message_[2 + cut] = 1;
    }
  } catch (const std::bad_alloc&) {
    trials_.reset();
  }
  if (!turn_over) {
    --steps_left_;
    return {};
  }
  leader_.broadcast(message_);
  steps_left_ = message_[1];
  MergeTrials::Plan plan{message_[0] != 0, {}};
  for (std::size_t i = 0; i < reduced_.size(); ++i)
    if (message_[2 + i]) plan.cuts.push_back(static_cast<std::uint32_t>(i));
  return plan;
}

void Search::ready(std::size_t tensor, Clock::time_point now) {
  if (ready_s_[tensor] < 0) ready_s_[tensor] = seconds(now - step_begin_);
}

void Search::called(std::uint64_t bytes, double s) {
  try {
    if (trials_ && timed_) trials_->called(bytes, s);
  } catch (const std::bad_alloc&) {
    trials_.reset();
  }
}

std::optional<SearchRecord> Search::record() const {
  if (!trials_) return {};
  SearchRecord out;
  out.settled = trials_->watching();
  out.searches = trials_->searches();
  out.steps = trials_->searched_steps();
  out.tensors = reduced_.size();
  out.chosen = {trials_->plan().holds, trials_->plan().cuts, "", trials_->chosen_s(), 0};
  for (const auto& c : trials_->candidates()) {
    out.tried.push_back({c.plan.holds, c.plan.cuts, c.origin, c.median_s(), c.steps_s.size()});
    if (out.settled && c.plan == trials_->plan()) {
      out.chosen.origin = c.origin;
      out.chosen.steps = c.steps_s.size();
      if (out.chosen.step_s == 0) out.chosen.step_s = c.median_s();
    }
  }
  return out;
}

}  // namespace crimp::horovod
