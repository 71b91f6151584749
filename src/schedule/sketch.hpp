// A few values of a call's buffer, to tell whether two calls carry the same tensor. Gradients of one tensor resemble
// each other from step to step, those of two tensors do not: in their directions, where the gradient is more than
// noise, and in their magnitudes, where it is not, because an element that was small beside the others (a weight of an
// input that is mostly dark, of a unit that is mostly silent) will be so again, whatever its sign.
#pragma once
#include <array>
#include <cstdint>

#include "core/types.hpp"
#include "schedule/sample.hpp"

namespace crimp {

// Whether values are whole numbers, beyond chance: counts, indices, flags, signs. Zeros say nothing of that, nor do
// values so large that their type has no fraction.
class WholeNumbers {
 public:
  explicit WholeNumbers(Dtype);  // that the values had
  // False: they are not, whatever follows.
  bool add(float);
  bool certain() const { return whole_ && fraction_bits_ >= 20; }  // by chance once in a million

 private:
  bool whole_ = true;
  int fraction_bits_ = 0;  // zeros, where a fraction would be
  int most_;               // behind the first bit of a value
};

class Sketch {
 public:
  Sketch() = default;
  // Of a call's buffer; `reads` as Sample has them.
  Sketch(std::uint64_t count, Dtype, std::uint64_t reads, const Sample::Read&);

  const Sample& sample() const { return sample_; }
  // Whether it says anything: neither all zero nor with NaN or Inf.
  bool usable() const { return norm_ > 0; }
  // Whether all of it is whole numbers.
  bool whole() const { return usable() && whole_; }
  // Whether it may be a gradient's: neither whole() nor, beyond chance, of one sign alone and not all the same, as sums
  // of squares and probabilities are, nor with more whole numbers at an end than Sample::kEnd, as the sums and counts
  // of k-means.
  bool gradient() const { return usable() && !whole_ && !one_sign_ && !counted_; }
  // Whether it has seen too few values to say so, none of two signs.
  static constexpr int kOneSign = 20;  // values of one sign by chance once in half a million
  bool few() const { return few_; }
  bool one_sign() const { return one_sign_ && !whole_ && !counted_; }
  // Whether the Sample::kEnd elements at the begin and at the end of the buffer are of another kind than the rest:
  // whole numbers among them, or far larger ones.
  bool head() const { return head_; }
  bool tail() const { return tail_; }

 private:
  friend struct Likeness;
  Sample sample_;
  std::array<std::int16_t, Sample::kElements> octaves_{};  // of the magnitudes, in steps of 1 / kSteps; none is more
                                                           // than kDeep octaves below their root mean square
  std::array<std::int32_t, Sample::kClusters> sums_{};     // of each cluster's octaves
  bool few_ = false, whole_ = false, one_sign_ = false, counted_ = false, head_ = false, tail_ = false;
  double norm_ = 0;               // square of the values' norm; 0 where not usable
  double level_ = 0, depth_ = 0;  // of the octaves: their mean, and the sum of squares about it
  static constexpr double kSteps = 64, kDeep = 8;
};

// How alike two sketches are, in two ways. With x, y the values: in direction 2<x,y> / (|x|^2 + |y|^2), which is 1
// where they are equal, near 0 where they are unrelated or of very different size, negative where they are opposed; in
// magnitudes the same of their logarithms about their common mean, so that another size counts against them.
struct Likeness {
  struct Way {
    bool known = false;  // both sketches say something about it
    double likeness = 0;
    double variance = 0;  // of the likeness if every cluster's sign were a coin's, the hypothesis that the tensors have
                          // nothing to do with each other
    double halves[2] = {};  // the likeness of every other cluster, and of those between; it is their mean
  };
  Way direction, magnitudes;
  bool known = false;  // both are usable
  bool signs = false;  // alike in signs, beyond chance
  bool alike = false;  // in signs or in the order of magnitudes, beyond chance: whatever the vectors' sizes, and
                       // outliers in them
  Likeness() = default;
  Likeness(const Sketch& x, const Sketch& y);
};

}  // namespace crimp
