#include "collective/trials.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "collective/measure.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

constexpr double kFailed = 1e9;

// After so many rounds ranks agree, and at most so many candidates stay.
struct Stage {
  int rounds;
  std::size_t most;
};
constexpr Stage kStages[] = {{4, 8}, {Trials::kRounds, 3}, {9, 2}, {14, 2}, {Trials::kShortRounds, 1}};
constexpr Stage kProbe[] = {{2, 3}, {5, 3}};
// The model's best stays for the first stages unless it is beyond so many times the fastest: a link's credit makes
// those calls fast that send most, and it ends.
constexpr double kLent = 4;

const Choice* cheapest_of(const std::vector<Choice>& all, bool nodes = true) {
  const Choice* best = nullptr;
  for (const Choice& c : all)
    if ((nodes || !c.carriage.nodes) && (!best || c.predicted_s < best->predicted_s)) best = &c;
  return best;
}

}  // namespace

bool same(const Choice& a, const Choice& b) { return a.plain == b.plain && a.carriage == b.carriage; }

bool Trials::failed(double s) { return s >= 1e-3 * kFailed; }  // one of the calls that count

double Trials::Tried::typical() const {
  std::vector<double> sorted;
  insist([&] { sorted = counted; });
  std::erase_if(sorted, Trials::failed);  // by what the call's values were, not by who carried it
  if (sorted.empty()) return kFailed;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t lower = (3 * sorted.size() + 3) / 4;
  return std::accumulate(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(lower), 0.0) /
         static_cast<double>(lower);
}

double Trials::Tried::least() const { return *std::min_element(counted.begin(), counted.end()); }

Trials::Trials(std::vector<Choice> predictions, bool plain) : with_plain_(plain) {
  const Choice* best = cheapest_of(predictions);
  if (!best) return;
  const bool unknown = best->predicted_s == 0;
  if ((unknown && !plain) || best->predicted_s > kNear * best->plain_s) return;
  const double limit = (best->predicted_s < kShort ? kShortNear : kNear) * best->predicted_s;
  const bool near_plain = unknown || best->predicted_s > best->plain_s / (plain ? kNearPlain : kNear);
  const double plain_s = best->plain_s;
  std::erase_if(predictions, [&](const Choice& c) { return c.predicted_s > limit; });
  if (predictions.size() + (near_plain ? 1 : 0) < 2 && !plain) return;
  std::stable_sort(predictions.begin(), predictions.end(),
                   [](const Choice& a, const Choice& b) { return a.predicted_s < b.predicted_s; });
  if (predictions.size() > kMost) predictions.resize(kMost);
  if (near_plain && plain) predictions.push_back({.plain = true, .predicted_s = plain_s, .plain_s = plain_s});
  for (const Choice& choice : predictions) {
    in_.push_back(tried_.size());
    tried_.push_back({choice});
  }
  until_ = kStages[0].rounds;
}

const Trials::Tried* Trials::plain_tried() const {
  const auto at = std::find_if(tried_.begin(), tried_.end(), [](const Tried& of) { return of.choice.plain; });
  return at == tried_.end() ? nullptr : &*at;
}

std::size_t Trials::fastest() const {
  const auto by_s = [](const Tried& a, const Tried& b) { return a.s < b.s; };
  return static_cast<std::size_t>(std::min_element(tried_.begin(), tried_.end(), by_s) - tried_.begin());
}

bool Trials::probe() {
  if (tried_.empty()) return false;
  if (!finished()) return true;
  const std::size_t first = fastest();
  std::size_t second = tried_.size();
  for (std::size_t i = 0; i < tried_.size(); ++i)
    if (i != first && (second == tried_.size() || tried_[i].s < tried_[second].s)) second = i;
  insist([&] { in_.reserve(kMost); });
  for (std::size_t i = 0; i < tried_.size(); ++i)
    if (i == first || i == second || tried_[i].choice.plain) in_.push_back(i), tried_[i].counted.clear();
  rounds_ = calls_ = 0;
  until_ = kProbe[0].rounds;
  probing_ = true;
  return true;
}

// Calls of a class are of several sizes, which come in one order in every step: who always began would always have the
// first one's. The number of ones in a round's number is in no step with any period (Thue and Morse).
std::size_t Trials::turn(std::size_t trial) const {
  const auto round = static_cast<unsigned>(rounds_) + static_cast<unsigned>(trial / in_.size());
  return (trial + static_cast<std::size_t>(std::popcount(round))) % in_.size();
}

