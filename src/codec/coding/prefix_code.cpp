#include "codec/coding/prefix_code.hpp"

#include <algorithm>
#include <cstring>

#include "codec/coding/prefix_code_tables.hpp"

#ifndef CRIMP_PREFIX_CODE_TABLES
#define CRIMP_PREFIX_CODE_TABLES
namespace crimp::threelc {

inline constexpr std::size_t kBatch = 5;  // symbols per refill: 5 * 11 + 7 bits fit 64
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
  // One stream after the other: what one waits for is the sum of lengths, a cycle a symbol, and the state of four would
  // not stay in registers.
  for (std::size_t s = 0; s < kStreams; ++s) {
    std::uint64_t buffer = 0;
    unsigned bits = 0;
    std::uint8_t* to = streams[s];
    const auto put = [&](std::uint8_t symbol) {
      buffer |= static_cast<std::uint64_t>(code.code[symbol]) << bits;
      bits += code.length[symbol];
    };
    const auto flush = [&] {
      std::memcpy(to, &buffer, 8);
      to += bits / 8;
      buffer >>= bits & ~7u;
      bits &= 7;
    };
    std::size_t i = s;
    for (; i + (kBatch - 1) * kStreams < n; i += kBatch * kStreams) {
      for (std::size_t j = 0; j < kBatch; ++j) put(symbols[i + j * kStreams]);
      flush();
    }
    for (; i < n; i += kStreams) {
      put(symbols[i]);
      flush();
    }
    *to = static_cast<std::uint8_t>(buffer);
    bytes[s] = static_cast<std::size_t>(to - streams[s]) + (bits != 0);
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

// Allocates nothing: workers come here, and an encoder cannot fail.
Tables::Tables() {
  for (int d = 0; d < kDensities; ++d) {
    fill[d] = kPrefixFill[d];
    PrefixCode& code = codes[d];
    for (std::size_t s = 0; s < 256; ++s) {
      const char digit = kPrefixLengths[d][s];
      code.length[s] = static_cast<std::uint8_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
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
  static const Tables all;
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
