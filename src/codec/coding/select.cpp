#include "codec/coding/select.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>

#include "codec/coding/prefetch.hpp"
#include "memory/thread_scratch.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/coding/select.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/coding/compact-inl.h"

// Keys are compared as the bit patterns of floats that are not negative: as int32 they have the floats' order.
#ifndef CRIMP_SELECT_ONCE
#define CRIMP_SELECT_ONCE
namespace crimp::select {

// Counts of a pass: keys >= high, keys in [low, high), and how many of these were kept (the first `room`).
struct PassCounts {
  std::uint64_t above = 0, between = 0, kept = 0;
};
inline constexpr std::size_t kReadAhead = 8192, kPickAhead = 4096;  // bytes
inline constexpr std::uint64_t kSlack = 64;                         // keys that a pass may write behind its room

inline std::int32_t key_of(float a, Side side) {
  const auto bits = std::bit_cast<std::int32_t>(a);
  if (side == Side::magnitude) return bits & 0x7fffffff;
  return std::max(
      side == Side::positive ? bits : static_cast<std::int32_t>(static_cast<std::uint32_t>(bits) ^ 0x80000000u), 0);
}
inline float sum_at(const float* values, const float* residual, std::uint64_t i) {
  return residual ? values[i] + residual[i] : values[i];
}

}  // namespace crimp::select
#endif

HWY_BEFORE_NAMESPACE();
namespace crimp::select::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
using Di = hn::RebindToSigned<Df>;
using Vf = hn::Vec<Df>;
using Vi = hn::Vec<Di>;
using compact::HWY_NAMESPACE::bits_of;
using compact::HWY_NAMESPACE::store_selected;

template <Side side, bool has_residual>
HWY_INLINE Vi keys(const float* values, const float* residual, std::uint64_t i) {
  const Df d;
  const Di di;
  Vf a = hn::LoadU(d, values + i);
  if constexpr (has_residual) a = hn::Add(a, hn::LoadU(d, residual + i));
  if constexpr (side == Side::magnitude) return hn::BitCast(di, hn::Abs(a));
  if constexpr (side == Side::negative) a = hn::Neg(a);
  return hn::Max(hn::BitCast(di, a), hn::Zero(di));
}

template <Side side, bool has_residual>
HWY_INLINE PassCounts sift(const float* HWY_RESTRICT values, const float* HWY_RESTRICT residual, std::uint64_t count,
                           std::int32_t low, std::int32_t high, float* HWY_RESTRICT kept, std::uint64_t room) {
  const Df d;
  const Di di;
  const std::size_t lanes = hn::Lanes(di);
  // 2^20 elements at a time, so that 32-bit lane counters hold.
  PassCounts tally;
  const auto below_low = hn::Set(di, low - 1), below_high = hn::Set(di, high - 1);
  std::uint64_t i = 0;
  while (i + 4 * lanes <= count) {
    auto n_low = hn::Zero(di), n_high = n_low;
    for (const std::uint64_t end = std::min(count, i + (std::uint64_t{1} << 20)); i + 4 * lanes <= end;
         i += 4 * lanes) {
      for (std::size_t line = 0; line < 4 * lanes; line += 16) {
        prefetch(values + i + line, kReadAhead);
        if constexpr (has_residual) prefetch(residual + i + line, kReadAhead);
      }
      const Vi k[4] = {keys<side, has_residual>(values, residual, i),
                       keys<side, has_residual>(values, residual, i + lanes),
                       keys<side, has_residual>(values, residual, i + 2 * lanes),
                       keys<side, has_residual>(values, residual, i + 3 * lanes)};
      // Most blocks of a sparse selection have nothing at or above `low`.
      const auto top = hn::Max(hn::Max(k[0], k[1]), hn::Max(k[2], k[3]));
      if (hn::AllFalse(di, hn::Gt(top, below_low))) continue;
      for (int j = 0; j < 4; ++j) {
        const auto is_low = hn::Gt(k[j], below_low), is_high = hn::Gt(k[j], below_high);
        n_low = hn::Sub(n_low, hn::VecFromMask(di, is_low));
        n_high = hn::Sub(n_high, hn::VecFromMask(di, is_high));
        if (tally.kept < room)
          tally.kept +=
              store_selected(hn::BitCast(d, k[j]), hn::RebindMask(d, hn::AndNot(is_high, is_low)), kept + tally.kept);
      }
    }
    HWY_ALIGN std::int32_t each[2][16];
    hn::Store(n_low, di, each[0]);
    hn::Store(n_high, di, each[1]);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      tally.between += static_cast<std::uint32_t>(each[0][lane] - each[1][lane]);
      tally.above += static_cast<std::uint32_t>(each[1][lane]);
    }
  }
  for (; i < count; ++i) {
    const std::int32_t k = key_of(sum_at(values, residual, i), side);
    if (k >= high) {
      ++tally.above;
    } else if (k >= low) {
      ++tally.between;
      if (tally.kept < room) kept[tally.kept++] = std::bit_cast<float>(k);
    }
  }
  return tally;
}

