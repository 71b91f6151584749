#include "codec/device_sums.hpp"
#include "codec/thc/thc_sums_kernels.cuh"

namespace crimp {

std::unique_ptr<DeviceSums> make_device_sums(const Codec& codec) {
  if (!codec.homomorphic()) return nullptr;
  return std::make_unique<thc::Sums>(thc::make_tables(codec.parameter(thc::kBits), codec.parameter(thc::kGranularity),
                                                      codec.parameter(thc::kClipped)));
}

}  // namespace crimp
