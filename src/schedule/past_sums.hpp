// What a communicator's calls have summed before, to tell values that go on where such a sum ended from gradients.
//
// Parameters that ranks train by themselves for a while and then average (local SGD, federated averaging) are the last
// average and what came to it since. Gradients may be as like each other, where they are more than noise; but each has
// noise of its own, which is gone in the next one. With r1, r2, r3 sums that follow each other, of ranks' changes u or
// of gradients g and noise e,
//     b = <r3 - r1, r2 - r1> / <r2 - r1, r2 - r1>
// is 1 of averages (<u2 + u3, u2> / <u2, u2>), more where they change in one direction; of gradients it is 1/2 where
// noise is what changes (<e3 - e1, e2 - e1> / <e2 - e1, e2 - e1>), and more only where they have hardly any: those of
// all of the data, which cannot be told from averages. Averages that have come to rest, of which the share p of what
// they are off their place is left in the next round, have (1 + p) / 2: what has been told for some time stays so until
// less than kTellsStill.
//
// Gradients that turn more slowly than they are noisy (of a discriminator, of very large batches) have such b as well.
// Their norms change more from step to step than most averages', but not than those of ranks with data of their own
// kind and shares that change, so that nothing acquits them but who knows better.
//
// What ranks gather by adding pieces in places of their own, zeros elsewhere, has its sum equal to its pieces.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "core/types.hpp"
#include "schedule/sample.hpp"

namespace crimp {

// Of one communicator, by what calls or tensors have in common: count and type, or a name. A rank judges for itself, so
// nothing here need be equal on all ranks. Not thread-safe. Where there is no memory less is known, and nothing throws.
class PastSums {
 public:
  static constexpr std::size_t kOfAKind = 128;  // the newest sums of a key that several tensors may have
  static constexpr std::size_t kOfOne = 3;      // of one that one tensor has
  static constexpr std::size_t kMost = 4096;    // sums of all, 4 KiB each
  static constexpr std::size_t kMostKinds = 1 << 16;
  // Of a key's first calls all are looked at or kept, then one in so many.
  static constexpr std::uint64_t kAll = 128, kAllOfOne = 16, kEvery = 16;

  static std::uint64_t key_of(std::uint64_t count, Dtype type) { return count * 8 + static_cast<std::uint64_t>(type); }
  static std::uint64_t key_of(std::string_view name, std::uint64_t count);

  enum class Answer {
    no,
    perhaps,  // the first sums are like averages, as those of a training's first steps may be
    yes,
  };
  // Who has the key: several tensors; one; one that is said to be a gradient, of which only what moves by less than a
  // hundredth, as no gradient does, is none.
  enum class Whose { several, one, gradient };
  // Whether one of the key's continues in the values that a call is to sum. They have the sum's direction: but for a
  // hundredth of their square, and are not again what this rank gave to it; or in part, and the sums before tell them
  // from gradients (Whose::one: or are too few yet). Or they are zero where what this rank gave was zero, and the sum
  // was this rank's alone elsewhere.
  Answer continue_in(std::uint64_t key, const Sample& values, Whose whose = Whose::several) noexcept;
  // In place of that, of a key that only one tensor has: true where nobody need look, which is so behind the first
  // kAllOfOne calls for kEvery - 2 of kEvery.
  bool skip(std::uint64_t key) noexcept;
  // Whether the sum of the call that was asked about last is worth keeping: of the kAll first ones, of as many behind
  // each that continued a sum, and then of every kEvery-th, unless it is slow to read.
  bool wanted(std::uint64_t key, bool slow) const noexcept;
  // What this rank gave and what came of it, in place of the oldest where the key has `most`.
  void keep(std::uint64_t key, const Sample& gave, const Sample& sum, std::size_t most = kOfAKind) noexcept;

 private:
  static constexpr std::size_t kGlance = 64;  // values that tell most sums from others
  struct Sum {
    std::uint64_t id = 0, before = 0;  // of the sum that it continued; 0: none
    double b = 0, weight = 0;          // of its and earlier ones, the newer the more
    int links = 0;                     // how many
    int in_a_row = 0;                  // this one and those before it that were told by b, or near
    std::vector<float> gave, sum;
    bool own = false, in_places = false;  // what this rank gave is its own there; and others' is elsewhere
    double gave_squares = 0, sum_squares = 0;
    std::array<float, kGlance> glance{};
    double glance_squares = 0;
  };
  struct Kind {
    std::vector<Sum> sums;  // a ring
    std::size_t next = 0;
    std::uint64_t calls = 0;  // since one has continued a sum
    std::uint64_t used = 0;   // now_
    int undecided = 0;        // calls that went on, of which too little was known
    bool told = false;        // of the values asked about last
    std::uint64_t best = 0;   // the sum that the values asked about last are most like
    const Sum* find(std::uint64_t id) const noexcept;
  };
  static void link(const Kind&, Sum&) noexcept;
  static void glance(std::span<const float> values, std::array<float, kGlance>&) noexcept;
  bool has_room(const Kind&) noexcept;
  void forget_unused() noexcept;

  std::map<std::uint64_t, Kind> kinds_;
  std::size_t kept_ = 0;
  bool full_ = false;                         // there are kMost, of as many kinds
  std::uint64_t now_ = 0, forgotten_at_ = 0;  // calls that were asked about
  std::uint64_t ids_ = 0;
};

}  // namespace crimp
