#include "horovod/gate.hpp"

#include <algorithm>
#include <utility>

namespace crimp::horovod {
namespace {
constexpr std::uint64_t kNumber = 8;                             // bytes of a single number, which is a metric
constexpr std::uint64_t kShutdown = 1, kInvalid = 4, kCalm = 7;  // bits that are set where this rank has it NOT
}  // namespace

std::vector<std::size_t> Gate::groups() const {
  std::vector<std::size_t> out;
  if (!planned()) return out;
  for (const auto& group : members_) out.push_back(group.size());
  return out;
}

std::uint8_t Gate::codec(const std::string& tensor) const {
  if (!planned() || adopted_.groups.codecs.empty()) return 0;
  const auto known = by_name_.find(tensor);
  const int group = known == by_name_.end() ? -1 : tensors_[known->second].group;
  return group < 0 ? std::uint8_t{0} : adopted_.groups.codec(static_cast<std::size_t>(group));
}

void Gate::reduced(const std::string& name, std::uint64_t bytes) {
  if (plan_.off() || unnamed(name) || (bytes <= kNumber && group_of(name).empty())) return;
  Tensor& tensor = known(name, bytes);
  count(tensor);
  if (members_.empty()) return make_plan();
  if (tensor.group < 0) return;
  masks_ = Masks::stale;
  if (!tensor.excluded) {
    if (tensor.deadline != step_) tensor.awaited = 0;
    hold_ = Hold::closed;
    held_since_.reset();
  }
  if (search_) search_->reduced(tensor.place);
  // Before the last step was complete. A tensor that nobody waits for may be late for its own.
  if (tensor.done && !tensor.excluded) begin_step();
  tensor.done = true;
  left_[static_cast<std::size_t>(tensor.group)] -= !tensor.excluded;
  while (current_ < members_.size() && left_[current_] == 0) {
    ++current_;
    group_ = Group::waiting;
  }
  if (current_ == members_.size()) begin_step();
}

Gate::Tensor& Gate::known(const std::string& name, std::uint64_t bytes) {
  if (const auto it = by_name_.find(name); it != by_name_.end()) return tensors_[it->second];
  // A new tensor: its place must be recorded before anything is held again.
  if (!members_.empty()) {
    unplanned_since_ = steps();
    most_equal_ = 0;
  }
  members_.clear();
  hold_ = Hold::closed;
  held_since_.reset();
  if (tensors_.size() >= most_) forget_others();
  by_name_.emplace(name, tensors_.size());
  carried_[0] += bytes;
  return tensors_.emplace_back(Tensor{name, bytes});
}

void Gate::count(Tensor& tensor) {
  if (auto& before = carried_[tensor.reductions]; (before -= tensor.bytes) == 0) carried_.erase(tensor.reductions);
  carried_[++tensor.reductions] += tensor.bytes;
}

// Those that are in no plan and have not been in half of the steps, as who gives tensors new names in every step has
// them; and where all names are such, the older ones.
void Gate::forget_others() {
  const std::uint32_t steps = this->steps();
  const std::size_t old = tensors_.size() < kMost ? 0 : tensors_.size() - kOthers;
  std::vector<bool> stays(tensors_.size());
  for (const std::size_t t : planned_) stays[t] = true;
  std::vector<std::size_t> place(tensors_.size());
  std::size_t kept = 0;
  for (std::size_t t = 0; t < tensors_.size(); ++t) {
    if (!stays[t] && (2 * tensors_[t].reductions < steps || t < old)) {
      by_name_.erase(tensors_[t].name);
      if (auto& bytes = carried_[tensors_[t].reductions]; (bytes -= tensors_[t].bytes) == 0)
        carried_.erase(tensors_[t].reductions);
      continue;
    }
    place[t] = kept;
    by_name_[tensors_[t].name] = kept;
    if (kept != t) tensors_[kept] = std::move(tensors_[t]);
    ++kept;
  }
  tensors_.resize(kept);
  for (std::size_t& t : planned_) t = place[t];
  most_ = std::min(std::max(kOthers, 2 * kept), std::max(kMost, kept + kOthers));
  cache_version_ = ~0ull;
}

void Gate::begin_step() {
  ++step_;
  for (Tensor& t : tensors_) t.done = false;
  for (std::size_t g = 0; g < members_.size(); ++g)
    left_[g] = static_cast<std::size_t>(
        std::count_if(members_[g].begin(), members_[g].end(), [&](std::size_t t) { return !tensors_[t].excluded; }));
  current_ = 0;
  group_ = Group::waiting;
  pass_by();
}

void Gate::pass_by() {
  while (current_ + 1 < members_.size() && left_[current_] == 0) ++current_;
}

// How often those tensors have been reduced that have carried most bytes: gradients, whatever else has a name (a metric
// now and then, sums of batch norms several times a step, names that never come again).
std::uint32_t Gate::steps() const {
  const auto most = std::max_element(carried_.begin(), carried_.end(), [](const auto& a, const auto& b) {
    return a.first * a.second < b.first * b.second;
  });
  return most == carried_.end() ? 0 : most->first;
}

// Where tensors are off by one: in the middle of a step; or one was not in a step, or twice, and is so ever after. Then
// no moment is without such tensors, and the end of a step is when most has been reduced equally often.
bool Gate::ends_step(std::uint64_t bytes, std::uint32_t steps) {
  if (steps >= unplanned_since_ + 4 * kRecorded) {  // another one has missed a step since: once more
    unplanned_since_ = steps - kRecorded;
    most_equal_ = 0;
  }
  if (steps < unplanned_since_ + kRecorded) return false;
  if (steps >= unplanned_since_ + 2 * kRecorded) return bytes >= most_equal_;
  most_equal_ = std::max(most_equal_, bytes);
  return false;
}

// A group of Horovod's of which not all is planned, because the rest is another operation's or not in every step; and
// one of metrics alone.
void Gate::leave_out_groups(std::vector<std::size_t>& planned) const {
  struct Group {
    std::int64_t planned = 0;
    std::uint64_t most_bytes = 0;
  };
  std::map<std::pair<std::string, std::int64_t>, Group> groups;
  const auto group_at = [&](std::size_t t) -> Group* {
    const std::string& name = tensors_[t].name;
    std::string group = group_of(name);
    return group.empty() ? nullptr : &groups[{std::move(group), group_size(name)}];
  };
  for (const std::size_t t : planned)
    if (Group* group = group_at(t)) {
      ++group->planned;
      group->most_bytes = std::max(group->most_bytes, tensors_[t].bytes);
    }
  std::erase_if(planned, [&](std::size_t t) {
    const Group* group = group_at(t);
    return group && (group->planned != group_size(tensors_[t].name) || group->most_bytes <= kNumber);
  });
}

// At the end of a step: when all tensors that are reduced in every step have been reduced equally often. Others are
// never held.
void Gate::make_plan() {
  const std::uint32_t steps = this->steps();
  if (steps < kRecorded) return;
  // Asked at every reduction, and nearly always no: by sums, before any tensor is looked at.
  const std::uint64_t equal = carried_[steps];
  const bool off_by_one = carried_.contains(steps - 1) || carried_.contains(steps + 1);
  const bool ends = !off_by_one || ends_step(equal, steps);
  if (!ends && equal != planned_bytes_) return;
  std::vector<std::size_t> planned;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].group = -1;
    if (tensors_[i].reductions == steps) planned.push_back(i);
  }
  leave_out_groups(planned);
  if (planned.empty()) return;
  std::vector<std::size_t> known = planned_;
  std::sort(known.begin(), known.end());
  const bool as_before = planned == known;  // what was new is not reduced in every step
  if (!ends && !as_before) return;
  if (search_ && as_before) {
    search_->resume();
    return group_as_chosen();
  }
  planned_ = std::move(planned);
  planned_bytes_ = equal;
  if (search_) {
    search_->begin(named_tensors());
    choose({});
    return group_as_chosen();
  }
  std::vector<std::uint64_t> bytes;
  for (const std::size_t i : planned_) bytes.push_back(tensors_[i].bytes);
  std::vector<bool> begins = may_begin(named_tensors());
  const auto groups = plan_.groups(bytes);
  for (std::size_t i = 1; i < groups.size(); ++i) begins[i] = begins[i] && groups[i] != groups[i - 1];
  group_by(begins);
}

