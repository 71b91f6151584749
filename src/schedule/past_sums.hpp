// What a communicator's calls have summed before, to tell values that go on where such a sum ended from gradients:
// those are something else in each step, whatever came of the last one. Parameters that ranks train by themselves for a
// while and then average (local SGD, federated averaging) are the last average and a little more; what ranks gather by
// adding pieces in places of their own, zeros elsewhere, has its sum equal to its pieces.
#pragma once
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "core/types.hpp"
#include "schedule/sample.hpp"

namespace crimp {

// Of one communicator, by what calls or tensors have in common: count and type, or a name. A rank judges for itself, so
// nothing here need be equal on all ranks. Not thread-safe.
class PastSums {
 public:
  static constexpr std::size_t kOfAKind = 32;  // the newest sums of a key that several tensors may have
  static constexpr std::size_t kMost = 1024;   // of all; 4 KiB each
  static constexpr std::uint64_t kAll = 64, kEvery = 16;

  static std::uint64_t key_of(std::uint64_t count, Dtype type) { return count * 8 + static_cast<std::uint64_t>(type); }
  static std::uint64_t key_of(std::string_view name);

  // Whether one of the key's continues in the values that a call is to sum: they have the sum's direction, but for a
  // hundredth of their square, and are not again what this rank gave to it; or they are zero where what this rank gave
  // was zero and the sum is not, and the sum is this rank's elsewhere.
  bool continue_in(std::uint64_t key, const Sample& values);
  // In place of that of a key that only one tensor has: true where nothing would be found or kept.
  bool skip(std::uint64_t key) noexcept;
  // Whether the sum of the call that is asked about is worth keeping: of the first, of the kAll calls behind it and
  // behind each that continued a sum, and then of every kEvery-th, unless it is slow to read.
  bool wanted(std::uint64_t key, bool slow) const;
  // What this rank gave and what came of it, in place of the oldest where the key has `most`. Where there is no memory
  // it is not kept.
  void keep(std::uint64_t key, const Sample& gave, const Sample& sum, std::size_t most = kOfAKind) noexcept;

 private:
  struct Sum {
    std::vector<float> gave, sum;
  };
  struct Kind {
    std::vector<Sum> sums;  // a ring
    std::size_t next = 0;
    std::uint64_t calls = 0;  // since one has continued a sum
    std::uint64_t used = 0;   // now_
  };
  void make_room();

  std::map<std::uint64_t, Kind> kinds_;
  std::size_t kept_ = 0;
  std::uint64_t now_ = 0;
};

}  // namespace crimp