template <Side side>
HWY_INLINE PassCounts sift_side(const float* values, const float* residual, std::uint64_t count, std::int32_t low,
                                std::int32_t high, float* kept, std::uint64_t room) {
  return residual ? sift<side, true>(values, residual, count, low, high, kept, room)
                  : sift<side, false>(values, residual, count, low, high, kept, room);
}

PassCounts Sift(const float* values, const float* residual, std::uint64_t count, Side side, std::int32_t low,
                std::int32_t high, float* kept, std::uint64_t room) {
  switch (side) {
    case Side::positive: return sift_side<Side::positive>(values, residual, count, low, high, kept, room);
    case Side::negative: return sift_side<Side::negative>(values, residual, count, low, high, kept, room);
    default: return sift_side<Side::magnitude>(values, residual, count, low, high, kept, room);
  }
}

// A run of elements whose limits are a > up and a < down; a whole number of words of 64 elements or the piece's last
// ones.
template <bool has_in, bool has_out>
HWY_INLINE void pick_run(const float* values, const float* in, float* out, std::uint64_t begin, std::uint64_t end,
                         float up, float down, Picked& picked) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  const auto high = hn::Set(d, up), low = hn::Set(d, down);
  std::uint32_t n = picked.count;
  std::uint64_t i = begin;
  for (; i + 64 <= end; i += 64) {
    std::uint64_t word = 0;
    for (std::size_t line = 0; line < 64; line += 16) {
      prefetch<3>(values + i + line, kPickAhead);
      if constexpr (has_in) prefetch<3>(in + i + line, kPickAhead);
    }
    for (std::size_t j = 0; j < 64; j += lanes) {
      Vf a = hn::LoadU(d, values + i + j);
      if constexpr (has_in) a = hn::Add(a, hn::LoadU(d, in + i + j));
      const auto selected = hn::Or(hn::Gt(a, high), hn::Lt(a, low));
      if constexpr (has_out) hn::StoreU(hn::IfThenZeroElse(selected, a), d, out + i + j);
      const std::uint64_t mask = bits_of(selected);
      word |= mask << j;
      // Where storing is a few instructions it is done in any case: which vectors have something cannot be predicted.
      if (HWY_TARGET <= HWY_AVX2 || mask)
        n += static_cast<std::uint32_t>(store_selected(a, selected, picked.values + n));
    }
    picked.bits[i / 64] = word;
  }
  if (i < end) picked.bits[i / 64] = 0;
  for (; i < end; ++i) {
    const float a = has_in ? values[i] + in[i] : values[i];
    const bool selected = a > up || a < down;
    if constexpr (has_out) out[i] = selected ? 0.0f : a;
    if (!selected) continue;
    picked.bits[i / 64] |= std::uint64_t{1} << i % 64;
    picked.values[n++] = a;
  }
  picked.count = n;
}

void PickRun(const PieceSource& piece, std::uint64_t begin, std::uint64_t end, float up, float down, Picked& picked) {
  const auto run = [&](auto has_in, auto has_out) {
    pick_run<has_in.value, has_out.value>(piece.values, piece.residual_in, piece.residual_out, begin, end, up, down,
                                          picked);
  };
  const std::true_type yes;
  const std::false_type no;
  if (piece.residual_in) {
    piece.residual_out ? run(yes, yes) : run(yes, no);
  } else {
    piece.residual_out ? run(no, yes) : run(no, no);
  }
}

}  // namespace crimp::select::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp::select {
HWY_EXPORT(Sift);
HWY_EXPORT(PickRun);

