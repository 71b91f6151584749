// Which elements of a group a sparsifying codec sends. Everything looks at a = values + residual (residual may be null:
// values alone), which is finite, and gives the same on every SIMD target. largest() uses the thread's scratch
// (memory/thread_scratch.hpp).
#pragma once
#include <cstdint>

#include "codec/codec.hpp"
#include "core/types.hpp"

namespace crimp::select {

// What elements are ranked by: |a|, or the positive or the negative part's magnitude (0 for all others).
enum class Side : std::uint8_t { magnitude, positive, negative };

// Selected are the elements whose key is above the threshold, and of those whose key equals it the ones with an index
// below `ties`. With threshold 0 `ties` is 0: zeros are never sent.
struct Threshold {
  float value = 0.0f;
  std::uint64_t ties = 0;
};
// The k largest keys, exactly; equal ones by their index, lowest first. All that are not zero where those are no more
// than k.
//
// Floyd and Rivest's bracket (CACM 1975): a sample gives two pivots that almost surely enclose the k-th key; one pass
// over the group counts what lies above and keeps what lies between. Where the sample misled, the next pass has a
// better bracket; a run of those ends in bisection of the bit pattern, so that no input costs more than about 40
// passes.
Threshold largest(const float* values, const float* residual, std::uint64_t count, std::uint64_t k, Side side);

// How many keys are above the threshold.
std::uint64_t count_above(const float* values, const float* residual, std::uint64_t count, float threshold, Side side);
// About as many: scaled up from 64 runs that are together 1 / share of the group, count >= 64 share.
std::uint64_t estimate_above(const float* values, const float* residual, std::uint64_t count, float threshold,
                             Side side, std::uint64_t share);
float before(float x);  // the next float below a positive one

// The selected elements of a piece, in order.
struct Picked {
  static constexpr std::uint64_t kWords = kPieceElements / 64;
  alignas(64) float values[kPieceElements + 64];
  alignas(64) std::uint64_t
      bits[kWords];  // bit i % 64 of word i / 64: element i is selected; the piece's last word is filled up with zeros
  std::uint32_t count;

  // Calls use(j, i) for the j-th selected element, whose index in the piece is i.
  template <class Use>
  void each(Use&& use) const {
    std::uint32_t j = 0;
    for (std::uint32_t w = 0; j < count; ++w)
      for (std::uint64_t rest = bits[w]; rest; rest &= rest - 1)
        use(j++, 64 * w + static_cast<std::uint32_t>(__builtin_ctzll(rest)));
  }
};
// Also writes the piece's new residual, where it has one: 0 for selected elements, a for all others.
void pick(const PieceSource&, Picked&);

}  // namespace crimp::select
