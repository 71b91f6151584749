#include "backend/cuda_tensor_steps.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include "backend/cuda_blas.hpp"
#include "backend/cuda_memory.hpp"
#include "codec/powersgd/powersgd_device.hpp"
#include "codec/powersgd/powersgd_extents.hpp"
#include "codec/powersgd/tensor_steps.hpp"
#include "core/error.hpp"

namespace crimp::cuda {
namespace {

using powersgd::Gemm;
using powersgd::Step;
using powersgd::Tensor;

constexpr std::uint64_t kLeastTimed = 1 << 16;  // elements; below it is launches that take the time
constexpr Step kProducts[] = {Step::project, Step::project_back};

// Which products are faster by cuBLAS: timed once in a process for each device and class of shapes.
class Fastest {
 public:
  using Key = std::tuple<int, Step, std::uint32_t, int, int, bool>;
  static Key key(int device, Step step, const Tensor& t) {
    const powersgd::Matrix& m = t.matrix;
    return {device, step, m.rank, std::bit_width(m.rows), std::bit_width(m.cols), t.memory != nullptr};
  }
  std::optional<bool> is_cublas(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto it = known_.find(key);
    return it == known_.end() ? std::nullopt : std::optional(it->second);
  }
  void note(const Key& key, bool cublas) {
    const std::lock_guard lock(mutex_);
    known_.try_emplace(key, cublas);
  }
  static Fastest& get() {
    static auto& all = *new Fastest;
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<Key, bool> known_;
};

struct TimedEvent {
  cudaEvent_t event = nullptr;
  TimedEvent() { CRIMP_CUDA(cudaEventCreateWithFlags(&event, cudaEventDefault)); }
  ~TimedEvent() { cudaEventDestroy(event); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
};

class CudaTensorSteps final : public TensorSteps {
 public:
  CudaTensorSteps(int device, cudaStream_t stream) : device_(device), stream_(stream) {}

  void load(const Codec& codec, std::size_t tensors) override {
    const ContextGuard here(device_);
    check_cuda(static_cast<cudaError_t>(powersgd::load_steps(powersgd::parameters_of(codec).rank)),
               "the loading of kernels");
    const std::size_t bytes = 2 * tensors * sizeof(powersgd::DeviceTensor);  // of all, and each by itself
    grow(table_, bytes, pinned_memory());
    grow(table_there_, bytes, device_memory(device_));
    const auto wanted = codec.parameter(powersgd::kGemm);
    if (wanted == Gemm::own || products_ || gave_up_) return;
    // What else a program needs a library of some hundred megabytes for, Crimp does not know: by itself it loads none.
    try {
      products_ = std::make_unique<CublasProducts>(find_cublas(kCublasFiles, wanted == Gemm::cublas), device_, stream_);
    } catch (const Error& e) {
      if (wanted == Gemm::cublas) give_up(e.what());
    }
  }

  void prepare(const Codec& codec, std::span<const Tensor> tensors, float share) override {
    const ContextGuard here(device_);
    tensors_ = tensors;
    share_ = share;
    choose(codec.parameter(powersgd::kGemm));
    // The tensors of all, and behind them each by itself.
    const std::size_t n = tensors.size(), entries = products_ ? 2 * n : n,
                      bytes = entries * sizeof(powersgd::DeviceTensor);
    if (bytes > std::min(table_.bytes(), table_there_.bytes()))
      throw Error(ErrorCode::device_failed, "there are more tensors than were prepared for; this is a defect of Crimp");
    auto* const to = reinterpret_cast<powersgd::DeviceTensor*>(table_.data());
    const auto* const there = reinterpret_cast<const powersgd::DeviceTensor*>(table_there_.data());
    all_ = powersgd::device_tensors(tensors, to, by_cublas_);
    all_.tensors = there;
    single_.clear();
    for (std::size_t i = n; i < entries; ++i) {
      single_.push_back(powersgd::device_tensors(tensors.subspan(i - n, 1), to + i));
      single_.back().tensors = there + i;
    }
    if (bytes) CRIMP_CUDA(cudaMemcpyAsync(table_there_.data(), table_.data(), bytes, cudaMemcpyHostToDevice, stream_));
  }

