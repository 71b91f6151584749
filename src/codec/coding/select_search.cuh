// What the passes of a selection share (select_kernels.cuh): what they have in device memory of searches, groups and
// pieces, and how they come by a piece's elements and their keys, which are magnitudes.
#pragma once
#include "codec/device/piece_kernels.cuh"
#include "codec/sparse/sparse.hpp"

namespace crimp::select {

inline constexpr std::uint32_t kKeyBits = 31, kInfinity = 0x7f800000;
inline constexpr std::uint32_t kKept = 1280;  // elements that are kept of a piece, on average of the group

// A bracket for the magnitude that is looked for.
struct Search {
  std::uint32_t left;       // elements looked for (of two sides: any number); 0: the Selection is final
  std::uint32_t low, high;  // keys; 0: below all that can be selected, kInfinity: above all
};
// What the pass found of a search. Counts fit 32 bits: a chunk has at most 2^30 elements.
struct Tally {
  std::uint32_t above, at_high, between, at_low;
  std::uint32_t all;   // of two sides: elements that are not zero
  std::uint32_t kept;  // in the group's first search: of all sides, also what did not fit
};
// What it found of a piece; of each side where there are two.
struct Sifted {
  std::uint32_t begin, between;  // of the kept elements of its group
  std::uint16_t at_high[2], at_low[2];
};

// The arrays of a selection, in device memory.
struct Scratch {
  Search* searches;  // of each side of each group
  Tally* tallies;    // likewise
  Sifted* sifted;    // of each piece
  float* kept;       // kKept of each piece of a group, behind one another

  static std::size_t round(std::size_t n) { return (n + 255) / 256 * 256; }
  static std::size_t bytes(const ChunkTable& t, std::uint32_t sides = 1) {
    const std::size_t searches = std::size_t{sides} * t.group_count;
    return round(searches * sizeof(Search)) + round(searches * sizeof(Tally)) + round(t.piece_count * sizeof(Sifted)) +
           round(std::size_t{t.piece_count} * kKept * sizeof(float));
  }
  Scratch(const ChunkTable& t, void* scratch, std::uint32_t sides = 1) {
    const std::size_t all = std::size_t{sides} * t.group_count;
    auto* at = static_cast<std::uint8_t*>(scratch);
    searches = reinterpret_cast<Search*>(at);
    tallies = reinterpret_cast<Tally*>(at += round(all * sizeof(Search)));
    sifted = reinterpret_cast<Sifted*>(at += round(all * sizeof(Tally)));
    kept = reinterpret_cast<float*>(at + round(t.piece_count * sizeof(Sifted)));
  }
};

__device__ inline std::uint32_t key_of(float a) { return __float_as_uint(a) & 0x7fffffffu; }
template <std::uint32_t sides>
__device__ inline std::uint32_t side_of(float a) {
  return sides == 1 ? 0 : __float_as_uint(a) >> 31;
}

// work(n, i, a) for all elements of a piece, as they will be encoded: n of them from i on, n a constant of 1 or 4; a
// thread's in rising order.
template <class Work>
__device__ inline void for_vectors(const device::Source& source, const PieceEntry& piece, Work&& work) {
  const GroupEntry& g = source.table.groups[piece.group];
  device::with_entry(device::entry_of(source.policy, g), [&](auto entry) {
    using Elements = device::Elements<entry>;
    const Elements elements(source, g, piece.offset - g.offset);
    constexpr int at_once = entry == device::Entry::corrected ? 1 : 2;
    typename Elements::Parts parts[at_once];
    device::in_batches<at_once>(
        piece.count, elements.aligned(),
        [&](auto n, int j, std::size_t i) { elements.template load_parts<n>(parts[j], i); },
        [&](auto n, int j, std::size_t i) {
          device::Floats<4> a;
#pragma unroll
          for (int k = 0; k < n; ++k) a.v[k] = parts[j].a(source.policy, k);
          work(n, i, a);
        });
  });
}
// work(a) for each of them.
template <class Work>
__device__ inline void for_values(const device::Source& source, const PieceEntry& piece, Work&& work) {
  for_vectors(source, piece, [&](auto n, std::size_t, const device::Floats<4>& a) {
#pragma unroll
    for (int k = 0; k < n; ++k) work(a.v[k]);
  });
}

}  // namespace crimp::select
