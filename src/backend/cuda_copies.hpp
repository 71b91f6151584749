// Many copies within device memory at once.
#pragma once
#include <cuda_runtime.h>

#include <span>

#include "backend/backend.hpp"

namespace crimp::cuda {

// Loads the kernel into the current context.
void load_copies();
// Each of them, in any order; none reads what another one writes. One launch for each kCopiesAtOnce.
void copy_all(std::span<const FloatCopy>, cudaStream_t);
inline constexpr std::size_t kCopiesAtOnce = 160;  // as many as kernel arguments of 4 KiB hold

}  // namespace crimp::cuda
