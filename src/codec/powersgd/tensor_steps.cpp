#include "codec/powersgd/tensor_steps.hpp"

namespace crimp::powersgd {
namespace {

class HostSteps final : public TensorSteps {
 public:
  explicit HostSteps(Workers& workers) : workers_(workers) {}
  void prepare(const Codec&, std::span<const Tensor> tensors, float share) override {
    tensors_ = tensors;
    share_ = share;
  }
  void start(Step step, const Progress& progress) override { run_step(step, tensors_, share_, workers_, progress); }

 private:
  Workers& workers_;
  std::span<const Tensor> tensors_;
  float share_ = 0;
};

}  // namespace

std::unique_ptr<TensorSteps> host_steps(Workers& workers) { return std::make_unique<HostSteps>(workers); }

}  // namespace crimp::powersgd
