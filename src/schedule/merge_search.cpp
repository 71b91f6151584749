#include "schedule/merge_search.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace crimp {
namespace {

constexpr std::size_t kFront = 8;  // ways to a tensor that are followed, where calls overlap

// What the groups so far leave to those after them.
struct State {
  double processor_s = 0, wire_s = 0;  // free from then on
  double decode_s = 0;                 // the last group's payloads, there at wire_s, are still to be decoded
  double end_s() const { return std::max(processor_s, wire_s) + decode_s; }
  double later_than(const State& other) const {  // at most, below 0: not
    return std::max({processor_s - other.processor_s, wire_s - other.wire_s, decode_s - other.decode_s});
  }
  bool no_later(const State& other) const {
    return processor_s <= other.processor_s && wire_s <= other.wire_s && decode_s <= other.decode_s;
  }
};

struct Steps {
  std::array<State, 2> states;
  std::size_t count;
};

// After one more group.
Steps next(const State& from, double ready_s, const CallTime& call, bool blocking) {
  if (blocking) {
    const double end = std::max(from.wire_s, ready_s) + call.total_s();
    return {{State{end, end, 0}}, 1};
  }
  const auto sent = [&](double processor, double encoded, double wire) {
    return State{processor, std::max(wire, encoded) + call.wire_s, call.decode_s};
  };
  const double ahead = std::max(from.processor_s, ready_s) + call.encode_s;
  if (from.decode_s == 0) return {{sent(ahead, ahead, from.wire_s)}, 1};
  const double behind = std::max(from.end_s(), ready_s) + call.encode_s;
  return {{sent(behind, behind, from.wire_s), sent(std::max(ahead, from.wire_s) + from.decode_s, ahead, from.wire_s)},
          2};
}

// A way to the end of a prefix of the tensors.
struct Way {
  State state;
  std::uint32_t groups = 0;
  std::uint32_t last = 0, before = 0;  // where its last group begins, and which way of that prefix it goes on from
  std::uint8_t codec = 0;              // of the last group
  bool beats(const Way& other) const {
    return state.no_later(other.state) && (groups <= other.groups || !other.state.no_later(state));
  }
};

void add(std::vector<Way>& front, const Way& way) {
  for (const Way& known : front)
    if (known.beats(way)) return;
  std::erase_if(front, [&](const Way& known) { return way.beats(known); });
  front.push_back(way);
  if (front.size() <= kFront) return;
  // The one goes that another one of them is the least later than.
  std::size_t gone = 0;
  double least = INFINITY;
  for (std::size_t x = 0; x < front.size(); ++x)
    for (std::size_t y = 0; y < front.size(); ++y)
      if (const double later = front[y].state.later_than(front[x].state); x != y && later < least)
        least = later, gone = x;
  front.erase(front.begin() + static_cast<std::ptrdiff_t>(gone));
}

// Of the tensors from the first one that is not in a group on: what they need of either at least.
struct Rest {
  double processor_s = 0, wire_s = 0;
};

std::vector<Rest> rests(const Timeline& step) {
  const std::size_t n = step.bytes.size();
  std::vector<Rest> of(n + 1);
  for (std::size_t i = n; i-- > 0;) {
    Rest least{INFINITY, INFINITY};
    std::uint64_t in_group = 0, exact = 0;
    for (std::size_t j = i + 1; j <= n; ++j) {
      in_group += step.bytes[j - 1];
      exact += step.exact_of(j - 1);
      for (std::uint8_t codec = 0; codec < step.codecs; ++codec) {
        const CallTime t = step.time(in_group, exact, codec);
        least.processor_s = std::min(least.processor_s, t.encode_s + t.decode_s + of[j].processor_s);
        least.wire_s = std::min(least.wire_s, t.wire_s + of[j].wire_s);
      }
    }
    of[i] = least;
  }
  return of;
}

// No way from there ends sooner.
double least_end_s(const State& state, const Rest& rest) {
  return std::max({state.end_s(), state.processor_s + state.decode_s + rest.processor_s, state.wire_s + rest.wire_s});
}

// What is over before the next tensor is ready is as good as over at that moment.
State seen_from(State state, double ready_s) {
  if (state.end_s() <= ready_s) return {ready_s, ready_s, 0};
  state.processor_s = state.decode_s > 0 ? state.processor_s : std::max(state.processor_s, ready_s);
  state.wire_s = state.decode_s > 0 ? state.wire_s : std::max(state.wire_s, ready_s);
  return state;
}

}  // namespace

