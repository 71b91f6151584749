// CRIMP_CONTROL=delay: compression that follows the network, after the idea of DC2 (Abdelmoniem and Canini, INFOCOM
// 2021: couple compression to measured delay). Its law is not published; this one is Crimp's own, and docs/control.md
// has it.
//
// The codecs to choose from are a ladder, from the mildest to the strongest. Calls of similar sizes are a class with a
// level of its own. In the headers of every call a rank says how long it waited for the network in the class's last
// call, and how long ago that one began; the rank that came last waited for no other, so the least wait is the
// network's alone. All ranks see all headers, and find the same levels from the same numbers: no exchange is added.
#pragma once
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "core/clock.hpp"

namespace crimp {

// A rank's word in a header (WIRE_FORMAT.md, section 2).
struct DelayNote {
  std::uint16_t period = 0;  // coded(): since the class's last call began; 0: nothing is said
  std::uint32_t wait = 0;    // microseconds in the last call, 31 bits; the highest: too little of the values is sent
  static constexpr std::uint32_t kLossy = 1u << 31, kMostWait = kLossy - 1;
  static constexpr std::uint64_t kMostPeriod = std::uint64_t{0x7ff} << 31;  // 50 days
  // Eleven bits of significand, five of exponent, to kMostPeriod; rising with the microseconds, at least 1.
  static std::uint16_t coded(double us);
  static double us_of(std::uint16_t code);
  bool operator==(const DelayNote&) const = default;
};

// All ranks' words of one call.
class DelayNotes {
 public:
  void add(const DelayNote&);
  // As one: the least wait, the longest period, what any rank finds too lossy; nothing where one says nothing.
  DelayNote note() const;

 private:
  DelayNote all_{0, DelayNote::kMostWait};
  bool any_ = false, silent_ = false;
};

// What waiting is held against.
struct DelayTarget {
  double fraction = 0.06;  // of the time that passes; each class has its share by bytes. Where us is 0
  double us = 0;           // else: of each call
  // "N%" or "N us|ms|s" (no space); false: it is neither.
  static bool parse(std::string_view text, DelayTarget& to);
};

class DelayControl {
 public:
  static constexpr int kWindow = 3;  // calls that a decision looks at
  // Dead band in targets, and where one decision goes two or three levels: the multiplicative part of the law.
  static constexpr double kOver = 1.25, kUnder = 0.5, kFar = 4, kFarther = 16;
  static constexpr double kHelps = 0.9;            // a stronger level must shorten the waiting to so much of it
  static constexpr std::uint64_t kForgotten = 64;  // calls, or twice as many as lay between the last two
  static constexpr int kFirstBar = 4, kLongestBar = 256, kGuardBar = 64;  // windows

  DelayControl(int levels, const DelayTarget& target, double gain_floor)
      : levels_(levels), target_(target), gain_floor_(gain_floor) {
    decisions_.reserve(kMostDecisions);
  }

  // For calls of so many bytes; start: of the first class. Others begin where the class with the nearest sizes is, and
  // go on there where more than kForgotten calls have been others': it is the same network. Where it throws nothing has
  // changed.
  int level(std::uint64_t bytes, int start);
  // In place of level(), which then decides nothing any more: CRIMP_REPLAY says it. Where it throws nothing has
  // changed.
  void follow(std::uint64_t bytes, int level);
  // Which class calls of so many bytes are: the least bytes of its calls.
  static std::uint64_t class_of(std::uint64_t bytes) { return least_bytes(key_of(bytes)); }
  // This rank's word in the call that begins now.
  DelayNote note(std::uint64_t bytes, Clock::time_point now) const;
  // The call that began then was carried to its end; all ranks' words in it. wait_s: this rank's wait; gain: of a
  // sample, the norm of what it sent by the norm of what it was to send (GraVAC); below 0: not looked at.
  void ended(std::uint64_t bytes, Clock::time_point begun, const DelayNotes&, double wait_s, double gain) noexcept;

  struct Decision {
    std::uint64_t call;   // of the class
    std::uint64_t bytes;  // least of the class
    int from, to;
    const char* why;
    double wait_us, target_us;  // of a call
  };
  static constexpr std::size_t kMostDecisions = 4096;  // that are kept
  const std::vector<Decision>& decisions() const { return decisions_; }
  std::uint64_t changes() const { return changes_; }
  struct Class {
    int level = 0;
    std::uint64_t calls = 0;
    std::vector<std::uint64_t> calls_at;  // each level

    // Of this rank.
    bool timed = false;
    Clock::time_point begun;
    double wait_s = 0, gain = 1;
    int gains = 0;  // since the level changed, up to kWindow

    // Equal on all ranks.
    std::uint64_t last = 0;                      // of all calls
    std::uint64_t others = 0, usual_others = 0;  // calls between the last one and this; between the last two
    std::uint64_t bytes = 0, all_bytes = 0;      // bytes: of this window; all_bytes: of all classes when it began
    double wait_us = 0, period_us = 0;
    int in_window = 0, skip = 1;
    bool lossy = false;
    std::uint64_t windows = 0, changed = 0;  // changed: the window after which the level did
    bool went_down = false;
    int from = 0;            // the level before the last change
    double wait_before = 0;  // a window's waiting then
    double useless = 0;      // likewise, where stronger levels were barred because they did not help; 0: they are not
    int lossy_from = 0;      // this level and stronger ones send too little,
    std::uint64_t lossy_until = 0;      // before this window
    std::vector<std::uint64_t> barred;  // of each level: until this window
    std::vector<int> bar;               // how long the next time
    double over_at_bar = 0;
  };
  const std::map<int, Class>& classes() const { return classes_; }
  static std::uint64_t least_bytes(int key) { return std::uint64_t{1} << (2 * key); }

 private:
  static int key_of(std::uint64_t bytes);
  bool forgotten(const Class&) const;
  const Class* nearest(int key) const;  // of the classes that have had calls lately; null: none
  void resume(int key, Class&, int to);
  void decide(int key, Class&);
  void move(int key, Class&, int to, const char* why, double target_us);
  void bar_from(Class&, int level);  // this level and all stronger ones

  int levels_;
  DelayTarget target_;
  double gain_floor_;
  std::map<int, Class> classes_;
  std::uint64_t all_bytes_ = 0, all_calls_ = 0, changes_ = 0;
  bool follows_ = false;
  std::vector<Decision> decisions_;
};

}  // namespace crimp