namespace {

constexpr std::uint64_t kRoom = 65536, kInnerRoom = 8192, kFew = 1024;
constexpr std::int32_t kInfinity = 0x7f800000;

// The k-th largest key, how many are above it and how many equal it (not counted where it is 0).
struct Found {
  std::int32_t key;
  std::uint64_t above, equal;
};
constexpr Found kZero{0, 0, 0};

float magnitude_at(const float* values, const float* residual, std::uint64_t i, Side side) {
  return std::bit_cast<float>(key_of(sum_at(values, residual, i), side));
}

Found find_few(float* keys, std::uint64_t count, std::uint64_t k) {
  std::nth_element(keys, keys + (k - 1), keys + count, std::greater<>());
  const float key = keys[k - 1];
  Found found{std::bit_cast<std::int32_t>(key), 0, 0};
  for (std::uint64_t i = 0; i < count; ++i) {
    found.above += keys[i] > key;
    found.equal += keys[i] == key;
  }
  return found;
}

// room: for `capacity` keys and kSlack more. Behind them, at the outer level, lies the room of the inner one.
template <bool outer>
Found find(const float* values, const float* residual, std::uint64_t count, std::uint64_t k, Side side, float* room) {
  const std::uint64_t capacity = outer ? kRoom : kInnerRoom;
  // The answer's key is in [low, high): `above` < k keys are at or beyond high, at least k at or beyond low.
  std::int32_t low = 0, high = kInfinity;
  std::uint64_t above = 0, sampled = 0, candidates = count;
  if (count <= kFew) {
    for (std::uint64_t i = 0; i < count; ++i) room[i] = magnitude_at(values, residual, i, side);
    sampled = count;
  } else {
    sampled = std::clamp<std::uint64_t>(count / 128, 256, capacity);
    for (std::uint64_t i = 0; i < sampled; ++i) room[i] = magnitude_at(values, residual, i * count / sampled, side);
  }
  if (sampled == count) return find_few(room, count, k);
  for (int pass = 0; high - low > 1; ++pass) {
    std::int32_t from, to;
    if (pass < 4 && sampled > 0) {
      const double share = static_cast<double>(k - above) / static_cast<double>(candidates),
                   n = static_cast<double>(sampled);
      const double rank = share * n, margin = 3.5 * std::sqrt(n * share * (1 - share)) + 2;
      const auto later = static_cast<std::uint64_t>(rank + margin),
                 sooner = static_cast<std::uint64_t>(std::max(rank - margin, 0.0));
      from = low;
      to = high;
      // The nth of what is sampled, from 0.
      const auto at_rank = [&](std::uint64_t nth) {
        if constexpr (outer)
          return find<false>(room, nullptr, sampled, nth + 1, Side::magnitude, room + kRoom + kSlack).key;
        std::nth_element(room, room + nth, room + sampled, std::greater<>());
        return std::bit_cast<std::int32_t>(room[nth]);
      };
      if (later < sampled) from = at_rank(later);
      if (sooner > 0 && sooner < sampled) to = at_rank(sooner) + 1;
    } else {
      from = low + (high - low) / 4;
      to = high - std::max((high - low) / 4, 1);
    }
    // Zeros are never kept: where too few keys are beyond them, zero is the answer.
    from = std::clamp(from, std::max(low, 1), high - 1);
    to = std::clamp(to, from + 1, high);
    const PassCounts tally = HWY_DYNAMIC_DISPATCH(Sift)(values, residual, count, side, from, to, room, capacity);
    if (tally.above >= k) {
      low = to;
      candidates = tally.above - above;
      sampled = 0;
    } else if (tally.above + tally.between < k) {
      if (from == 1) return kZero;
      high = from;
      candidates = candidates - (tally.above + tally.between - above);
      above = tally.above + tally.between;
      sampled = 0;
    } else {
      low = from;
      high = to;
      above = tally.above;
      candidates = tally.between;
      sampled = std::min(tally.kept, capacity);
      if (high - low == 1) return {low, above, candidates};
      if (tally.between <= capacity) {
        Found found{};
        if constexpr (outer) {
          found = find<false>(room, nullptr, tally.between, k - above, Side::magnitude, room + kRoom + kSlack);
        } else {
          found = find_few(room, tally.between, k - above);
        }
        found.above += above;
        return found;
      }
    }
    if (high == 1) return kZero;
  }
  const PassCounts tally = HWY_DYNAMIC_DISPATCH(Sift)(values, residual, count, side, low, high, room, 0);
  return {low, tally.above, tally.between};
}

}  // namespace