std::vector<NamedTensor> Gate::named_tensors() const {
  std::vector<NamedTensor> out;
  out.reserve(planned_.size());
  for (const std::size_t i : planned_) out.push_back({tensors_[i].name, tensors_[i].bytes});
  return out;
}

void Gate::reorder(const std::vector<std::uint32_t>& order) {
  std::vector<std::size_t> planned;
  planned.reserve(order.size());
  for (const auto i : order) planned.push_back(planned_[i]);
  planned_ = std::move(planned);
}

void Gate::choose(const MergeTrials::Plan& plan) {
  // Who was late for one plan may be in time for another.
  if (plan != adopted_)
    for (const std::size_t i : planned_) {
      Tensor& t = tensors_[i];
      t.missed = t.awaited = 0;
      t.excluded = false;
    }
  adopted_ = plan;
  holds_ = plan.holds;
}

void Gate::group_as_chosen() {
  hold_ = Hold::closed;
  held_since_.reset();
  std::vector<bool> begins(planned_.size());
  for (const auto cut : adopted_.groups.cuts) begins[cut] = true;
  group_by(begins);
}

void Gate::group_by(const std::vector<bool>& begins) {
  members_.clear();
  together_.clear();
  std::map<std::pair<std::string, std::int64_t>, int> groups;  // Horovod's
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    if (i == 0 || begins[i]) members_.emplace_back();
    Tensor& t = tensors_[planned_[i]];
    t.group = static_cast<int>(members_.size()) - 1;
    t.place = i;
    t.together = -1;
    members_.back().push_back(planned_[i]);
    std::string group = group_of(t.name);
    if (group.empty()) continue;
    const auto number = static_cast<int>(together_.size());
    const auto [known, is_new] = groups.try_emplace({std::move(group), group_size(t.name)}, number);
    if (is_new) together_.push_back(0);
    t.together = known->second;
    ++together_[static_cast<std::size_t>(t.together)];
  }
  left_.assign(members_.size(), 0);
  begin_step();
  if (search_)
    for (const std::size_t i : planned_)
      if (Tensor& t = tensors_[i]; search_->was_reduced(t.place)) {
        t.done = true;
        left_[static_cast<std::size_t>(t.group)] -= !t.excluded;
      }
  pass_by();
  masks_ = Masks::stale;
  cache_version_ = ~0ull;
}

