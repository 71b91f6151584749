#include "collective/owned_runs.hpp"

#include <algorithm>

#include "memory/workers.hpp"

namespace crimp {
namespace {

// Pages that were never written stay so.
constexpr std::uint64_t kBlock = 1024;

void move_part(float* held, float* own, std::uint64_t count, float part) {
  for (std::uint64_t at = 0; at < count; at += kBlock) {
    float *const from = held + at, *const to = own + at;
    const std::uint64_t n = std::min(kBlock, count - at);
    bool any = false;
    for (std::uint64_t i = 0; i < n; ++i) any |= from[i] != 0.0f;
    if (!any) continue;
    for (std::uint64_t i = 0; i < n; ++i) {
      const float moved = part * from[i];
      to[i] += moved;
      from[i] -= moved;
    }
  }
}

}  // namespace

void OwnedRuns::own(std::uint64_t route, std::span<const Shares::Run> runs) {
  std::vector<Run> before, left;
  before.reserve(owned_.size() + left_.size());
  std::merge(owned_.begin(), owned_.end(), left_.begin(), left_.end(), std::back_inserter(before),
             [](const Run& a, const Run& b) { return a.begin < b.begin; });
  auto next = runs.begin();
  for (Run run : before) {
    while (next != runs.end() && next->end <= run.begin) ++next;
    for (auto covers = next; covers != runs.end() && covers->begin < run.end && run.begin < run.end; ++covers) {
      if (covers->begin > run.begin) left.push_back({run.begin, covers->begin, run.calls});
      run.begin = std::min(run.end, covers->end);
    }
    if (run.begin < run.end) left.push_back(run);
  }
  if (left.size() > kMostRuns) {
    std::size_t last = 0;
    for (std::size_t r = 1; r < left.size(); ++r)
      if (left[last].end == left[r].begin)
        left[last] = {left[last].begin, left[r].end, std::min(left[last].calls, left[r].calls)};
      else left[++last] = left[r];
    left.resize(last + 1);
  }
  before.clear();
  for (const Shares::Run& run : runs)
    if (run.count()) before.push_back({run.begin, run.end});
  owned_ = std::move(before);  // from here on nothing can fail
  left_ = std::move(left);
  route_ = route;
}

void OwnedRuns::leave_all(std::uint64_t count) {
  route_ = kNone;
  owned_.clear();
  left_ = {{0, count}};
}

void OwnedRuns::hand_on(float* held, float* own, int ranks, MemoryResource& memory, Workers& workers) {
  const bool on_host = &memory == &host_memory();
  const auto rest = [&](const Run& run) { return run.calls >= most_calls(ranks); };
  for (Run& run : left_) {
    ++run.calls;
    if (!on_host && !rest(run)) continue;
    const float part = rest(run) ? 1.0f : 0.5f / static_cast<float>(ranks);
    const std::uint64_t count = run.end - run.begin;
    if (on_host) {
      workers.run([&](int share, int shares) {
        const auto border = [&](int s) {
          return count * static_cast<std::uint64_t>(s) / static_cast<std::uint64_t>(shares);
        };
        const std::uint64_t first = border(share), last = border(share + 1);
        move_part(held + run.begin + first, own + run.begin + first, last - first, part);
      });
      continue;
    }
    std::vector<float> from(std::min<std::uint64_t>(count, 1 << 20)), to(from.size());
    for (std::uint64_t at = run.begin; at < run.end; at += from.size()) {
      const std::uint64_t n = std::min<std::uint64_t>(from.size(), run.end - at), bytes = n * sizeof(float);
      memory.read(from.data(), held + at, bytes);
      memory.read(to.data(), own + at, bytes);
      move_part(from.data(), to.data(), n, part);
      memory.write(own + at, to.data(), bytes);
      memory.write(held + at, from.data(), bytes);
    }
  }
  std::erase_if(left_, rest);
}

}  // namespace crimp
