#include "backend/cuda_tensor_steps.hpp"

#include "backend/cuda_memory.hpp"
#include "codec/powersgd/powersgd_device.hpp"
#include "codec/powersgd/powersgd_extents.hpp"
#include "codec/powersgd/tensor_steps.hpp"

namespace crimp::cuda {
namespace {

class CudaTensorSteps final : public TensorSteps {
 public:
  CudaTensorSteps(int device, cudaStream_t stream) : device_(device), stream_(stream) {}

  void load(const Codec& codec) override {
    const ContextGuard here(device_);
    check(static_cast<cudaError_t>(powersgd::load_steps(powersgd::parameters_of(codec).rank)),
          "the loading of kernels");
  }

  void prepare(std::span<const powersgd::Tensor> tensors, float share) override {
    const ContextGuard here(device_);
    const std::size_t bytes = tensors.size() * sizeof(powersgd::DeviceTensor);
    grow(table_, bytes, pinned_memory());
    grow(table_there_, bytes, device_memory(device_));
    tensors_ = powersgd::device_tensors(tensors, reinterpret_cast<powersgd::DeviceTensor*>(table_.data()));
    tensors_.tensors = reinterpret_cast<const powersgd::DeviceTensor*>(table_there_.data());
    share_ = share;
    if (bytes) CRIMP_CUDA(cudaMemcpyAsync(table_there_.data(), table_.data(), bytes, cudaMemcpyHostToDevice, stream_));
  }

  void start(powersgd::Step step, const Progress&) override {
    const ContextGuard here(device_);
    check(static_cast<cudaError_t>(powersgd::enqueue_step(step, tensors_, share_, stream_)), "a kernel's launch");
  }

 private:
  int device_;
  cudaStream_t stream_;
  Memory table_, table_there_;  // pinned, and on the device
  powersgd::DeviceTensors tensors_{};
  float share_ = 0;
};

}  // namespace

std::unique_ptr<TensorSteps> make_tensor_steps(int device, cudaStream_t stream) {
  return std::make_unique<CudaTensorSteps>(device, stream);
}

}  // namespace crimp::cuda
