#include "schedule/delay_control.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <utility>

namespace crimp {

std::uint16_t DelayNote::coded(double us) {
  auto whole = static_cast<std::uint64_t>(std::clamp(us, 1.0, static_cast<double>(kMostPeriod)));
  std::uint16_t exponent = 0;
  for (; whole > 0x7ff; whole >>= 1) ++exponent;
  return static_cast<std::uint16_t>(exponent << 11 | whole);
}

double DelayNote::us_of(std::uint16_t code) {
  return static_cast<double>(std::uint64_t{code & 0x7ffu} << (code >> 11));
}

void DelayNotes::add(const DelayNote& n) {
  any_ = true;
  silent_ = silent_ || n.period == 0;
  all_.period = std::max(all_.period, n.period);
  all_.wait = std::min(all_.wait & DelayNote::kMostWait, n.wait & DelayNote::kMostWait) |
              ((all_.wait | n.wait) & DelayNote::kLossy);
}

DelayNote DelayNotes::note() const { return any_ && !silent_ ? all_ : DelayNote{}; }

bool DelayTarget::parse(std::string_view text, DelayTarget& to) {
  const auto number = [&](std::string_view suffix, double unit, double most, double& value) {
    const char* const end = text.data() + text.size() - std::min(suffix.size(), text.size());
    double read = 0;
    const auto [behind, status] = std::from_chars(text.data(), end, read);
    if (!text.ends_with(suffix) || status != std::errc() || behind != end || !(read >= 1e-3 && read <= most))
      return false;
    value = read * unit;
    return true;
  };
  DelayTarget read;
  const bool legal = number("%", 0.01, 90, read.fraction) || number("us", 1, 1e9, read.us) ||
                     number("ms", 1e3, 1e6, read.us) || number("s", 1e6, 1e3, read.us);
  if (legal) to = read;
  return legal;
}

int DelayControl::key_of(std::uint64_t bytes) { return (static_cast<int>(std::bit_width(bytes)) - 1) / 2; }

int DelayControl::level(std::uint64_t bytes, int start) {
  const int key = key_of(bytes);
  const Class* const near = nearest(key);
  if (const auto known = classes_.find(key); known != classes_.end()) {
    Class& c = known->second;
    c.others = std::max(c.others, all_calls_ - c.last);
    if (!follows_ && near && forgotten(c)) resume(key, c, near->level);
    return c.level;
  }
  const auto n = static_cast<std::size_t>(levels_);
  Class c;
  c.level = near ? near->level : start;
  c.last = all_calls_;
  c.calls_at.assign(n, 0), c.barred.assign(n, 0), c.bar.assign(n, kFirstBar);
  c.all_bytes = all_bytes_;
  return classes_.emplace(key, std::move(c)).first->second.level;
}

bool DelayControl::forgotten(const Class& c) const {
  return all_calls_ - c.last > std::max(kForgotten, 2 * c.usual_others);
}

const DelayControl::Class* DelayControl::nearest(int key) const {
  const Class* nearest = nullptr;
  int distance = 0;
  for (const auto& [other, c] : classes_) {
    if (other == key || c.calls == 0 || forgotten(c)) continue;
    if (nearest && std::abs(other - key) > distance) continue;
    nearest = &c;
    distance = std::abs(other - key);
  }
  return nearest;
}

// What it knew is of another time.
void DelayControl::resume(int key, Class& c, int to) {
  c.last = all_calls_;
  if (to != c.level) {
    ++changes_;
    if (decisions_.size() < kMostDecisions)
      decisions_.push_back(
          {c.calls, least_bytes(key), c.level, to, "no such calls for long: as those of the nearest sizes", 0, 0});
  }
  c.level = c.from = to;
  c.timed = c.lossy = c.went_down = false;
  c.changed = 0;  // nor is what a change has done known any more
  c.wait_before = 0;
  c.skip = 1;
  c.in_window = c.gains = 0;
  c.bytes = 0;
  c.wait_us = c.period_us = 0;
  c.barred.assign(c.barred.size(), 0);
  c.bar.assign(c.bar.size(), kFirstBar);
  c.over_at_bar = c.useless = 0;
}

void DelayControl::follow(std::uint64_t bytes, int to) {
  follows_ = true;
  const int key = key_of(bytes);
  const bool known = classes_.contains(key);
  if (level(bytes, to) == to) return;
  Class& c = classes_.at(key);
  if (known) {
    ++changes_;
    if (decisions_.size() < kMostDecisions)
      decisions_.push_back({c.calls, least_bytes(key), c.level, to, "CRIMP_REPLAY", 0, 0});
  }
  c.level = to;
  c.gains = 0;
}

DelayNote DelayControl::note(std::uint64_t bytes, Clock::time_point now) const {
  const Class& c = classes_.at(key_of(bytes));
  if (!c.timed) return {};
  const double since = std::chrono::duration<double, std::micro>(now - c.begun).count();
  DelayNote note{DelayNote::coded(since),
                 static_cast<std::uint32_t>(std::clamp(1e6 * c.wait_s, 0.0, double{DelayNote::kMostWait}))};
  if (c.gains >= kWindow && c.gain < gain_floor_) note.wait |= DelayNote::kLossy;
  return note;
}

void DelayControl::ended(std::uint64_t bytes, Clock::time_point begun, const DelayNotes& notes, double wait_s,
                         double gain) noexcept {
  const int key = key_of(bytes);
  Class& c = classes_.at(key);
  c.timed = true;
  c.begun = begun;
  c.wait_s = wait_s;
  if (gain >= 0) {
    c.gain = c.gains == 0 ? gain : c.gain + (gain - c.gain) / 4;
    c.gains = std::min(c.gains + 1, kWindow);
  }
  ++c.calls;
  ++c.calls_at[static_cast<std::size_t>(c.level)];
  c.usual_others = std::exchange(c.others, 0);
  c.last = ++all_calls_;
  all_bytes_ += bytes;
  if (follows_) return;

  const DelayNote all = notes.note();
  if (all.period == 0 || c.skip > 0) {  // what is said now is of a call before the change
    c.skip -= c.skip > 0 && all.period != 0;
    c.bytes = 0;
    c.all_bytes = all_bytes_;
    return;
  }
  c.bytes += bytes;
  c.wait_us += all.wait & DelayNote::kMostWait;
  c.period_us += DelayNote::us_of(all.period);
  c.lossy = c.lossy || (all.wait & DelayNote::kLossy);
  if (++c.in_window < kWindow) return;
  decide(key, c);
  c.bytes = 0;
  c.all_bytes = all_bytes_;
  c.wait_us = c.period_us = 0;
  c.in_window = 0;
  c.lossy = false;
}

void DelayControl::decide(int key, Class& c) {
  ++c.windows;
  const double share = static_cast<double>(c.bytes) / static_cast<double>(all_bytes_ - c.all_bytes);
  const double target = target_.us > 0 ? target_.us * c.in_window : target_.fraction * c.period_us * share;
  const double over = c.wait_us / target;
  const auto barred = [&](int level) {
    return c.barred[static_cast<std::size_t>(level)] > c.windows ||
           (level >= c.lossy_from && c.windows < c.lossy_until);
  };
  const auto bar = [&](int level, int windows) {
    c.barred[static_cast<std::size_t>(level)] = c.windows + static_cast<std::uint64_t>(windows);
  };
  if (c.lossy && c.level > 0) {
    c.lossy_from = c.windows < c.lossy_until ? std::min(c.level, c.lossy_from) : c.level;
    c.lossy_until = c.windows + kGuardBar;
    return move(key, c, c.level - 1, "too little of the values was sent", target);
  }
  // Waiting that compression does not shorten is not for bytes: ranks share cores, or the network is slow to answer.
  if (!c.went_down && c.changed > 0 && c.windows - c.changed == 1 && over > kOver &&
      c.wait_us > kHelps * c.wait_before) {
    bar_from(c, c.from + 1);
    c.useless = c.wait_before;
    return move(key, c, c.from, "compressing more did not shorten the waiting", target);
  }
  if (c.useless > 0 && c.wait_us > kFar * c.useless) {  // another network
    c.barred.assign(c.barred.size(), 0);
    c.bar.assign(c.bar.size(), kFirstBar);
    c.useless = 0;
  }
  if (over > kOver && c.level + 1 < levels_) {
    int to = std::min(c.level + 1 + (over > kFar) + (over > kFarther), levels_ - 1);
    while (to > c.level && barred(to)) --to;
    if (to == c.level) return;
    // The level that one came down to was too mild: it waits longer each time.
    if (c.went_down && c.windows - c.changed <= 2) {
      int& length = c.bar[static_cast<std::size_t>(c.level)];
      bar(c.level, length);
      length = std::min(2 * length, kLongestBar);
      c.over_at_bar = 0;
    }
    return move(key, c, to, "the network took longer than the target", target);
  }
  if (over >= kUnder || c.level == 0) {
    if (c.over_at_bar == 0) c.over_at_bar = over;
    return;
  }
  // A network that is far faster than when levels were barred is another one.
  if (c.over_at_bar == 0) c.over_at_bar = over;
  if (over < c.over_at_bar / kFar) {
    c.barred.assign(c.barred.size(), 0);
    c.bar.assign(c.bar.size(), kFirstBar);
    c.over_at_bar = over;
  }
  int to = std::max(c.level - 1 - (over < kUnder / kFar) - (over < kUnder / kFarther), 0);
  while (to < c.level && barred(to)) ++to;
  if (to < c.level) move(key, c, to, "the network took less than the target", target);
}

void DelayControl::bar_from(Class& c, int level) {
  int& length = c.bar[static_cast<std::size_t>(level)];
  for (int l = level; l < levels_; ++l)
    c.barred[static_cast<std::size_t>(l)] = c.windows + static_cast<std::uint64_t>(length);
  length = std::min(2 * length, kLongestBar);
}

void DelayControl::move(int key, Class& c, int to, const char* why, double target_us) {
  ++changes_;
  if (decisions_.size() < kMostDecisions)
    decisions_.push_back(
        {c.calls, least_bytes(key), c.level, to, why, c.wait_us / c.in_window, target_us / c.in_window});
  c.went_down = to < c.level;
  c.from = c.level;
  c.wait_before = c.wait_us;
  c.changed = c.windows;
  c.level = to;
  c.skip = 1;
  c.gains = 0;
}

}  // namespace crimp