// A trial ends at about the same time everywhere (mpi/call_run.hpp, meet), so what it takes is what it took for who
// came last.
void Trials::agree(Transport& transport) {
  insist([&] {
    for (const std::size_t i : in_) tried_[i].counted.reserve(tried_[i].counted.size() + new_.size() / in_.size());
  });
  for (double& s : new_) s = -s;  // agree_on_largest() then finds the least
  for (std::size_t i = 0; i < new_.size(); i += 8)
    agree_on_largest(transport, std::span(new_).subspan(i, std::min<std::size_t>(8, new_.size() - i)));
  const std::size_t uncounted = rounds_ == 0 && !probing_ ? in_.size() : 0;
  for (std::size_t i = uncounted; i < new_.size(); ++i) tried_[in_[turn(i)]].counted.push_back(-new_[i]);
  rounds_ += static_cast<int>(new_.size() / in_.size());
  new_.clear();
}

void Trials::drop(std::size_t most) {
  std::vector<std::size_t> order;
  std::vector<double> typical;
  insist([&] {
    order = in_;
    typical.clear();
    for (const Tried& of : tried_) typical.push_back(of.typical());
  });
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return typical[a] < typical[b]; });
  const std::size_t best = order[0];
  const auto stays = [&](std::size_t at) {
    const std::size_t i = order[at];
    if (i == 0 && !probing_ && rounds_ <= kRounds && typical[i] < kLent * typical[best]) return true;
    return at < most && (typical[i] <= kDrop * typical[best] || tried_[i].least() <= kDrop * tried_[best].least());
  };
  in_.clear();
  for (std::size_t at = 0; at < order.size(); ++at)
    if (stays(at)) in_.push_back(order[at]);
  std::sort(in_.begin(), in_.end());
}

// The first calls say what the model did not know: what it puts ahead of what they took is tried as well, and plain MPI
// in any case, once where it should be far behind. What it takes for long messages is drawn from short ones.
void Trials::join(std::uint64_t count, const std::vector<Choice>& predictions) {
  const Choice* const model = cheapest_of(predictions);
  if (!model) return;
  double took = kFailed;
  for (const std::size_t i : in_) took = std::min(took, tried_[i].typical());
  const bool unknown = failed(took);
  took *= static_cast<double>(count);
  const bool slow = !unknown && took > kNear * model->predicted_s;
  const bool plain = with_plain_ && !plain_tried();
  glances_ = plain && !slow && took <= model->plain_s / kNearPlain;
  insist([&] {
    std::vector<Choice> others;
    for (const Choice& other : predictions)
      if (slow && other.predicted_s < took &&
          std::none_of(tried_.begin(), tried_.end(), [&](const Tried& of) { return same(of.choice, other); }))
        others.push_back(other);
    std::stable_sort(others.begin(), others.end(),
                     [](const Choice& a, const Choice& b) { return a.predicted_s < b.predicted_s; });
    const std::size_t room = kMost - std::min(kMost, tried_.size());
    if (others.size() > room) others.resize(room);
    if (plain) others.push_back({.plain = true, .predicted_s = model->plain_s, .plain_s = model->plain_s});
    if (others.empty()) return;
    tried_.reserve(tried_.size() + others.size());
    in_.reserve(in_.size() + others.size());
    for (const Choice& other : others) {
      in_.push_back(tried_.size());
      tried_.push_back({other});
    }
    joined_ = rounds_;
  });
}

void Trials::finish() {
  double best = kFailed;
  for (const std::size_t i : in_) tried_[i].s = tried_[i].typical(), best = std::min(best, tried_[i].s);
  // What was dropped would be slower by more than that still, whatever links lent when it was tried.
  for (std::size_t i = 0; i < tried_.size(); ++i)
    if (std::find(in_.begin(), in_.end(), i) == in_.end()) tried_[i].s = std::max(tried_[i].typical(), kDrop * best);
  in_.clear();
}

void Trials::finish_probe(const std::vector<Choice>& predictions) {
  const std::size_t former = fastest();
  const double by = tried_[former].typical() / tried_[former].s;
  if (tried_[former].least() > kNear * tried_[former].s || by < 1 / kNear) {
    insist([&] { *this = Trials(predictions, with_plain_); });
    return;
  }
  // Few calls have less to say than those of before: only what is clear counts.
  const bool stays = std::find(in_.begin(), in_.end(), former) != in_.end();
  for (std::size_t i = 0; i < tried_.size(); ++i) {
    const bool last = std::find(in_.begin(), in_.end(), i) != in_.end();
    tried_[i].s = !stays && last ? tried_[i].typical() : tried_[i].s * by;
  }
  in_.clear();
  probing_ = false;
}

