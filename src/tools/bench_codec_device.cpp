// crimp bench codec --device cuda: kernels by themselves, timed by the device, beside copies within device memory.
//
// Speeds count the bytes that a pass has to move, each once: encoding reads values and memory and writes memory and
// payload; decoding reads payloads and writes sums; a copy reads and writes. What a kernel moves besides (slots, second
// passes over values) makes it slower here and is not counted.
#include <algorithm>
#include <climits>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench_codec.hpp"
#include "codec/device_codec.hpp"
#include "codec/powersgd/tensor_steps.hpp"
#include "core/error.hpp"
#include "stopwatch.hpp"

namespace crimp::tools {
namespace {

constexpr double kLeastSeconds = 1e-3;  // work is repeated until one measurement takes this long
constexpr int kMostRepeats = 100;

void launched(int error) {
  if (error)
    throw Error(ErrorCode::device_failed, "a kernel could not be launched: CUDA error " + std::to_string(error));
}

// What is measured: work on a device, and copies in between.
class Bench {
 public:
  Bench(const CodecBench& setup, const CudaDevice& device, const Codec& codec, std::uint64_t count, const float* sample)
      : setup_(setup), device_(device), codec_(codec), count_(count), sample_(sample),
        out_(take(count * sizeof(float))) {}

 protected:
  Memory take(std::uint64_t bytes) const { return bytes ? Memory(bytes, device_.memory) : Memory(); }
  template <class T>
  const T* upload(const std::vector<T>& from) {
    arrays_.push_back(take(std::max<std::size_t>(1, from.size()) * sizeof(T)));
    if (!from.empty()) device_.memory.write(arrays_.back().data(), from.data(), from.size() * sizeof(T));
    return reinterpret_cast<const T*>(arrays_.back().data());
  }
  double on_device(const std::function<void(Stream)>& work) const { return device_.plugin.timed(device_.index, work); }
  // Of one run; several where one is short beside what starts and ends a measurement.
  double time(const std::function<void(Stream)>& work) const {
    const double once = on_device(work);
    const int n = std::clamp(static_cast<int>(std::ceil(kLeastSeconds / std::max(once, 1e-9))), 1, kMostRepeats);
    return on_device([&](Stream s) {
             for (int i = 0; i < n; ++i) work(s);
           }) /
           n;
  }
  double copied() const { return 8 * static_cast<double>(count_); }
  // A measurement beside a copy; bytes: that it moves.
  void against_copy(std::vector<double>& times, std::vector<double>& ratios, const std::function<double()>& bytes,
                    const std::function<void(Stream)>& work) {
    copying_.push_back(time([&](Stream s) { device_.plugin.copy(out_.data(), sample_, count_ * sizeof(float), s); }));
    times.push_back(time(work));
    ratios.push_back(bytes() / times.back() / (copied() / copying_.back()));
  }

  const CodecBench& setup_;
  const CudaDevice& device_;
  const Codec& codec_;
  std::uint64_t count_;
  const float* sample_;
  Memory out_;
  std::vector<Memory> arrays_;
  std::vector<double> copying_;
};

class DeviceBench : Bench {
 public:
  DeviceBench(const CodecBench& setup, const CudaDevice& device, const Codec& codec, const DeviceCodec& kernels,
              std::uint64_t count, const float* sample)
      : Bench(setup, device, codec, count, sample), kernels_(kernels), words_(take(2 * sizeof(std::uint64_t))) {
    for (std::uint64_t at = 0; at < count; at += setup.tensor) shape_.add_group(std::min(setup.tensor, count - at));
    planes_ = static_cast<std::uint64_t>(codec.feedback().arrays());
    std::vector<FeedbackView> feedback;
    if (planes_) {
      memory_ = take(planes_ * count * sizeof(float));
      for (const Group& g : shape_.groups()) {
        float* const residual = reinterpret_cast<float*>(memory_.data()) + g.offset;
        float* const momentum = planes_ == 2 ? residual + count : nullptr;
        feedback.push_back({residual, residual, momentum, momentum});
      }
    }
    const ChunkArrays arrays(codec, {shape_, 0, feedback});
    table_ = arrays.table;
    table_.pieces = upload(arrays.pieces);
    table_.groups = upload(arrays.groups);
    scratch_ = take(kernels.scratch_bytes(table_));
    for (int r = 0; r < setup.ranks; ++r) {
      bodies_.push_back(take(shape_.body_bound(codec)));
      JobEntry job = arrays.jobs[0];
      job.body = reinterpret_cast<std::uint8_t*>(bodies_.back().data());
      jobs_.push_back(upload(std::vector{job}));
    }
  }

