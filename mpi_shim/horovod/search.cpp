#include "horovod/search.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "core/log.hpp"
#include "horovod/response.hpp"

namespace crimp::horovod {
namespace {

bool keeps_groups(const MergeTrials::Plan& plan, const std::vector<bool>& may) {
  return std::all_of(plan.groups.cuts.begin(), plan.groups.cuts.end(), [&](auto cut) { return may[cut]; });
}
}  // namespace

std::vector<bool> may_begin(const std::vector<NamedTensor>& tensors) {
  std::vector<bool> may(tensors.size(), true);
  std::unordered_map<std::string, std::size_t> last;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string group = group_of(tensors[i].name);
    if (group.empty()) continue;
    const auto [it, first] = last.emplace(group, i);
    for (; !first && it->second < i; ++it->second) may[it->second + 1] = false;
  }
  return may;
}

void Search::begin(std::vector<NamedTensor> tensors) {
  const std::size_t n = tensors.size();
  reduced_.resize(n);
  order_.resize(n);
  std::iota(order_.begin(), order_.end(), 0u);
  // Whether groups are held, for how many steps, and of each tensor whether a group begins there (1) and which codec
  // (times 2) its group has; in the first message their order.
  message_.assign(2 + n + n * sizeof order_[0], 0);
  message_[1] = MergeTrials::kWindow;
  resume();
  steps_left_ = 0;
  tensors_ = std::move(tensors);
  trials_.reset();
  repeated_ = nullptr;
  try {
    if (leader_.here) begin_trials();
  } catch (const std::bad_alloc&) {
    trials_.reset();
    repeated_ = nullptr;
    notes_ = false;
    std::iota(order_.begin(), order_.end(), 0u);
  }
  std::memcpy(&message_[2 + n], order_.data(), n * sizeof order_[0]);
}

void Search::begin_trials() {
  repeated_ = recorded_plans();
  turn_ = 0;
  turn_steps_ = 0;
  std::optional<SavedPlan> earlier;
  if (!repeated_ && leader_.file) logged("CRIMP_PLAN_FILE", [&] { earlier = earlier_plan(); });
  if (earlier) {
    std::vector<std::string> names;
    for (const NamedTensor& t : earlier->tensors) names.push_back(t.name);
    take_order(names);
  }
  if (repeated_) take_order(repeated_->tensors);
  note_turns();
  if (repeated_) return;
  std::vector<std::uint64_t> bytes;
  bytes.reserve(tensors_.size());
  for (const NamedTensor& t : tensors_) bytes.push_back(t.bytes);
  trials_ = std::make_unique<MergeTrials>(std::move(bytes), may_begin(tensors_), leader_.codecs);
  if (earlier) trials_->reuse(std::move(earlier->plan), earlier->step_s);
}

// The order in which an earlier job had them. Where there is no memory nothing has changed.
void Search::take_order(const std::vector<std::string>& names) {
  std::unordered_map<std::string, std::uint32_t> place;
  for (std::uint32_t i = 0; i < tensors_.size(); ++i) place.emplace(tensors_[i].name, i);
  std::vector<NamedTensor> tensors;
  std::vector<std::uint32_t> order;
  for (const std::string& name : names) {
    order.push_back(place.at(name));
    tensors.push_back(tensors_[order.back()]);
  }
  tensors_ = std::move(tensors);
  order_ = std::move(order);
}

// Of a job whose tensors change all the time the first sets are kept.
void Search::note_turns() {
  notes_ = false;
  if (turns_.size() == PlanTurns::kMostSets) {
    turns_.back().truncated = true;
    return;
  }
  PlanTurns turns;
  for (const NamedTensor& t : tensors_) turns.tensors.push_back(t.name);
  turns_.push_back(std::move(turns));
  notes_ = true;
}

// The next ones of these tensors; null: none are repeated, or there are none.
const PlanTurns* Search::recorded_plans() {
  if (!leader_.recorded) return nullptr;
  std::vector<std::string> names;
  for (const NamedTensor& t : tensors_) names.push_back(t.name);
  for (std::size_t i = 0; i < leader_.recorded->plans.size(); ++i) {
    const PlanTurns& turns = leader_.recorded->plans[i];
    if (leader_.recorded->used[i] || turns.turns.empty() || !turns.is_of(names)) continue;
    std::vector<NamedTensor> in_order;
    for (const std::string& name : turns.tensors) in_order.push_back({name, 0});
    const auto may = may_begin(in_order);
    const bool whole = std::all_of(turns.turns.begin(), turns.turns.end(),
                                   [&](const PlanTurns::Turn& turn) { return keeps_groups(turn.plan, may); });
    if (!whole) continue;
    leader_.recorded->used[i] = true;
    return &turns;
  }
  leader_.warn("CRIMP_REPLAY: the record has no merge plans of these " + std::to_string(tensors_.size()) +
               " tensors; plans are searched for them");
  return nullptr;
}

std::optional<SavedPlan> Search::earlier_plan() {
  SavedPlan key = leader_.key;
  key.tensors = tensors_;
  std::string problem;
  auto plan = leader_.file->find(key, problem);
  if (!problem.empty()) leader_.warn(problem);
  if (!plan) return {};
  if (keeps_groups(plan->plan, may_begin(plan->tensors))) return plan;
  leader_.warn(
      leader_.file->what("has a plan that parts tensors of one hvd.grouped_allreduce; plans are searched, and the one "
                         "that is found replaces it"));
  return {};
}