void Trials::go_on(std::uint64_t count, const std::vector<Choice>& predictions) {
  const std::span<const Stage> stages = probing_ ? std::span<const Stage>(kProbe) : std::span<const Stage>(kStages);
  const auto stage = std::find_if(stages.begin(), stages.end(), [&](const Stage& s) { return s.rounds >= rounds_; });
  const bool alone = tried_.size() == 1 && !with_plain_;
  if (probing_ || stage + 1 < stages.end()) drop(stage->most);
  double longest = 0;
  for (const std::size_t i : in_) longest = std::max(longest, tried_[i].typical());
  const bool brief = longest * static_cast<double>(count) < kShort;
  if (std::exchange(glances_, false) && !tried_[in_.back()].choice.plain) joined_ = 0;  // who joined is out again
  if (!probing_ && rounds_ == kStages[0].rounds) join(count, predictions);
  const int rounds = joined_ ? rounds_ - joined_ + 1 : rounds_;  // who joins finds memory touched
  const int left = (kMostCalls - calls_) / static_cast<int>(in_.size());
  const bool ends = stage + 1 >= stages.end() || left == 0 || (in_.size() == 1 && (!alone || probing_)) ||
                    (!probing_ && rounds >= kRounds && !brief);
  const int next = glances_ ? rounds_ + 1 : stage->rounds > rounds_ ? stage->rounds : ends ? 0 : stage[1].rounds;
  if (!ends) until_ = std::min(next, rounds_ + left);
  else if (probing_) finish_probe(predictions);
  else finish();
}

std::vector<std::pair<Choice, double>> Trials::results() const {
  std::vector<std::pair<Choice, double>> all;
  if (!finished()) return all;
  for (const Tried& of : tried_) all.emplace_back(of.choice, of.s);
  return all;
}

double Trials::best_s() const {
  if (tried_.empty() || !finished()) return 0;
  const double s = tried_[fastest()].s;
  return failed(s) ? 0 : s;
}

double Trials::plain_s() const {
  const Tried* const plain = plain_tried();
  return !plain || !finished() || failed(plain->s) ? 0 : plain->s;
}

Choice Trials::choose(Transport& transport, const std::vector<Choice>& predictions, std::uint64_t count,
                      double opening_s) {
  if (!finished() && new_.size() == in_.size() * static_cast<std::size_t>(until_ - rounds_)) {
    agree(transport);
    go_on(count, predictions);
  }
  if (!finished()) {
    Choice next = tried_[in_[turn(new_.size())]].choice;
    insist([&] { new_.push_back(kFailed); });
    ++calls_;
    next.trial = true;
    next.why = "tried";
    return next;
  }
  const Choice fastest = fastest_of(predictions, count, true);
  if (opening_s == 0 || !fastest.carriage.nodes || !cheapest_of(predictions, false)) return fastest;
  const Choice other = fastest_of(predictions, count, false);
  return (other.plain ? other.plain_s : other.predicted_s) - fastest.predicted_s < opening_s ? other : fastest;
}

Choice Trials::fastest_of(const std::vector<Choice>& predictions, std::uint64_t count, bool nodes) const {
  const Choice* best = cheapest_of(predictions, nodes);
  Choice choice = best ? *best : Choice{};
  if (const double s = plain_s(); s > 0) choice.plain_s = s * static_cast<double>(count);
  const Tried* of = nullptr;
  for (const Tried& other : tried_)
    if (!other.choice.plain && (nodes || !other.choice.carriage.nodes) && (!of || other.s < of->s)) of = &other;
  if (of && !failed(of->s)) {
    choice.carriage = of->choice.carriage;
    choice.predicted_s = of->s * static_cast<double>(count);
    choice.why = tried_.size() == 1
                     ? (with_plain_ ? "cheapest by the model, and timed" : "the only one near plain MPI, tried")
                 : choice.carriage.halves ? "fastest of those tried, in 16 bits"
                 : choice.limited         ? "fastest of those tried within CRIMP_QUALITY"
                                          : "fastest of those tried";
  }
  // What plain MPI would do as fast is not worth its loss.
  choice.plain = choice.predicted_s > 0 && choice.predicted_s >= choice.plain_s;
  return choice;
}

}  // namespace crimp
