#include "codec/coding/prefix_code.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "codec/threelc/threelc.hpp"

#ifndef CRIMP_PREFIX_CODE_TABLES
#define CRIMP_PREFIX_CODE_TABLES
namespace crimp::threelc {

inline constexpr std::size_t kStreams = 4,
                             kFrame =
                                 3 + 2 * (kStreams - 1);  // density, bytes coded, bytes of all streams but the last
inline constexpr std::size_t kBatch = 5;                  // symbols per refill: 5 * 11 + 7 bits fit 64
static_assert(kBatch * kLongestCode + 7 < 64);

struct Tables {
  PrefixCode codes[kDensities];
  std::uint16_t decode[kDensities][1 << kLongestCode];  // length of the code, and its symbol in the high byte
  double fill[kDensities];                              // coded bytes per base byte that the density expects
  Tables();
};
const Tables& tables();

}  // namespace crimp::threelc
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/coding/prefix_code.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

// Scalar code, compiled per target for the shifts of BMI2.
HWY_BEFORE_NAMESPACE();
namespace crimp::threelc::HWY_NAMESPACE {

// Symbol i goes to stream i % 4. Returns the bytes of each stream, written behind one another's room.
void EncodeStreams(const PrefixCode& code, const std::uint8_t* symbols, std::size_t n, std::uint8_t* const* streams,
                   std::size_t* bytes) {
  std::uint64_t buffer[kStreams] = {};
  unsigned bits[kStreams] = {};
  std::uint8_t* to[kStreams];
  for (std::size_t s = 0; s < kStreams; ++s) to[s] = streams[s];
  const auto put = [&](std::size_t s, std::uint8_t symbol) {
    buffer[s] |= static_cast<std::uint64_t>(code.code[symbol]) << bits[s];
    bits[s] += code.length[symbol];
  };
  const auto flush = [&](std::size_t s) {
    std::memcpy(to[s], &buffer[s], 8);
    to[s] += bits[s] / 8;
    buffer[s] >>= bits[s] & ~7u;
    bits[s] &= 7;
  };
  std::size_t i = 0;
  for (; i + kBatch * kStreams <= n; i += kBatch * kStreams) {
    for (std::size_t j = 0; j < kBatch; ++j)
      for (std::size_t s = 0; s < kStreams; ++s) put(s, symbols[i + j * kStreams + s]);
    for (std::size_t s = 0; s < kStreams; ++s) flush(s);
  }
  for (; i < n; ++i) {
    put(i % kStreams, symbols[i]);
    flush(i % kStreams);
  }
  for (std::size_t s = 0; s < kStreams; ++s) {
    *to[s] = static_cast<std::uint8_t>(buffer[s]);
    bytes[s] = static_cast<std::size_t>(to[s] - streams[s]) + (bits[s] != 0);
  }
}

// `in` may be read 8 bytes beyond its streams. False where a stream does not end with its bytes, or in bits other than
// 0.
bool DecodeStreams(const std::uint16_t* table, const std::uint8_t* const* streams, const std::size_t* bytes,
                   std::size_t n, std::uint8_t* symbols) {
  constexpr std::uint64_t kMask = (1 << kLongestCode) - 1;
  std::uint64_t at[kStreams] = {};  // bits consumed
  std::size_t i = 0;
  const auto window = [&](std::size_t s) {
    std::uint64_t w;
    // A malformed stream may run beyond its end; it then reads its last bytes again, and its length will be wrong.
    std::memcpy(&w, streams[s] + std::min<std::uint64_t>(at[s] / 8, bytes[s]), 8);
    return w >> at[s] % 8;
  };
  for (; i + kBatch * kStreams <= n; i += kBatch * kStreams) {
    std::uint64_t w[kStreams];
    unsigned lengths[kStreams] = {};  // in the low byte
    for (std::size_t s = 0; s < kStreams; ++s) w[s] = window(s);
    for (std::size_t j = 0; j < kBatch; ++j)
      for (std::size_t s = 0; s < kStreams; ++s) {
        const unsigned entry = table[w[s] & kMask];
        symbols[i + j * kStreams + s] = static_cast<std::uint8_t>(entry >> 8);
        w[s] >>= entry & 63;
        lengths[s] += entry;
      }
    for (std::size_t s = 0; s < kStreams; ++s) at[s] += lengths[s] & 255;
  }
  for (; i < n; ++i) {
    const std::size_t s = i % kStreams;
    const unsigned entry = table[window(s) & kMask];
    symbols[i] = static_cast<std::uint8_t>(entry >> 8);
    at[s] += entry & 255;
  }
  for (std::size_t s = 0; s < kStreams; ++s)
    if ((at[s] + 7) / 8 != bytes[s] || (at[s] % 8 && streams[s][bytes[s] - 1] >> at[s] % 8)) return false;
  return true;
}

}  // namespace crimp::threelc::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp::threelc {
HWY_EXPORT(EncodeStreams);
HWY_EXPORT(DecodeStreams);

