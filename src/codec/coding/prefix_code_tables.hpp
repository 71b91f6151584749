// The prefix codes as constants: lengths, and what follows from them for kernels. prefix_code_test.cpp makes them by
// the rule of WIRE_FORMAT.md, section 4.4.
#pragma once
#include <cstdint>

#include "codec/coding/prefix_code.hpp"
#include "core/host_device.hpp"

namespace crimp::threelc {

// A hexadecimal digit per byte: the bits of its code.
inline constexpr const char* kPrefixLengths[kDensities] = {
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb6bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb6bbbbbbbbbbbbbbbbb6bbbbb6b666b6bbb"
    "bb6bbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbbbbbbbbbbbabbbbbbbbbbbbbbbbbabbbbbaba5ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbb6666666666671",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb6bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb6bbbbbbbbbbbbbbbbb6bbbbb6b666b6bbb"
    "bb6bbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbbbbbbbbbbbabbbbbbbbbbbbbbbbbabbbbbaba5ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbb6666666666671",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbb5bbbbb5b555b5bbb"
    "bb5bbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbbbbbbbbbbbabbbbbbbbbbbbbbbbbabbbbbaba5ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbb5555555666672",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbb5ababa5a545a5aba"
    "ba5ababbbbbabbbbbaba5ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbbbbbbabbbbbaba4ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbb4555555566663",
    "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb5bbbbbbbbbbbbbbbbb5bbbbb5b545b5bbb"
    "bb4bbbbbbbbbbbbbbbbb4bbbbbbbbbbbbbbbbbbbbbbbbbbabbbbbbbbbbbbbbbbbabbbbbaba4ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbb4455555666674",
    "bbbbbbbbbbbbbabbbbbbbbbbbbbbbbbabbbbbaba5ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbbbbbbabbbbbaba5ababbbbbabbbbbaba5ababa5a444a4aba"
    "ba4ababbbbbabbbbbaba4ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbbbbbbabbbbbaba4ababbbbbabbbbbbbbbbbbbbbbbabbbbbbbbbbbbb4455566677886",
    "bbbbbbbbbbbbb9bbbbbbbbbbbbbbbbb9bbbbb9b959b9bbbbb9bbbbbbbbbbbbbbbbb9bbbbbbbbbbbbbbbbb9bbbbb9b959b9bbbbb9bbbbb9b959b9b959535949b9"
    "b949b9bbbbb9bbbbb9b949b9bbbbb9bbbbbbbbbbbbbbbbb9bbbbbbbbbbbbbbbbb9bbbbb9b949b9bbbbb9bbbbbbbbbbbbbbbbb9bbbbbbbbbbbbb4455666778997",
    "bbbbbbbbbbbbb9bbbbbbbbbbbbbbbbb9bbbbb9b959b9bbbbb9bbbbbbbbbbbbbbbbb9bbbbbbbbbbbbbbbbb9bbbbb9b959b9bbbbb9bbbbb9b959b9b959434949b9"
    "b949b9bbbbb9bbbbb9b949b9bbbbb9bbbbbbbbbbbbbbbbb9bbbbbbbbbbbbbbbbb9bbbbb9b949b9bbbbb9bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbb445677889aaaa",
    "bbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b858b8bbbbb8bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b858b8bbbbb8bbbbb8b858b8b858534848b8"
    "b848b8bbbbb8bbbbb8b848b8bbbbb8bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b848b8bbbbb8bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbb455678abbbbbb",
    "bbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b858b8bbbbb8bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b858b8bbbbb8bbbbb8b858b8b858434848b8"
    "b848b8bbbbb8bbbbb8b848b8bbbbb8bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b848b8bbbbb8bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbb456799abbbbbb",
    "bbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b858b8bbbbb8bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b858b8bbbbb8bbbbb8b858b8b848434848b8"
    "b848b8bbbbb8bbbbb8b848b8bbbbb8bbbbbbbbbbbbbbbbb8bbbbbbbbbbbbbbbbb8bbbbb8b848b8bbbbb8bbbbbbbbbbbbbbbbb8bbabbbbbabbbb4679abbbbbbbb",
    "bbbbabbbbbaba7ababbbbbabbbbbaba7ababa7a757a7ababa7ababbbbbabbbbbaba7ababbbbbabbbbbaba7ababa7a757a7ababa7ababa7a757a7a757535757a7"
    "a757a7ababa7ababa7a747a7ababa7ababbbbbabbbbbaba7ababbbbbabbbbbaba7ababa7a747a7ababa7ababbbbbabbbbbaba7ababbbbb9bbbb569bbbbbbbbbb",
    "bbbb9bbbbb9b979b9bbbbb9bbbbb9b979b9b979757979b9b979b9bbbbb9bbbbb9b979b9bbbbb9bbbbb9b979b9b979757979b9b979b9b97975797975753575797"
    "9757979b9b979b9b979757979b9b979b9bbbbb9bbbbb9b979b9bbbbb9bbbbb9b979b9b979757979b9b979b9bbbbb9bbbbb9b979b9bbbbb9bbbb59abbbbbbbbbb",
    "baba9ababa9a979a9ababa9ababa9a979a9a979757979a9a979a9ababa9ababa9a979a9ababa9ababa9a979a9a979757979a9a979a9a97975797975754575797"
    "9757979a9a979a9a979757979a9a979a8ababa8ababa8a878a8ababa8ababa8a878a8a878757878a8a878a8ababa8ababa8a878a8ababa8abab7bbbbbbbbbbbb",
    "b9a999a9a989888989a9a989a9a989878989878767878989878989a9a989a9a989878989a9a989a9a98987898987876787898987898987876787876765676787"
    "8767878989878989878767878989878989a9a989a9a989878989a9a989a9a989878989878767878989878989a9a989a9a989878989a9a989a9abbbbbbbbbbbbb",
    "88888888888888888888888888888888888888887888888888888888888888888888888888888888888888888888887888888888888888887888887877787888"
    "88788888888888888888788888888888888888888888888888888888888888888888888888788888888888888888888888888888888888888889bbbbbbbbbbbb",
};
inline constexpr double kPrefixFill[kDensities] = {
    0x1.5dacf2da30de4p-4, 0x1.b37c7273c9052p-4, 0x1.2153ff3a515c6p-3, 0x1.afc4a99d31b46p-3,
    0x1.1d97095fbf23p-2,  0x1.80c9efa206f7p-2,  0x1.f702da0c088b5p-2, 0x1.38c8448e1c138p-1,
    0x1.716c90da5b2f9p-1, 0x1.a0f9e3e1c0a42p-1, 0x1.c57d7e531117bp-1, 0x1.df1586dd194e3p-1,
    0x1.f1898a58bd887p-1, 0x1.fbb3e9dd70d95p-1, 0x1.ff8p-1,           0x1.fffd4b4f4d1c6p-1,
};

// One density's canonical code: shorter codes first, then smaller bytes.
struct DensityTable {
  std::uint16_t code[256];  // first bit lowest, the length above kLongestCode bits
  // By the next kLongestCode bits, first one lowest: the byte whose code they begin with, its length in the high byte.
  alignas(16) std::uint16_t decode[1 << kLongestCode];
  // By the same bits: at which of them the codes begin that are whole in them, and above those how many bits they have.
  alignas(16) std::uint16_t steps[1 << kLongestCode];
};
struct DensityTables {
  DensityTable densities[kDensities];
  double fill[kDensities];  // coded bytes per base byte that a density expects
};

constexpr DensityTables density_tables() {
  DensityTables all{};
  for (int d = 0; d < kDensities; ++d) {
    all.fill[d] = kPrefixFill[d];
    DensityTable& t = all.densities[d];
    std::uint32_t next = 0;
    for (std::uint32_t length = 1; length <= kLongestCode; ++length, next <<= 1) {
      for (std::uint32_t s = 0; s < 256; ++s) {
        const char digit = kPrefixLengths[d][s];
        if (static_cast<std::uint32_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10) != length) continue;
        std::uint32_t reversed = 0;
        for (std::uint32_t bit = 0; bit < length; ++bit) reversed |= (next >> bit & 1) << (length - 1 - bit);
        t.code[s] = static_cast<std::uint16_t>(reversed | length << kLongestCode);
        for (std::uint32_t above = reversed; above < 1u << kLongestCode; above += 1u << length)
          t.decode[above] = static_cast<std::uint16_t>(s | length << 8);
        ++next;
      }
    }
    for (std::uint32_t bits = 0; bits < 1u << kLongestCode; ++bits) {
      std::uint32_t at = 0, begins = 0;
      for (std::uint32_t length = t.decode[bits] >> 8; length != 0 && at + length <= kLongestCode;
           length = at < kLongestCode ? t.decode[bits >> at] >> 8 : 0) {
        begins |= 1u << at;
        at += length;
      }
      t.steps[bits] = static_cast<std::uint16_t>(begins | at << kLongestCode);
    }
  }
  return all;
}

}  // namespace crimp::threelc
