// Array conversions between float32 and the other element types, and the magnitude scan. SIMD, bit-identical on every
// target.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/types.hpp"

namespace crimp {

void widen(Dtype from, const void* in, float* out, std::size_t count);  // float64 is rounded to nearest
void narrow(Dtype to, const float* in, void* out, std::size_t count);   // rounded to nearest even; float64 is exact
void add_widened(Dtype from, const void* in, float* acc,
                 std::size_t count);  // acc[i] += float(in[i]); float16, bfloat16, float32

// Largest |x| over the buffer in x's own type, as a double; infinity where any element is NaN or infinite.
double magnitude(Dtype, const void* in, std::size_t count);

}  // namespace crimp