  void start(Step step, const Progress&) override {
    const ContextGuard here(device_);
    launched(powersgd::enqueue_step(step, all_, share_, stream_));
    if (step == Step::rebuild) return;
    const auto at = static_cast<std::size_t>(step);
    for (std::size_t i = 0; i < by_cublas_.size(); ++i)
      if (by_cublas_[i][at]) by_cublas(step, i);
      else if (timed_[i][at]) time(step, i);
  }

  std::string take_complaint() override { return std::exchange(complaint_, {}); }

 private:
  static void launched(int error) { check_cuda(static_cast<cudaError_t>(error), "a kernel's launch"); }

  void give_up(const std::string& why) {
    products_.reset();
    gave_up_ = true;
    complaint_ = "powersgd: cuBLAS cannot be used (" + why + "): its products are Crimp's own kernels'";
  }

  void choose(Gemm wanted) {
    by_cublas_.assign(products_ ? tensors_.size() : 0, {});
    timed_.assign(by_cublas_.size(), {});
    for (std::size_t i = 0; i < by_cublas_.size() && wanted != Gemm::own; ++i) {
      const Tensor& t = tensors_[i];
      if (!CublasProducts::takes(t.matrix)) continue;
      for (const Step step : kProducts) {
        const auto at = static_cast<std::size_t>(step);
        if (wanted == Gemm::cublas) by_cublas_[i][at] = true;
        else if (t.matrix.count >= kLeastTimed) {
          const auto known = Fastest::get().is_cublas(Fastest::key(device_, step, t));
          by_cublas_[i][at] = known.value_or(false);
          timed_[i][at] = !known;
        }
      }
    }
  }

  void own(Step step, std::size_t i) { launched(powersgd::enqueue_product(step, single_[i], stream_)); }
  bool enqueue(Step step, std::size_t i) {
    if (!products_) return false;
    const int status = products_->enqueue(step, tensors_[i]);
    if (status) give_up("cublasSgemm failed with status " + std::to_string(status));
    return status == 0;
  }
  void by_cublas(Step step, std::size_t i) {
    if (!enqueue(step, i)) own(step, i);
  }

  // Milliseconds; the first run, which may load and look for kernels, does not count.
  template <class Work>
  double time_of(Work work) {
    const TimedEvent begin, end;
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < 3; ++run) {
      CRIMP_CUDA(cudaEventRecord(begin.event, stream_));
      if (!work()) return std::numeric_limits<double>::infinity();
      CRIMP_CUDA(cudaEventRecord(end.event, stream_));
      CRIMP_CUDA(cudaEventSynchronize(end.event));
      float ms = 0;
      CRIMP_CUDA(cudaEventElapsedTime(&ms, begin.event, end.event));
      if (run > 0) best = std::min(best, static_cast<double>(ms));
    }
    return best;
  }
  // On the call's own values. What it leaves is the own kernels'.
  void time(Step step, std::size_t i) try {
    const auto key = Fastest::key(device_, step, tensors_[i]);
    if (!products_ || Fastest::get().is_cublas(key)) return;  // another tensor's class
    const double theirs = time_of([&] { return enqueue(step, i); }), ours = time_of([&] { return own(step, i), true; });
    if (products_) Fastest::get().note(key, theirs < ours);
  } catch (const std::exception&) {  // the call does not depend on it
    own(step, i);
  }

  int device_;
  cudaStream_t stream_;
  Memory table_, table_there_;  // pinned, and on the device
  std::span<const Tensor> tensors_;
  powersgd::DeviceTensors all_{};
  std::vector<powersgd::DeviceTensors> single_;
  std::vector<powersgd::Elsewhere> by_cublas_, timed_;  // of each tensor, where there is cuBLAS
  std::unique_ptr<CublasProducts> products_;
  bool gave_up_ = false;
  std::string complaint_;
  float share_ = 0;
};

}  // namespace

std::unique_ptr<TensorSteps> make_tensor_steps(int device, cudaStream_t stream) {
  return std::make_unique<CudaTensorSteps>(device, stream);
}

}  // namespace crimp::cuda
