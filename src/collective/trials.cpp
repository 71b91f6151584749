#include "collective/trials.hpp"

#include <algorithm>

#include "collective/measure.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

constexpr double kFailed = 1e9;

const Choice* least(const std::vector<Choice>& all) {
  const auto best = std::min_element(all.begin(), all.end(),
                                     [](const Choice& a, const Choice& b) { return a.predicted_s < b.predicted_s; });
  return best == all.end() ? nullptr : &*best;
}

}  // namespace

Trials::Trials(std::vector<Choice> predictions, bool plain) {
  const Choice* best = least(predictions);
  if (!best || best->predicted_s == 0 || best->predicted_s > kNear * best->plain_s) return;
  const double limit = (best->predicted_s < kShort ? kShortNear : kNear) * best->predicted_s;
  const bool near_plain = best->predicted_s > best->plain_s / (plain ? kNearPlain : kNear);
  const double plain_s = best->plain_s;
  std::erase_if(predictions, [&](const Choice& c) { return c.predicted_s > limit; });
  if (predictions.size() + (near_plain ? 1 : 0) < 2) return;
  std::stable_sort(predictions.begin(), predictions.end(),
                   [](const Choice& a, const Choice& b) { return a.predicted_s < b.predicted_s; });
  if (predictions.size() > kMost) predictions.resize(kMost);
  tried_ = std::move(predictions);
  if (near_plain && plain) tried_.push_back({.plain = true, .predicted_s = plain_s, .plain_s = plain_s});
}

// A call ends at about the same time everywhere, so what it takes is what it took for who came last.
void Trials::agree(Transport& transport) {
  std::vector<double> counted;
  insist([&] { agreed_.reserve(tried_.size()), counted.reserve(rounds_); });
  for (double& s : times_) s = -s;  // agree_on_largest() then finds the least
  for (std::size_t i = 0; i < times_.size(); i += 8)
    agree_on_largest(transport, std::span(times_).subspan(i, std::min<std::size_t>(8, times_.size() - i)));
  for (double& s : times_) s = -s;
  for (std::size_t i = 0; i < tried_.size(); ++i) {
    counted.clear();
    for (std::size_t r = 1; r < rounds_; ++r) counted.push_back(times_[i + r * tried_.size()]);
    std::nth_element(counted.begin(), counted.begin() + static_cast<std::ptrdiff_t>(counted.size() / 2), counted.end());
    agreed_.push_back(counted[counted.size() / 2]);
  }
}

std::vector<std::pair<Choice, double>> Trials::results() const {
  std::vector<std::pair<Choice, double>> all;
  for (std::size_t i = 0; i < agreed_.size(); ++i) all.emplace_back(tried_[i], agreed_[i]);
  return all;
}

double Trials::best_s() const {
  const auto best = std::min_element(agreed_.begin(), agreed_.end());
  return best == agreed_.end() || *best >= kFailed ? 0 : *best;
}

double Trials::plain_s() const {
  return agreed_.empty() || !tried_.back().plain || agreed_.back() >= kFailed ? 0 : agreed_.back();
}

Choice Trials::choose(Transport& transport, const std::vector<Choice>& predictions, std::uint64_t count) {
  const std::size_t n = tried_.size();
  if (agreed_.size() < n && times_.size() == n * rounds_) {
    agree(transport);
    const bool brief = *std::max_element(agreed_.begin(), agreed_.end()) * static_cast<double>(count) < kShort;
    if (brief && rounds_ < kShortRounds) rounds_ = kShortRounds, agreed_.clear();
  }
  if (times_.size() < n * rounds_) {
    Choice next = tried_[times_.size() % n];
    insist([&] { times_.push_back(kFailed); });
    next.trial = true;
    next.why = "tried";
    return next;
  }
  const bool with_plain = n > 0 && tried_.back().plain;
  const auto fastest = std::min_element(agreed_.begin(), agreed_.end() - with_plain);
  const Choice* best = least(predictions);
  Choice choice = best ? *best : Choice{};
  if (with_plain && agreed_.back() < kFailed) choice.plain_s = agreed_.back() * static_cast<double>(count);
  if (fastest != agreed_.end() - with_plain && *fastest < kFailed) {
    const Choice& of = tried_[static_cast<std::size_t>(fastest - agreed_.begin())];
    choice.algorithm = of.algorithm;
    choice.nodes = of.nodes;
    choice.chunk_setting = of.chunk_setting;
    choice.radix = of.radix;
    choice.predicted_s = *fastest * static_cast<double>(count);
    choice.why = n == 1           ? "the only one near plain MPI, tried"
                 : choice.limited ? "fastest of those tried within CRIMP_QUALITY"
                                  : "fastest of those tried";
  }
  // What plain MPI would do as fast is not worth its loss.
  choice.plain = choice.predicted_s > 0 && choice.predicted_s >= choice.plain_s;
  return choice;
}

}  // namespace crimp
