// PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019): a tensor as the product of two thin matrices, found by one step
// of power iteration from the factors of the call before. WIRE_FORMAT.md, sections 4.24 and 6.4; the exchange is
// src/collective/low_rank.cpp.
//
// Factors are column by column: column k of P begins at p + k * rows, that of Q at q + k * cols. Every function gives
// the same bits on every SIMD target and for every cut of the work into ranges.
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

#include "codec/coding/dither.hpp"
#include "codec/parameter.hpp"
#include "codec/payload.hpp"

namespace crimp {
class Workers;
}

namespace crimp::powersgd {

inline constexpr std::uint32_t kMostRank = 8;
// What a device multiplies M with. A rank's own P and Q may have any bits: they are summed, and all else is made of the
// sums.
enum class Gemm { automatic, cublas, own };
inline constexpr std::string_view kGemmWords[] = {"auto", "cublas", "own"};
inline constexpr Parameter<Gemm> kGemm{
    {.key = "gemm",
     .words = kGemmWords,
     .help =
         "what multiplies values in GPU memory: cuBLAS; Crimp's own kernels, which give P and Q the host's bits; or the faster of both, where the program itself has loaded cuBLAS. All ranks have the same result whatever each of them does"}};
// A dot product adds element j to lane j % kLanes, in order; then the lanes are added pairwise: l and l + 16, l + 8, l
// + 4, l + 2, l + 1.
inline constexpr std::uint32_t kLanes = 32;

// A tensor as a matrix, row by row. The last row may be short: what it lacks counts as 0.
struct Matrix {
  std::uint64_t count, rows, cols;
  std::uint32_t rank;                                                // 0: the tensor travels exactly
  std::uint64_t left() const { return rank ? rank * rows : count; }  // floats that are summed first: P, or the tensor
  std::uint64_t right() const { return rank * cols; }                // then: Q
};
// With 0 columns: the least divisor of count in [sqrt(count), 4 sqrt(count)], else ceil(sqrt(count)), what a tensor has
// of which nothing else is known (codec/powersgd/powersgd_extents.hpp). Exact where the count is below the parameter
// min, or where 4 rank (rows + cols) > count.
Matrix matrix_of(std::uint64_t count, std::uint32_t parameter_word, std::uint64_t cols = 0);

// The values of a matrix: values + residual (null: values alone).
struct Source {
  const float *values, *residual;
};
// P = M Q for the rows [first, last).
void multiply(const Matrix&, Source, const float* q, float* p, std::uint64_t first, std::uint64_t last);
// Q = M^T P for the columns [first, last); rows are added in order.
void multiply_transposed(const Matrix&, Source, const float* p, float* q, std::uint64_t first, std::uint64_t last);
// out = P Q^T for the rows [first, last), and, unless null, residual_out = values + residual - share * out. out may
// equal values, residual_out may equal residual.
void rebuild(const Matrix&, Source, const float* p, const float* q, float share, float* out, float* residual_out,
             std::uint64_t first, std::uint64_t last);

// What replaces a column that is zero or depends on those before it.
struct Fresh {
  std::uint64_t element;  // index of the tensor's first element in the call's buffer
  std::uint32_t step;
};
// Element i of what replaces column k: in [-1/2, 1/2), Philox4x32-10 (core/random.hpp).
CRIMP_HD float fresh_value(const Fresh& fresh, std::uint32_t k, std::uint64_t i) {
  // Counter {i / 4, 0x50534700 + k, step}, key: the element.
  const RandomCounter counter{fresh.element >> 32 << 32 | i >> 34, fresh.step, 0x50534700 + k};
  const dither::Words words =
      dither::philox<10>(counter, static_cast<std::uint32_t>(fresh.element), static_cast<std::uint32_t>(i / 4));
  const std::uint64_t pair = i % 4 < 2 ? words.w[0] | std::uint64_t{words.w[1]} << 32
                                       : words.w[2] | std::uint64_t{words.w[3]} << 32;  // no array in local memory
  return static_cast<float>(static_cast<std::uint32_t>(pair >> i % 2 * 32) >> 8) * 0x1p-24f - 0.5f;
}

// Makes the columns orthonormal, one after another (modified Gram-Schmidt in double, projected twice). A column of
// which less than 2^-20 is left becomes random numbers (equal on all ranks), or zeros where `fresh` is null.
//
// dot(a, b): in double, element i in lane i % kDotLanes, in order; then lanes l and l + kDotLanes / 2, ..., l + 1.
// each(use): use(i) for the elements that the caller has (a thread of a block has those of its lane, and needs no
// other).
inline constexpr std::uint32_t kDotLanes = 512;
template <class Dot, class Each>
CRIMP_HD void orthonormalise_with(float* columns, std::uint64_t length, std::uint32_t rank, const Fresh* fresh,
                                  Dot&& dot, Each&& each) {
  for (std::uint32_t k = 0; k < rank; ++k) {
    float* const column = columns + k * length;
    for (int attempt = 0; attempt < 2; ++attempt) {
      const double before = dot(column, column);
      double after = before;
      // Twice: the units are rounded to float32, so that what one projection leaves of a nearly dependent column still
      // points their way.
      for (std::uint32_t i = 0; i < 2 * k; ++i) {
        const float* const unit = columns + i % k * length;
        const double along = dot(unit, column);
        each([&](std::uint64_t e) {
          column[e] = static_cast<float>(static_cast<double>(column[e]) - along * static_cast<double>(unit[e]));
        });
        if (i + 1 == 2 * k) after = dot(column, column);
      }
      if (after > 0 && after >= 0x1p-40 * before) {
        const double scale = 1.0 / std::sqrt(after);
        each([&](std::uint64_t e) { column[e] = static_cast<float>(static_cast<double>(column[e]) * scale); });
        break;
      }
      if (!fresh || attempt == 1) {
        each([&](std::uint64_t e) { column[e] = 0.0f; });
        break;
      }
      each([&](std::uint64_t e) { column[e] = fresh_value(*fresh, k, e); });
    }
  }
}
void orthonormalise(float* columns, std::uint64_t length, std::uint32_t rank, const Fresh* fresh);

// One tensor of a call. Its arrays are where the values are (backend/backend.hpp).
struct Tensor {
  Matrix matrix;
  Fresh fresh;
  const float* values;
  float* out;                    // may equal `values`
  float* memory;                 // the residual, and Q behind it; null: none
  float *left, *before, *right;  // P, or the tensor where it travels exactly; Q of the call before, orthonormal; Q.
                                 // left() and right() floats
};
// What happens to a call's tensors before, between and behind the sums over the ranks.
enum class Step : std::uint8_t {
  project,       // left = M Q of the call before
  project_back,  // left becomes orthonormal, right = M^T left
  rebuild,       // out = left right^T, memory = M - share * out, and Q
};
// On the host.
void run_step(Step, std::span<const Tensor>, float share, Workers&, const Progress&);

}  // namespace crimp::powersgd
