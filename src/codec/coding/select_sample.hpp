// Where the selection on a GPU looks first (select_kernels.cuh). It decides which passes are made, never what is
// selected.
#pragma once
#include <cstdint>

#include "core/host_device.hpp"

namespace crimp::select {

inline constexpr std::uint32_t kSample = 8192, kRun = 8;  // elements; neighbours among them, which share a sector

// The j-th element of the sample of a group of more than kSample: runs of kRun, one from each of equal strata, at a
// place that differs from stratum to stratum, so that no period of the data is that of the sample.
CRIMP_HD std::uint64_t sample_index(std::uint32_t j, std::uint64_t count) {
  constexpr std::uint64_t kRuns = kSample / kRun;
  const std::uint64_t run = j / kRun, begin = run * count / kRuns,
                      places = (run + 1) * count / kRuns - begin - kRun + 1,
                      place = static_cast<std::uint32_t>(run * 0x9e3779b9u) >> 16;  // of 2^16
  return (begin + (places * place >> 16)) / kRun * kRun + j % kRun;
}

}  // namespace crimp::select
