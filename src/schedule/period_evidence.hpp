// What calls of one count and type prove of the tensors they carry: how alike the pairs of calls are that lie a lag
// apart, over all ranks together. Statistics only; CallSequence decides what follows from them.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "schedule/sketch.hpp"

namespace crimp {

using SumOverRanks = std::function<void(std::span<std::int64_t>)>;  // collective, in place

// This rank's view of a call.
struct SketchedCall {
  Sketch sketch;
  const void *send = nullptr, *receive = nullptr;
};
bool same_buffers(const SketchedCall&, const SketchedCall&);

// Evidence is added as whole numbers, so that every rank has the same sums in any order.
std::int64_t to_fixed(double);
double from_fixed(std::int64_t);

// Of pairs of calls, in one way: sums over the pairs, and over ranks after an exchange.
class Evidence {
 public:
  static constexpr std::size_t kWayCount = 2;
  static constexpr Likeness::Way Likeness::*kWays[kWayCount] = {&Likeness::direction, &Likeness::magnitudes};
  static constexpr double kCertain = 6, kLikely = 4;  // standard deviations
  static constexpr std::size_t kNumbers = 7;

  Evidence() = default;
  // In order of time; pairs that say nothing in this way are left out.
  Evidence(const std::vector<Likeness>&, Likeness::Way Likeness::*way);
  explicit Evidence(const std::int64_t* from);  // kNumbers, as put() made them
  void put(std::int64_t* to) const;

  bool known() const { return known_ > 0; }
  double mean() const;
  double spread() const;
  // The variance that both halves of the sketches have in common: 0 where what makes pairs more or less alike is
  // chance, which is each half's own. From one pair to the next, because a training changes slowly.
  double common() const;
  // Alike beyond chance, and not only now and then, as the calls of several tensors in a random order are.
  bool proves(double deviations, std::size_t way) const;

 private:
  double likeness_ = 0, squares_ = 0, variance_ = 0, known_ = 0, odd_ = 0, both_ = 0, steps_ = 0;
};

// Of every lag that has enough calls to be compared.
class PeriodEvidence {
 public:
  static constexpr std::uint32_t kLongest = 1024, kMinMatches = 7;
  static constexpr std::uint32_t kKept = 3 * kLongest;  // calls there are to compare, of the newest, and no more
  static constexpr std::uint64_t kRecent = 64;          // comparisons that tell lags apart
  // linked(): the first calls are looked at from kFewMatches links on, as long as they are not more than kFewCalls.
  static constexpr std::uint32_t kFewMatches = 4, kFewCalls = 12;

  struct Terms {
    std::uint32_t periods = 0;  // CRIMP_PERIODS
    std::uint32_t backoff = 1;  // how many times as much is asked for, but no more than kKept calls can give
    bool adjacent = false;      // calls of this count follow each other directly, as pieces of one gradient do
  };
  struct Lag {
    std::uint32_t lag;
    std::uint64_t comparisons, wanted, used;
    Evidence ways[Evidence::kWayCount];
    double moved;    // pairs with other buffers
    double changes;  // of their later calls, those in other buffers than the call before
    // Buffers that differ come again in their order. Where all are one buffer, those that differ may be calls that no
    // pair has.
    bool keeps_places() const { return moved == 0 && changes > 0 && comparisons >= 4; }
    double unlike(std::size_t way) const { return 1 - ways[way].mean(); }
    double error(std::size_t way) const;
    bool of_two_kinds() const;  // in one of the ways, whatever else is alike in them
    bool proves(std::size_t way) const { return comparisons >= wanted && ways[way].proves(Evidence::kCertain, way); }
  };

  // calls: newest last, as many on all ranks; to outlive this. Collective.
  PeriodEvidence(const std::deque<SketchedCall>& calls, const Terms&, const SumOverRanks&);

  bool empty() const { return all_.empty(); }
  std::uint64_t bytes() const { return bytes_; }  // that each rank has given to the sum
  const Lag* find(std::uint32_t lag) const;       // nullptr: there is none, or addresses rule it out
  // The shortest lag that no other one outdoes. Not empty().
  const Lag& fitting(std::size_t way) const;
  // Whether pairs at all multiples of the lag are evenly alike. In a random order those at the shortest ones may be
  // pairs of different tensors only.
  bool even(std::size_t way, std::uint32_t lag) const;
  // Magnitudes that are alike in part only need more pairs, to be told from those of tensors that have something in
  // common: where calls are adjacent, at this lag alone.
  bool covered(std::size_t way, const Lag&) const;
  // Whether multiples of `of` are more alike than the multiples of `lag` beside them.
  bool stands_out(std::size_t way, std::uint32_t lag, std::uint32_t of) const;
  // Whether the few calls there are hang together, each like another in its direction beyond all chance: signs of two
  // tensors have nothing to do with each other, whatever their magnitudes have in common. Where a training begins its
  // gradients turn too fast for pairs to be evenly alike, but not from one to the next. Collective.
  bool linked(const SumOverRanks&) const;

 private:
  std::vector<Lag> of_this_rank() const;
  bool hang_together(const SumOverRanks&) const;

  const std::deque<SketchedCall>& calls_;
  Terms terms_;
  std::vector<Lag> all_;
  std::uint64_t bytes_ = 0;
};

}  // namespace crimp
