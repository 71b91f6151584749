// Momentum of tensors that no codec encodes: what codec/feedback.hpp does to a piece, on whole tensors in the caller's
// type.
#pragma once
#include <cstdint>

#include "codec/codec.hpp"
#include "core/types.hpp"

namespace crimp {

// compensate() (codec/feedback.hpp) where all of a tensor is sent as it is, in its own type: values become a, memory
// (two arrays of `count`) the new v, which is what rounding to the type loses, and u. Memory `momentum` only. A tensor
// that holds NaN, Inf or a magnitude above 2^100 stays as it is, and so does its memory.
void compensate_exactly(const FeedbackPolicy&, Dtype, void* values, std::uint64_t count, float* memory, double gain);
// What values are multiplied by so that their Euclidean norm is at most `most`: up to 1. 1 where it is not finite.
double clip_gain(Dtype, const void* values, std::uint64_t count, double most);

}  // namespace crimp