namespace {

// Per base byte, how often each coded byte appears when values are independent and not zero with probability p.
// Additions, products and quotients of doubles only, so that every machine makes the same codes.
std::array<double, 256> frequencies(double p) {
  std::array<double, 256> f{};
  for (int byte = 0; byte < kFirstRun; ++byte) {
    f[static_cast<std::size_t>(byte)] = 1;
    for (int j = 0; j < 5; ++j)
      f[static_cast<std::size_t>(byte)] *= unpack(static_cast<std::uint8_t>(byte), j) == 0 ? 1 - p : p / 2;
  }
  const double zero = f[kZeroByte];
  double longest = 1;
  for (std::uint32_t k = 0; k < kLongestRun; ++k) longest *= zero;
  // A run has k zero bytes with probability zero^k (1 - zero)^2; what is left of it behind whole runs of 14 is one
  // coded byte.
  double power = 1;
  for (std::uint32_t rest = 1; rest < kLongestRun; ++rest) {
    power *= zero;
    f[rest == 1 ? kZeroByte : kFirstRun + rest - 2] = (1 - zero) * (1 - zero) * power / (1 - longest);
  }
  f[255] = (1 - zero) * longest / (1 - longest);
  return f;
}

// Lengths of the best prefix code of at most kLongestCode bits: package-merge (Larmore and Hirschberg, 1990) over
// integers, ties in the order of the symbols.
void best_lengths(const std::array<std::uint64_t, 256>& weights, std::uint8_t* lengths) {
  struct Package {
    std::uint64_t weight;
    std::vector<std::uint8_t> symbols;
  };
  std::vector<Package> leaves;
  for (unsigned s = 0; s < 256; ++s) leaves.push_back({weights[s], {static_cast<std::uint8_t>(s)}});
  const auto lighter = [](const Package& a, const Package& b) { return a.weight < b.weight; };
  std::stable_sort(leaves.begin(), leaves.end(), lighter);
  std::vector<Package> level = leaves;
  for (int bit = 1; bit < kLongestCode; ++bit) {
    std::vector<Package> pairs;
    for (std::size_t i = 0; i + 1 < level.size(); i += 2) {
      Package both = level[i];
      both.weight += level[i + 1].weight;
      both.symbols.insert(both.symbols.end(), level[i + 1].symbols.begin(), level[i + 1].symbols.end());
      pairs.push_back(std::move(both));
    }
    std::vector<Package> merged;
    std::merge(leaves.begin(), leaves.end(), pairs.begin(), pairs.end(), std::back_inserter(merged), lighter);
    level = std::move(merged);
  }
  std::fill(lengths, lengths + 256, std::uint8_t{0});
  for (std::size_t i = 0; i < 2 * 255; ++i)
    for (const std::uint8_t s : level[i].symbols) ++lengths[s];
}

constexpr double kProbability[kDensities] = {0.002, 0.005, 0.01,  0.02, 0.03, 0.045, 0.065, 0.09,
                                             0.12,  0.155, 0.195, 0.24, 0.3,  0.38,  0.5,   0.66};

}  // namespace

