// Many copies within device memory at once.
#pragma once
#include <cuda_runtime.h>

#include <span>

#include "backend/backend.hpp"

namespace crimp::cuda {

// Loads the kernel into the current context.
void load_copies();
// Each of them, in any order; none reads what another one writes. One launch for each kCopiesAtOnce that are not large.
void copy_all(std::span<const FloatCopy>, cudaStream_t);

}  // namespace crimp::cuda
