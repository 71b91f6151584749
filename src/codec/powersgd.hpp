// PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019): a tensor as the product of two thin matrices, found by one step of power iteration from the
// factors of the call before. WIRE_FORMAT.md, sections 4.24 and 6.4; the exchange is src/comm/low_rank.cpp.
//
// Factors are column by column: column k of P begins at p + k * rows, that of Q at q + k * cols. Every function gives the same bits on every SIMD
// target and for every cut of the work into ranges.
#pragma once
#include <cstdint>

namespace crimp::powersgd {

inline constexpr std::uint32_t kMostRank = 8;
// A dot product adds element j to lane j % kLanes, in order; then the lanes are added pairwise: l and l + 16, l + 8, l + 4, l + 2, l + 1.
inline constexpr std::uint32_t kLanes = 32;

// A tensor as a matrix, row by row. The last row may be short: what it lacks counts as 0.
struct Matrix {
  std::uint64_t count, rows, cols;
  std::uint32_t rank;  // 0: the tensor travels exactly
  std::uint64_t left() const { return rank ? rank * rows : count; }  // floats that are summed first: P, or the tensor
  std::uint64_t right() const { return rank * cols; }                // then: Q
};
// A function of the element count and the codec's parameter word alone; MPI knows no shapes. cols is the least divisor of count in
// [sqrt(count), 4 sqrt(count)], else ceil(sqrt(count)). Exact where the count is below the parameter min, or where 4 rank (rows + cols) > count.
Matrix matrix_of(std::uint64_t count, std::uint32_t parameter_word);

// The values of a matrix: values + residual (null: values alone).
struct Source {
  const float *values, *residual;
};
// P = M Q for the rows [first, last).
void multiply(const Matrix&, Source, const float* q, float* p, std::uint64_t first, std::uint64_t last);
// Q = M^T P for the columns [first, last); rows are added in order.
void multiply_transposed(const Matrix&, Source, const float* p, float* q, std::uint64_t first, std::uint64_t last);
// out = P Q^T for the rows [first, last), and, unless null, residual_out = values + residual - share * out. out may equal values,
// residual_out may equal residual.
void rebuild(const Matrix&, Source, const float* p, const float* q, float share, float* out, float* residual_out, std::uint64_t first,
             std::uint64_t last);

// What replaces a column that is zero or depends on those before it.
struct Fresh {
  std::uint64_t element;  // index of the tensor's first element in the call's buffer
  std::uint32_t step;
};
// Makes the columns orthonormal, one after another (modified Gram-Schmidt in double, projected twice). A column of which less than 2^-20 is left becomes random
// numbers (equal on all ranks), or zeros where `fresh` is null.
void orthonormalise(float* columns, std::uint64_t length, std::uint32_t rank, const Fresh* fresh);

}  // namespace crimp::powersgd