  nlohmann::ordered_json measure() {
    on_device([&](Stream) { launched(kernels_.load()); });
    std::vector<const std::uint8_t*> bodies;
    std::vector<const std::uint64_t*> offsets;
    double payload = 0, first = 0, sent = 0;
    for (int r = setup_.ranks - 1; r >= 0; --r) {
      if (memory_.bytes()) {
        const Memory zeros = take(memory_.bytes());
        on_device([&](Stream s) { device_.plugin.copy(memory_.data(), zeros.data(), zeros.bytes(), s); });
      }
      on_device([&](Stream s) {
        for (int i = 0; i < kSettle; ++i) encode(r, s);
      });
      first = static_cast<double>(keep_offsets(r, offsets));
      payload += first;
    }
    for (const Memory& body : bodies_) bodies.push_back(reinterpret_cast<const std::uint8_t*>(body.data()));
    const auto* const all_bodies = upload(bodies);
    const std::uint64_t* const* const all_offsets = codec_.traits().fixed_size ? nullptr : upload(offsets);
    const auto decode = [&](std::int64_t n, bool accumulate, Stream s) {
      launched(kernels_.decode_add(table_, {all_bodies, all_offsets, n}, {0, step_ - 1, 0},
                                   reinterpret_cast<float*>(out_.data()), accumulate, 0, bad(), s));
    };
    const std::int32_t none = INT_MAX;
    device_.memory.write(bad(), &none, sizeof none);

    // Decoding before encoding: rank 0's payload changes with every encode.
    std::vector<double> encoding, decoding, adding, encode_ratio, decode_ratio, add_ratio;
    const double n = static_cast<double>(count_), decoded = 4 * n + payload, added = 8 * n + first;
    double encoded = 0;
    for (int i = 0; i < setup_.repeat; ++i) {
      against_copy(
          decoding, decode_ratio, [&] { return decoded; }, [&](Stream s) { decode(setup_.ranks, false, s); });
      against_copy(
          adding, add_ratio, [&] { return added; }, [&](Stream s) { decode(1, true, s); });
    }
    std::int32_t wrong;
    device_.memory.read(&wrong, bad(), sizeof wrong);
    if (wrong != none)
      throw Error(ErrorCode::payload_corrupt, codec_.spec() + ": a piece that it encoded itself does not decode");
    const auto bytes = [&] {
      sent = static_cast<double>(bytes_used());
      return encoded = (4 + 8 * static_cast<double>(planes_)) * n + sent;
    };
    for (int i = 0; i < setup_.repeat; ++i)
      against_copy(encoding, encode_ratio, bytes, [&](Stream s) { encode(0, s); });
    return {{"codec", codec_.spec()},
            {"count", count_},
            {"bytes", 4 * count_},
            {"copy_GBps", 1e-9 * copied() / median(copying_)},
            {"encode_us", 1e6 * median(encoding)},
            {"encode_GBps", 1e-9 * encoded / median(encoding)},
            {"encode_vs_copy", median(encode_ratio)},
            {"decode_add_us", 1e6 * median(decoding)},
            {"decode_add_GBps", 1e-9 * decoded / median(decoding)},
            {"decode_add_vs_copy", median(decode_ratio)},
            {"decode_add_one_us", 1e6 * median(adding)},
            {"decode_add_one_vs_copy", median(add_ratio)},
            {"encode_bytes", encoded},
            {"decode_add_bytes", decoded},
            {"bits_per_value", 8 * sent / n},
            {"ratio", 4 * n / sent}};
  }

 private:
  void encode(int rank, Stream s) {
    const auto r = static_cast<std::size_t>(rank);
    table_.jobs = jobs_[r];
    launched(kernels_.encode(table_, sample_ + r * kShift, {0, step_++, static_cast<std::uint32_t>(rank)},
                             reinterpret_cast<std::uint64_t*>(words_.data()), scratch_.data(), s));
  }
  std::int32_t* bad() const { return reinterpret_cast<std::int32_t*>(words_.data() + sizeof(std::uint64_t)); }
  std::uint64_t bytes_used() const {
    std::uint64_t bytes;
    device_.memory.read(&bytes, words_.data(), sizeof bytes);
    return bytes;
  }
  // Of rank r's payload, checked as a receiver does; `offsets` grows at its front. Returns its bytes.
  std::uint64_t keep_offsets(int r, std::vector<const std::uint64_t*>& offsets) {
    std::vector<std::uint8_t> body(bytes_used());
    device_.memory.read(body.data(), bodies_[static_cast<std::size_t>(r)].data(), body.size());
    BodyView view;
    if (const std::string what = view.open(codec_, shape_, body); !what.empty())
      throw Error(ErrorCode::payload_corrupt, codec_.spec() + ": " + what);
    offsets.insert(offsets.begin(), upload(std::vector<std::uint64_t>(view.offsets().begin(), view.offsets().end())));
    return body.size();
  }