std::vector<std::size_t> Gate::lacking() const {
  std::vector<std::size_t> out = together_;
  if (out.empty()) return out;
  for (const int t : tensor_of_bit_) {
    if (t < 0) continue;
    const Tensor& tensor = tensors_[static_cast<std::size_t>(t)];
    if (tensor.group >= 0 && tensor.together >= 0 && !tensor.excluded) --out[static_cast<std::size_t>(tensor.together)];
  }
  return out;
}

void Gate::read_bits(const ResponseCache& cache) {
  if (masks_ != Masks::stale && cache_version_ == cache.version()) return;
  if (cache_version_ != cache.version()) {
    cache_version_ = cache.version();
    tensor_of_bit_.assign(cache.bits(), -1);
    for (std::size_t b = 0; b < cache.bits(); ++b)
      if (const Response* r = cache.peek(b))
        if (const auto it = by_name_.find(r->names.front()); it != by_name_.end())
          tensor_of_bit_[b] = static_cast<int>(it->second);
  }
  const std::size_t words = (cache.bits() + kStatusBits + 63) / 64;
  for (auto* bits : {&planned_bits_, &group_bits_, &wanted_bits_}) bits->assign(words, 0);
  const auto lacking = this->lacking();
  std::size_t wanted = 0;
  for (const std::size_t t : members_[current_]) wanted += !tensors_[t].done && !tensors_[t].excluded;
  for (std::size_t b = 0; b < cache.bits(); ++b) {
    if (tensor_of_bit_[b] < 0) continue;
    const Tensor& tensor = tensors_[static_cast<std::size_t>(tensor_of_bit_[b])];
    if (tensor.group < 0 || tensor.excluded) continue;
    const std::size_t word = (b + kStatusBits) / 64;
    const std::uint64_t bit = std::uint64_t{1} << ((b + kStatusBits) % 64);
    if (tensor.together < 0 || lacking[static_cast<std::size_t>(tensor.together)] == 0) planned_bits_[word] |= bit;
    if (tensor.group != static_cast<int>(current_)) continue;
    group_bits_[word] |= bit;
    if (tensor.done) continue;
    wanted_bits_[word] |= bit;
    --wanted;
  }
  masks_ = wanted == 0 ? Masks::whole : Masks::partial;
}