float before(float x) { return std::bit_cast<float>(std::bit_cast<std::int32_t>(x) - 1); }

Threshold largest(const float* values, const float* residual, std::uint64_t count, std::uint64_t k, Side side) {
  if (k == 0) return {std::bit_cast<float>(kInfinity), 0};
  if (k >= count) return {};
  struct Scratch {
    float keys[kRoom + kSlack + kInnerRoom + kSlack];
  };
  const Found found = find<true>(values, residual, count, k, side, thread_scratch_as<Scratch>().keys);
  if (found.key == 0) return {};
  Threshold threshold{std::bit_cast<float>(found.key), count};
  if (found.equal == k - found.above) return threshold;
  std::uint64_t left = k - found.above;
  for (threshold.ties = 0; left > 0; ++threshold.ties)
    left -= key_of(sum_at(values, residual, threshold.ties), side) == found.key;
  return threshold;
}

std::uint64_t count_above(const float* values, const float* residual, std::uint64_t count, float threshold, Side side) {
  const std::int32_t key = std::bit_cast<std::int32_t>(threshold);
  return key >= kInfinity
             ? 0
             : HWY_DYNAMIC_DISPATCH(Sift)(values, residual, count, side, key + 1, key + 1, nullptr, 0).above;
}

std::uint64_t estimate_above(const float* values, const float* residual, std::uint64_t count, float threshold,
                             Side side, std::uint64_t share) {
  constexpr std::uint64_t kRuns = 64;
  const std::uint64_t length = count / (kRuns * share);
  std::uint64_t found = 0;
  for (std::uint64_t run = 0; run < kRuns; ++run) {
    const std::uint64_t at = run * count / kRuns, next = std::min(run + 1, kRuns - 1) * count / kRuns;
    for (std::uint64_t line = 0; line < length; line += 16) {  // nothing else would have it ready
      prefetch(values + next + line, 0);
      if (residual) prefetch(residual + next + line, 0);
    }
    found += count_above(values + at, residual ? residual + at : nullptr, length, threshold, side);
  }
  return static_cast<std::uint64_t>(static_cast<double>(found) * static_cast<double>(count) /
                                    static_cast<double>(kRuns * length));
}

void pick(const PieceSource& piece, Picked& picked) {
  picked.count = 0;
  const Selection& s = piece.selection;
  // Of elements that equal a threshold the first ones are selected: for these the limit is the float before.
  const auto ties = [&](std::uint64_t limit, float threshold) {
    return threshold > 0.0f && limit > piece.in_group ? std::min(limit - piece.in_group, piece.count) : 0;
  };
  const std::uint64_t up = ties(s.up_ties, s.up), down = ties(s.down_ties, s.down);
  const auto limits = [&](std::uint64_t begin, std::uint64_t end) {
    HWY_DYNAMIC_DISPATCH(PickRun)
    (piece, begin, end, begin < up ? before(s.up) : s.up, begin < down ? -before(s.down) : -s.down, picked);
  };
  std::uint64_t at = 0;
  for (const std::uint64_t cut : {std::min(up, down), std::max(up, down), piece.count}) {
    if (cut <= at) continue;
    // Whole words first; the word that holds the cut is decided element by element.
    const std::uint64_t whole = cut == piece.count ? cut : cut / 64 * 64;
    if (whole > at) limits(at, whole), at = whole;
    if (at >= cut) continue;
    const std::uint64_t end = std::min(piece.count, at + 64);
    std::uint64_t& word = picked.bits[at / 64] = 0;
    for (; at < end; ++at) {
      const float a = sum_at(piece.values, piece.residual_in, at);
      const bool selected = a > (at < up ? before(s.up) : s.up) || a < (at < down ? -before(s.down) : -s.down);
      if (piece.residual_out) piece.residual_out[at] = selected ? 0.0f : a;
      if (!selected) continue;
      word |= std::uint64_t{1} << at % 64;
      picked.values[picked.count++] = a;
    }
  }
}

}  // namespace crimp::select
#endif
