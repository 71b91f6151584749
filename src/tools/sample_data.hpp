// Data that stands for gradients. Counter-based, so the same everywhere.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace crimp::tools {

inline const std::vector<std::string> kDistributions{"normal", "laplace", "sparse"};

// normal: variance 1. laplace: density exp(-|x|) / 2, heavier tails. sparse: one value in 100 is normal, the others are
// 0.
void fill(const std::string& distribution, std::uint32_t stream, float* to, std::uint64_t count);

}  // namespace crimp::tools
