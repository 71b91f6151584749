// Counter-based random numbers: value = f(seed, stream, index), without state or order, the same on every place.
//
// Philox4x32-10 of Salmon et al., SC'11 (Random123). One call yields four words; element i is word i % 4 of counter i
// / 4.
#pragma once
#include <Random123/philox.h>

#include <cmath>
#include <cstdint>

namespace crimp {

class Random {
 public:
  Random(std::uint64_t seed, std::uint32_t stream, std::uint32_t step = 0)
      : key_{{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}}, stream_(stream), step_(step) {
  }

  // Elements 4 * counter to 4 * counter + 3.
  r123::Philox4x32::ctr_type block(std::uint64_t counter) const {
    return r123::Philox4x32()(
        {{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), stream_, step_}}, key_);
  }
  std::uint32_t bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }
  // In [0, 1), 24 bits.
  float uniform(std::uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24f; }
  // Standard normal (Box-Muller, in double, for data generators; not for kernels).
  float normal(std::uint64_t index) const {
    const auto b = block(index / 2);
    const std::size_t pair = index % 2 * 2;
    const double u = (b[pair] + 0.5) * 0x1p-32, v = b[pair + 1] * 0x1p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v));
  }

 private:
  r123::Philox4x32::key_type key_;
  std::uint32_t stream_, step_;
};

}  // namespace crimp