  const DeviceCodec& kernels_;
  std::uint64_t planes_ = 0;
  Memory words_, memory_, scratch_;  // words_: bytes of the last payload, and the index of a malformed one
  std::vector<Memory> bodies_;
  ChunkPartition shape_;
  ChunkTable table_{};
  std::vector<const JobEntry*> jobs_;  // of each body
  std::uint32_t step_ = 0;
};

// PowerSGD, which has no payloads: encoding is what comes before the sums (P and Q), decoding what makes results and
// memories of them.
class StepBench : Bench {
 public:
  StepBench(const CodecBench& setup, const CudaDevice& device, const Codec& codec, std::uint64_t count,
            const float* sample)
      : Bench(setup, device, codec, count, sample), with_memory_(codec.feedback().kept()) {
    using powersgd::Tensor;
    std::uint64_t memory = 0, right = 0;
    for (std::uint64_t at = 0; at < count; at += setup.tensor) {
      Tensor& t = tensors_.emplace_back();
      t.matrix = powersgd::matrix_of(std::min(setup.tensor, count - at), codec.parameter_word());
      memory += codec.feedback_elements(t.matrix.count);
      left_ += t.matrix.left();
      right += t.matrix.right();
    }
    factors_ = left_ + right;
    memory_ = take(memory * sizeof(float));
    room_ = take((left_ + 2 * right) * sizeof(float));
    float *residual = reinterpret_cast<float*>(memory_.data()), *p = reinterpret_cast<float*>(room_.data()),
          *q = p + left_, *before = q + right;
    std::uint64_t at = 0;
    for (Tensor& t : tensors_) {
      t = {t.matrix,
           {at, 0},
           sample + at,
           reinterpret_cast<float*>(out_.data()) + at,
           with_memory_ ? residual : nullptr,
           p,
           before,
           q};
      at += t.matrix.count, residual += codec.feedback_elements(t.matrix.count), p += t.matrix.left(),
          q += t.matrix.right(), before += t.matrix.right();
    }
  }

  nlohmann::ordered_json measure() {
    const auto before = [&](Stream s) { step(powersgd::Step::project, s), step(powersgd::Step::project_back, s); };
    const auto behind = [&](Stream s) { step(powersgd::Step::rebuild, s); };
    on_device([&](Stream s) {
      for (int i = 0; i < kSettle; ++i) before(s), behind(s);
      steps_->prepare(codec_, tensors_, 1.0f);  // with what the first steps have found faster
    });
    std::vector<double> encoding, decoding, encode_ratio, decode_ratio;
    const double n = static_cast<double>(count_), encoded = (with_memory_ ? 16 : 8) * n,
                 decoded = (with_memory_ ? 16 : 4) * n, sent = 4 * static_cast<double>(factors_);
    for (int i = 0; i < setup_.repeat; ++i) {
      against_copy(
          encoding, encode_ratio, [&] { return encoded; }, before);
      against_copy(
          decoding, decode_ratio, [&] { return decoded; }, behind);
    }
    return {{"codec", codec_.spec()},
            {"count", count_},
            {"bytes", 4 * count_},
            {"copy_GBps", 1e-9 * copied() / median(copying_)},
            {"encode_us", 1e6 * median(encoding)},
            {"encode_GBps", 1e-9 * encoded / median(encoding)},
            {"encode_vs_copy", median(encode_ratio)},
            {"decode_add_us", 1e6 * median(decoding)},
            {"decode_add_GBps", 1e-9 * decoded / median(decoding)},
            {"decode_add_vs_copy", median(decode_ratio)},
            {"decode_add_one_us", 1e6 * median(decoding)},
            {"decode_add_one_vs_copy", median(decode_ratio)},
            {"encode_bytes", encoded},
            {"decode_add_bytes", decoded},
            {"bits_per_value", 8 * sent / n},
            {"ratio", 4 * n / sent}};
  }

 private:
  void step(powersgd::Step which, Stream s) {
    if (!steps_) {
      steps_ = device_.plugin.make_tensor_steps(device_.index, s);
      steps_->load(codec_, tensors_.size());
      steps_->prepare(codec_, tensors_, 1.0f);
    }
    steps_->start(which, {});
  }

  bool with_memory_;
  std::uint64_t left_ = 0, factors_ = 0;
  Memory memory_, room_;
  std::vector<powersgd::Tensor> tensors_;
  std::unique_ptr<TensorSteps> steps_;
};

}  // namespace

nlohmann::ordered_json measure_on_device(const CodecBench& setup, const CudaDevice& device, const Codec& codec,
                                         std::uint64_t count, const float* sample) {
  if (codec.traits().whole_tensors) return StepBench(setup, device, codec, count, sample).measure();
  const auto kernels = device.plugin.make_codec(codec);
  if (!kernels) return nullptr;
  return DeviceBench(setup, device, codec, *kernels, count, sample).measure();
}

}  // namespace crimp::tools
