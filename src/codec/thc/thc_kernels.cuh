// THC in a block. The encoder rotates floats (thc_float_rotation.cuh, thc_encoder.cuh); what decodes, its residual too,
// rotates integers on the tensor cores (thc_exact_rotation.cuh, thc_decoder.cuh).
#pragma once
#include "codec/thc/thc_decoder.cuh"

namespace crimp::thc {

struct Device : Decoder {
  using Decoder::Decoder;
};

}  // namespace crimp::thc
