#pragma once
#include <cstdint>

namespace crimp {

// The largest magnitude of values + residual (null: values alone), all of which are finite; 0 of none. The same on
// every SIMD target.
float largest_magnitude(const float* values, const float* residual, std::uint64_t count);

}  // namespace crimp
