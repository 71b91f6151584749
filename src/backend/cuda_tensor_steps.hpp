// PowerSGD's steps (codec/powersgd/tensor_steps.hpp) on a stream of a CUDA device.
#pragma once
#include <cuda_runtime.h>

#include <memory>

namespace crimp {
class TensorSteps;
}

namespace crimp::cuda {

// The stream is the caller's and outlives it.
std::unique_ptr<TensorSteps> make_tensor_steps(int device, cudaStream_t);

}  // namespace crimp::cuda
