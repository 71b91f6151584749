#include "schedule/step_recorder.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <utility>

namespace crimp {
namespace {

template <class T>
void keep_last(std::vector<T>& of, T one, std::size_t most) {
  if (of.size() == most) of.erase(of.begin());
  of.push_back(std::move(one));
}

}  // namespace

void StepRecorder::called(const std::shared_ptr<const Layout>& layout, std::uint64_t bytes, double begin_s,
                          double end_s) {
  if (in_step_.contains(layout->digest())) step_over();
  if (step_.size() == kMostCalls) {
    step_.clear(), in_step_.clear();
    last_end_s_ = -1;
  }
  in_step_.insert(layout->digest());
  try {
    step_.push_back({layout, bytes, begin_s, end_s});
  } catch (const std::bad_alloc&) {
    in_step_.erase(layout->digest());
    throw;
  }
}

// What comes seldom (the mean of a metric between two epochs) is no step of its own.
void StepRecorder::step_over() {
  const std::vector<Call> step = std::exchange(step_, {});
  in_step_.clear();
  const double begin_s = std::exchange(last_end_s_, step.back().end_s);
  if (begin_s < 0) return;
  const bool same = step.size() == kept_.size() &&
                    std::equal(step.begin(), step.end(), kept_.begin(),
                               [](const Call& a, const Kept& b) { return a.layout->digest() == b.layout->digest(); });
  if (!same) {
    if (!kept_.empty() && ++others_ < kPatience) return;
    kept_.clear(), steps_s_.clear(), calls_.clear();
    steps_ = 0;
    for (const Call& call : step) kept_.push_back({call.layout, call.bytes, {}});
  }
  others_ = 0;
  ++steps_;
  keep_last(steps_s_, step.back().end_s - begin_s, kSamples);
  double in_calls_s = 0;
  for (std::size_t i = 0; i < step.size(); ++i) {
    const Call& call = step[i];
    keep_last(kept_[i].ready_s, call.begin_s - begin_s - in_calls_s, kSamples);
    in_calls_s += call.end_s - call.begin_s;
    const auto bytes = static_cast<double>(std::max<std::uint64_t>(call.bytes, 1));
    keep_last(calls_[static_cast<int>(2 * std::log2(bytes))], {bytes, call.end_s - call.begin_s}, kSamples);
  }
}

std::optional<StepTrace> StepRecorder::trace() const {
  if (steps_ < 2) return {};
  StepTrace out;
  out.stalls = true;
  for (const Kept& call : kept_) {
    std::uint32_t tensors = 0;
    for (const Segment& segment : call.layout->segments)
      if (segment.summed() && !(segment.key.empty() && call.layout->known()))
        out.tensors.push_back(segment.key), ++tensors;
    out.units.push_back({tensors, call.bytes, median(call.ready_s)});
  }
  std::vector<std::vector<Curve::Point>> calls;
  for (const auto& [_, of] : calls_) calls.push_back(of);
  out.calls.push_back(curve_of(calls));
  out.step_s = median(steps_s_);
  out.steps = steps_;
  return out;
}

}  // namespace crimp