double Timeline::end_s(const Grouping& grouping) const {
  if (bytes.empty()) return 0;
  std::vector<State> ways{{}};  // by the places of decoding
  double ready = 0;
  std::uint64_t in_group = 0, in_exact = 0;
  std::size_t group = 0;
  const auto close = [&] {
    const CallTime of = time(in_group, in_exact, grouping.codec(group));
    std::vector<State> after;
    for (const State& way : ways) {
      const Steps steps = next(way, ready, of, blocking);
      for (std::size_t i = 0; i < steps.count; ++i)
        if (std::none_of(after.begin(), after.end(), [&](const State& s) { return s.no_later(steps.states[i]); }))
          after.push_back(steps.states[i]);
    }
    ways = std::move(after);
  };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (group < grouping.cuts.size() && grouping.cuts[group] == i) {
      close();
      ++group;
      in_group = in_exact = 0;
    }
    ready = std::max(ready, ready_s[i]);
    in_group += bytes[i];
    in_exact += exact_of(i);
  }
  close();
  return std::min_element(ways.begin(), ways.end(),
                          [](const State& a, const State& b) { return a.end_s() < b.end_s(); })
      ->end_s();
}

Grouping best_grouping(const Timeline& step) {
  const std::size_t n = step.bytes.size();
  std::vector<Rest> rest(n + 1);
  Grouping known;
  double known_s = INFINITY;
  if (!step.blocking) {
    Timeline blocking = step;
    blocking.blocking = true;
    known = best_grouping(blocking);
    known_s = step.end_s(known);
    rest = rests(step);
  }
  std::vector<std::vector<Way>> fronts(n + 1);
  fronts[0].push_back({});
  double ready = 0;
  for (std::size_t j = 1; j <= n; ++j) {
    ready = std::max(ready, step.ready_s[j - 1]);
    const double next_ready = j < n ? std::max(ready, step.ready_s[j]) : 0;
    std::uint64_t in_group = 0, exact = 0;
    for (std::size_t i = j; i-- > 0;) {
      in_group += step.bytes[i];
      exact += step.exact_of(i);
      for (std::uint8_t codec = 0; codec < step.codecs; ++codec) {
        const CallTime time = step.time(in_group, exact, codec);
        for (std::size_t before = 0; before < fronts[i].size(); ++before) {
          const Steps steps = next(fronts[i][before].state, ready, time, step.blocking);
          for (std::size_t s = 0; s < steps.count; ++s) {
            const double least_end = step.blocking ? 0 : least_end_s(steps.states[s], rest[j]);
            if (least_end > known_s * (1 + 1e-9)) continue;
            add(fronts[j], {seen_from(steps.states[s], next_ready), fronts[i][before].groups + 1,
                            static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(before), codec});
          }
        }
      }
    }
  }
  Grouping best;
  if (n == 0) return best;
  // A full front may have lost the ways that end as early as the known one.
  if (fronts[n].empty()) return known;
  const Way* way = &*std::min_element(fronts[n].begin(), fronts[n].end(), [](const Way& a, const Way& b) {
    return a.state.end_s() < b.state.end_s() || (a.state.end_s() == b.state.end_s() && a.groups < b.groups);
  });
  for (;; way = &fronts[way->last][way->before]) {
    best.codecs.push_back(way->codec);
    if (way->last == 0) break;
    best.cuts.push_back(way->last);
  }
  std::reverse(best.cuts.begin(), best.cuts.end());
  std::reverse(best.codecs.begin(), best.codecs.end());
  if (std::all_of(best.codecs.begin(), best.codecs.end(), [](auto codec) { return codec == 0; })) best.codecs.clear();
  return best;
}

}  // namespace crimp