void Gate::hold(std::span<std::int64_t> own_bits, const ResponseCache& cache, Clock::time_point (*time)()) {
  if (search_ && !own_bits.empty())
    if (const auto told = search_->plan(time)) {
      if (!told->order.empty()) reorder(told->order);
      choose(told->plan);
      if (!members_.empty()) group_as_chosen();  // else a new tensor has come since the step's end
    }
  if (!planned() || own_bits.empty() || hold_ == Hold::open) return;
  const auto own = [&](std::size_t word) { return static_cast<std::uint64_t>(own_bits[word]); };
  if ((own(0) & kCalm) != kCalm) {
    if (hold_ == Hold::holding)
      release(!(own(0) & kShutdown) ? Release::shutdown : !(own(0) & kInvalid) ? Release::invalid : Release::uncached);
    hold_ = Hold::closed;
    return;
  }
  read_bits(cache);
  if (search_ && search_->wants_ready()) note_ready(own_bits, time());
  const std::size_t words = std::min(own_bits.size(), planned_bits_.size());
  bool complete = masks_ == Masks::whole;
  std::uint64_t ready = 0, others = 0, of_group = 0;
  for (std::size_t w = 0; w < words; ++w) {
    complete = complete && (own(w) & wanted_bits_[w]) == wanted_bits_[w];
    ready |= own(w) & planned_bits_[w];
    of_group |= own(w) & group_bits_[w];
    others |= own(w) & planned_bits_[w] & ~group_bits_[w];
  }
  complete = complete && of_group;
  if (complete && group_ == Group::waiting) {
    group_ = Group::passed;
    release(Release::complete);
  }
  if (!ready || (complete && !others)) {  // nothing to hold; a complete group waits for other ranks only
    hold_ = Hold::closed;
    held_since_.reset();
    return;
  }
  const auto now = time();
  if (!held_since_) held_since_ = now;
  hold_ = Hold::holding;
  if (now - *held_since_ > bound_) return open(own_bits);
  for (std::size_t w = 0; w < words; ++w)
    own_bits[w] &= static_cast<std::int64_t>(~(planned_bits_[w] & ~(complete ? group_bits_[w] : 0)));
}

std::vector<bool> Gate::ready(std::span<const std::int64_t> own_bits) const {
  std::vector<bool> is_ready(tensors_.size());
  for (std::size_t b = 0; b < tensor_of_bit_.size(); ++b) {
    const std::size_t word = (b + kStatusBits) / 64, bit = (b + kStatusBits) % 64;
    if (tensor_of_bit_[b] >= 0 && word < own_bits.size())
      is_ready[static_cast<std::size_t>(tensor_of_bit_[b])] = static_cast<std::uint64_t>(own_bits[word]) >> bit & 1;
  }
  return is_ready;
}

void Gate::note_ready(std::span<const std::int64_t> own_bits, Clock::time_point now) {
  const auto is_ready = ready(own_bits);
  for (const std::size_t t : planned_)
    if (is_ready[t]) search_->ready(tensors_[t].place, now);
}

std::size_t Gate::unmerged() const {
  if (!planned()) return 0;
  return static_cast<std::size_t>(
      std::count_if(planned_.begin(), planned_.end(), [&](std::size_t t) { return tensors_[t].excluded; }));
}

bool Gate::missed(Tensor& tensor) {
  if (step_ - tensor.miss >= kForgotten) tensor.missed = 0;
  tensor.miss = step_;
  return ++tensor.missed >= kMissed;
}

void Gate::open(std::span<const std::int64_t> own_bits) {
  release(Release::deadline);
  hold_ = Hold::open;
  const auto is_ready = ready(own_bits);
  const auto& group = members_[current_];
  const auto wanted = [&](std::size_t t) { return !tensors_[t].done && !tensors_[t].excluded; };
  const bool complete =
      std::none_of(group.begin(), group.end(), [&](std::size_t t) { return wanted(t) && !is_ready[t]; });
  bool leaves = false;
  for (const std::size_t t : group) {
    Tensor& tensor = tensors_[t];
    if (!wanted(t) || (!complete && is_ready[t]) || std::exchange(tensor.deadline, step_) == step_) continue;
    if (complete ? ++tensor.awaited < kAwaited : !missed(tensor)) continue;
    tensor.excluded = leaves = true;
    --left_[current_];
  }
  if (leaves && !search_) late_(unmerged(), planned_.size());
}

}  // namespace crimp::horovod