Tables::Tables() {
  for (int d = 0; d < kDensities; ++d) {
    const auto f = frequencies(kProbability[d]);
    fill[d] = 0;
    std::array<std::uint64_t, 256> weights;
    for (std::size_t s = 0; s < 256; ++s) {
      fill[d] += f[s];
      weights[s] =
          static_cast<std::uint64_t>(f[s] * 0x1p40) + 0x100000;  // a millionth more, so that every byte has a code
    }
    PrefixCode& code = codes[d];
    best_lengths(weights, code.length);
    // Canonical: by length, then by symbol. Streams are read from the lowest bit, so codes are stored reversed.
    unsigned next = 0;
    for (unsigned length = 1; length <= kLongestCode; ++length, next <<= 1)
      for (unsigned s = 0; s < 256; ++s) {
        if (code.length[s] != length) continue;
        unsigned reversed = 0;
        for (unsigned bit = 0; bit < length; ++bit) reversed |= (next >> bit & 1) << (length - 1 - bit);
        code.code[s] = static_cast<std::uint16_t>(reversed);
        for (unsigned above = reversed; above < 1u << kLongestCode; above += 1u << length)
          decode[d][above] = static_cast<std::uint16_t>(length | s << 8);
        ++next;
      }
  }
}

const Tables& tables() {
  static const Tables& all = *new Tables;
  return all;
}

const PrefixCode& prefix_code(int density) { return tables().codes[density]; }

int density_of(std::size_t n, std::size_t base) {
  const Tables& t = tables();
  int d = 0;
  // The border between two densities is half way between the bytes that they expect.
  while (d + 1 < kDensities && static_cast<double>(2 * n) > (t.fill[d] + t.fill[d + 1]) * static_cast<double>(base))
    ++d;
  return d;
}

std::size_t prefix_encode(const std::uint8_t* coded, std::size_t n, std::size_t base, std::uint8_t* out) {
  const int density = density_of(n, base);
  alignas(64) std::uint8_t room[kStreams][kMostSymbols / kStreams * kLongestCode / 8 + 16];
  std::uint8_t* streams[kStreams];
  std::size_t bytes[kStreams], total = kFrame;
  for (std::size_t s = 0; s < kStreams; ++s) streams[s] = room[s];
  HWY_DYNAMIC_DISPATCH(EncodeStreams)(prefix_code(density), coded, n, streams, bytes);
  for (const std::size_t b : bytes) total += b;
  if (total >= n + 1) {
    *out = kPlain;
    if (n) std::memcpy(out + 1, coded, n);
    return n + 1;
  }
  *out++ = static_cast<std::uint8_t>(density);
  const auto number = [&](std::size_t x) {
    const auto two = static_cast<std::uint16_t>(x);
    std::memcpy(out, &two, 2);
    out += 2;
  };
  number(n);
  for (std::size_t s = 0; s + 1 < kStreams; ++s) number(bytes[s]);
  for (std::size_t s = 0; s < kStreams; ++s) {
    std::memcpy(out, streams[s], bytes[s]);
    out += bytes[s];
  }
  return total;
}

std::size_t prefix_decode(std::span<const std::uint8_t> in, std::size_t base, std::uint8_t* coded) {
  const std::size_t malformed = base + 1;
  if (in.empty()) return malformed;
  if (in[0] == kPlain) {
    const std::size_t n = in.size() - 1;
    if (n > base) return malformed;
    if (n) std::memcpy(coded, in.data() + 1, n);
    return n;
  }
  if (in[0] >= kDensities || in.size() < kFrame || in.size() > base) return malformed;
  const auto number = [&](std::size_t i) { return static_cast<std::size_t>(in[1 + 2 * i] | in[2 + 2 * i] << 8); };
  const std::size_t n = number(0);
  if (n > base) return malformed;
  alignas(64) std::uint8_t copy[kMostSymbols + 16];  // streams are read beyond their ends
  const std::size_t rest = in.size() - kFrame;
  std::memcpy(copy, in.data() + kFrame, rest);
  std::memset(copy + rest, 0, 16);
  const std::uint8_t* streams[kStreams];
  std::size_t bytes[kStreams], at = 0;
  for (std::size_t s = 0; s < kStreams; ++s) {
    if (at > rest) return malformed;
    streams[s] = copy + at;
    bytes[s] = s + 1 < kStreams ? number(1 + s) : rest - at;
    at += bytes[s];
  }
  if (at != rest) return malformed;
  return HWY_DYNAMIC_DISPATCH(DecodeStreams)(tables().decode[in[0]], streams, bytes, n, coded) ? n : malformed;
}

}  // namespace crimp::threelc
#endif