void Search::save(const SearchRecord& record) {
  if (!leader_.file || !(record.chosen.step_s > 0)) return;
  logged("CRIMP_PLAN_FILE", [&] {
    SavedPlan plan = leader_.key;
    plan.tensors = tensors_;
    plan.plan = record.chosen.plan;
    plan.step_s = record.chosen.step_s;
    plan.origin = record.chosen.origin;
    if (const std::string problem = leader_.file->save(std::move(plan)); !problem.empty()) leader_.warn(problem);
  });
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

// At the end of a turn, on the leader.
void Search::decide() {
  const bool first = steps_left_ == 0;
  const bool was_measured = trials_->chosen_s() > 0;
  const bool chosen = !first && trials_->next();
  if (chosen || (first && trials_->watching())) leader_.chosen(*record());
  // Once more when the plan's first window is over: of its many steps the median is surer.
  if (chosen || (trials_->watching() && !was_measured && trials_->chosen_s() > 0)) save(*record());
  compose(trials_->plan(), trials_->steps());
}

void Search::compose(const MergeTrials::Plan& plan, unsigned steps) {
  std::fill(message_.begin(), message_.begin() + 2 + static_cast<std::ptrdiff_t>(reduced_.size()), std::uint8_t{0});
  message_[0] = plan.holds;
  message_[1] = static_cast<std::uint8_t>(steps);
  for (const auto cut : plan.groups.cuts) message_[2 + cut] = 1;
  std::size_t group = 0;
  for (std::size_t i = 0; i < reduced_.size(); ++i) {
    std::uint8_t& told = message_[2 + i];
    group += told;
    told = static_cast<std::uint8_t>(told | plan.groups.codec(group) << 1);
  }
}

// Behind the end of the record the last plan stays.
void Search::repeat() {
  const auto& turns = repeated_->turns;
  if (turn_steps_ == turns[turn_].steps && turn_ + 1 < turns.size()) ++turn_, turn_steps_ = 0;
  const std::uint64_t left = turns[turn_].steps - turn_steps_;
  const auto steps =
      static_cast<unsigned>(left ? std::min<std::uint64_t>(left, MergeTrials::kWindow) : MergeTrials::kWindow);
  if (left) turn_steps_ += steps;
  compose(turns[turn_].plan, steps);
}

// Of the first message.
std::vector<std::uint32_t> Search::heard_order() {
  const std::size_t n = reduced_.size();
  std::vector<std::uint32_t> order = std::exchange(order_, {});
  if (order.empty()) return {};
  std::memcpy(order.data(), &message_[2 + n], n * sizeof order[0]);
  message_.resize(2 + n);
  if (std::is_sorted(order.begin(), order.end())) return {};
  std::vector<bool> reduced;
  reduced.reserve(n);
  for (const auto tensor : order) reduced.push_back(reduced_[tensor]);
  reduced_ = std::move(reduced);
  return order;
}

std::optional<Search::Told> Search::plan(Clock::time_point (*time)()) {
  if (!std::exchange(step_ended_, false)) return {};
  const bool turn_over = steps_left_ <= 1;
  // Whatever the leader lacks, the other ranks wait for its message.
  try {
    if (trials_) time_step(time());
    if (trials_ && turn_over) decide();
    if (repeated_ && turn_over) repeat();
  } catch (const std::bad_alloc&) {
    trials_.reset();
  }
  if (!turn_over) {
    --steps_left_;
    if (notes_) turns_.back().add(plan_, 1);
    return {};
  }
  leader_.broadcast(message_);
  Told told;
  told.order = heard_order();
  steps_left_ = message_[1];
  told.plan.holds = message_[0] != 0;
  Grouping& groups = told.plan.groups;
  for (std::size_t i = 0; i < reduced_.size(); ++i) {
    const std::uint8_t of_tensor = message_[2 + i];
    if (of_tensor & 1) groups.cuts.push_back(static_cast<std::uint32_t>(i));
    if (i == 0 || of_tensor & 1) groups.codecs.push_back(of_tensor >> 1);
  }
  if (std::all_of(groups.codecs.begin(), groups.codecs.end(), [](auto codec) { return codec == 0; }))
    groups.codecs.clear();
  if (notes_) {
    turns_.back().add(told.plan, 1);
    plan_ = told.plan;
  }
  return told;
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
  out.settled = trials_->watching() && !trials_->doubting();
  out.windows = trials_->windows();
  out.searches = trials_->searches();
  out.steps = trials_->searched_steps();
  out.tensors = reduced_.size();
  out.trace = trials_->trace();
  for (const NamedTensor& t : tensors_) out.trace.tensors.push_back(t.name);
  out.chosen = {trials_->plan(), "", trials_->chosen_s(), 0};
  if (out.searches == 0) out.chosen.origin = "CRIMP_PLAN_FILE";
  for (const auto& c : trials_->candidates()) {
    out.tried.push_back({c.plan, c.origin, c.median_s(), c.steps_s.size()});
    if (out.settled && c.plan == trials_->plan()) {
      out.chosen.origin = c.origin;
      out.chosen.steps = c.steps_s.size();
      if (out.chosen.step_s == 0) out.chosen.step_s = c.median_s();
    }
  }
  return out;
}

}  // namespace crimp::horovod
