// Which matrix a tensor is. MPI knows no shapes, and with wrong extents little of a gradient survives: so the number of
// columns is the parameter `cols`, or what crimp_set_extents says, or it is found in the first compressed call: every
// rank tries divisors of the element count on its own values, and the sums over the ranks of what these kept decide.
// WIRE_FORMAT.md, section 6.4; src/collective/low_rank.cpp carries it.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "codec/powersgd/powersgd.hpp"

namespace crimp::powersgd {

// Of a codec with traits().whole_tensors; rank and min are its parameter word.
struct Parameters {
  std::uint32_t rank, min, start;  // start: so many calls are exact before
  std::uint64_t cols;              // 0: to be found
};
Parameters parameters_of(const Codec&);

// What the ranks of a communicator know of a tensor, all alike, from call to call.
struct Extents {
  std::uint64_t count = 0;   // the tensor's elements; with another number everything begins anew
  std::uint64_t cols = 0;    // 0: not known
  std::uint64_t q_cols = 0;  // of the matrix that this rank's Q belongs to; 0: there is none yet
  std::uint64_t calls = 0;   // that were compressed
  bool given = false;        // by crimp_set_extents
};
// How the tensor travels in its next call; null: nothing is known of it, and no call was before.
Matrix matrix_of(std::uint64_t count, const Codec&, const Extents*);
// Whether that call finds the columns.
bool finds(std::uint64_t count, const Codec&, const Extents*);
// Floats of memory that the tensor has, whatever is found.
std::uint64_t feedback_elements(std::uint64_t count, const Codec&, const Extents*);

// The columns to choose from: what matrix_of() takes by itself, then divisors of count from a sixteenth of its root to
// 16 times the root that make it 4 times smaller, the nearest to a square first. One: there is nothing to choose.
// Empty: it travels exactly.
inline constexpr std::size_t kMostCandidates = 48;
std::vector<std::uint64_t> candidates_of(std::uint64_t count, std::uint32_t parameter_word);

// Of a matrix so many whole rows are looked at: about kSampled elements, at least kSampledRows rows where there are.
// One of each of as many strata, drawn, so that no period of the true extents shows.
inline constexpr std::uint64_t kSampled = 1 << 18, kSampledRows = 64;
std::uint64_t sampled_rows(std::uint64_t count, std::uint64_t cols);
std::uint64_t sampled_row(std::uint64_t count, std::uint64_t cols, std::uint64_t i, const Fresh&);
// Floats that kept_share() works on for any of the candidates.
std::uint64_t sample_elements(std::uint64_t count, std::span<const std::uint64_t> candidates, std::uint32_t rank);
// The share of the squares of rows x cols values that half of `rank` columns keep after three power iterations from
// random ones, 0 of zeros. `room`: rank (rows + cols) floats.
float kept_share(const float* values, std::uint64_t rows, std::uint64_t cols, std::uint32_t rank, const Fresh&,
                 float* room);
// From the shares' sums over the ranks, the columns that keep most beyond what noise would show and what they cost; 0
// where all shares are 0.
std::uint64_t best_of(std::uint64_t count, std::span<const std::uint64_t> candidates, std::uint32_t rank,
                      std::span<const float> shares, std::size_t ranks);

}  // namespace crimp::powersgd
