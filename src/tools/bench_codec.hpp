// What the two halves of `crimp bench codec` share: on the host's memory, and on a device's.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "cuda_device.hpp"

namespace crimp::tools {

struct CodecBench {
  std::vector<std::string> codecs;
  std::vector<std::uint64_t> counts;
  std::string data = "normal", device = "host", json;
  std::uint64_t tensor = 655360;
  int ranks = 4, threads = 1, repeat = 9;
  bool all = false;
};

inline constexpr int kSettle =
    24;  // encodes before anything is measured: residuals fill up, and payloads grow until they have
// Rank r's values begin r * kShift elements into the sample, so that payloads differ; a multiple of 16, to keep the
// alignment.
inline constexpr std::uint64_t kShift = 10256;

// Kernels of a codec on count elements; null where it has none. `sample`: in device memory.
nlohmann::ordered_json measure_on_device(const CodecBench&, const CudaDevice&, const Codec&, std::uint64_t count,
                                         const float* sample);

}  // namespace crimp::tools
