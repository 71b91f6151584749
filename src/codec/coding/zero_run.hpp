// Zero-run coding of base-3^5 bytes (3LC, section 1.1 step 6): a run of k = 2..14 bytes 121 becomes the byte 243 + (k -
// 2).
#pragma once
#include <cstddef>
#include <cstdint>

namespace crimp::threelc {

inline constexpr std::size_t kExpansionSlack = 512;

// Codes n base bytes (each <= 242) to `out` and returns the bytes of the code, never more than n. `out` has room for n
// + 64: what lies behind the code is overwritten.
std::size_t zero_run_encode(const std::uint8_t* base, std::size_t n, std::uint8_t* out);
// Restores exactly n base bytes from `bytes` coded ones; `base` has room for n + kExpansionSlack.
// False if the code stands for more or fewer.
bool zero_run_decode(const std::uint8_t* in, std::size_t bytes, std::uint8_t* base, std::size_t n);

}  // namespace crimp::threelc
