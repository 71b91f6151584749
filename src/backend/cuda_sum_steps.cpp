// Integer sums (codec/sum_steps.hpp) on a stream of a CUDA device.
#include <functional>

#include "backend/cuda_backend.hpp"
#include "backend/cuda_memory.hpp"
#include "codec/device_sums.hpp"

namespace crimp::cuda {
namespace {

class CudaSumSteps final : public SumSteps {
 public:
  CudaSumSteps(int device, cudaStream_t stream, std::unique_ptr<DeviceSums> kernels,
               std::function<void(const Progress&)> wait)
      : device_(device), stream_(stream), kernels_(std::move(kernels)), wait_(std::move(wait)) {}

  void load() override {
    if (loaded_) return;
    const ContextGuard here(device_);
    check_cuda(static_cast<cudaError_t>(kernels_->load()), "the loading of kernels");
    loaded_ = true;
  }
  void norms(const SumChunk& chunk, float* norms, const Progress&) override {
    launch([&] { return kernels_->norms(chunk, norms, stream_); });
  }
  void encode(const SumChunk& chunk, const float* norms, std::uint64_t coordinates, std::uint8_t* indices,
              const Progress&) override {
    launch([&] { return kernels_->encode(chunk, norms, coordinates, indices, stream_); });
  }
  void decode(const SumChunk& chunk, const std::uint16_t* sums, const float* norms, int ranks,
              const Progress&) override {
    launch([&] { return kernels_->decode(chunk, sums, norms, ranks, stream_); });
  }
  void integers(const std::uint8_t* indices, std::uint64_t coordinates, int bytes, void* to) override {
    launch([&] { return kernels_->integers(indices, coordinates, bytes, to, stream_); });
  }
  void add(const IndexShares& indices, std::uint64_t coordinates, int width, std::uint16_t*, std::uint8_t* to,
           const Progress&) override {
    launch([&] { return kernels_->add(indices, coordinates, width, to, stream_); });
  }
  void unpack(const PackedShares& packed, std::uint64_t coordinates, std::uint32_t most, std::uint16_t* sums,
              std::uint32_t* largest) override {
    launch([&] { return kernels_->unpack(packed, coordinates, most, sums, largest, stream_); });
  }
  void finish(const Progress& progress) override { wait_(progress); }

 private:
  template <class Enqueue>
  void launch(Enqueue&& enqueue) {
    const ContextGuard here(device_);
    check_cuda(static_cast<cudaError_t>(enqueue()), "a kernel's launch");
  }

  bool loaded_ = false;
  int device_;
  cudaStream_t stream_;
  std::unique_ptr<DeviceSums> kernels_;
  std::function<void(const Progress&)> wait_;
};

}  // namespace

SumSteps* CudaBackend::sum_steps(const Codec& codec) {
  auto& steps = sum_steps_[&codec];  // null behind an exception, too
  if (steps) return steps.get();
  if (auto kernels = make_device_sums(codec))
    steps = std::make_unique<CudaSumSteps>(device_, compute_, std::move(kernels), [this](const Progress& progress) {
      {
        const ContextGuard here(device_);
        CRIMP_CUDA(cudaEventRecord(entered_, compute_));
      }
      wait(entered_, progress);
    });
  return steps.get();
}

}  // namespace crimp::cuda
