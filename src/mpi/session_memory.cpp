// What a session keeps of tensors besides the codecs' residuals: momentum where nothing is compressed, clipping, learning rates, and what programs say of codecs.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "codec/feedback.hpp"
#include "mpi/mpi_agreement.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "core/float_environment.hpp"
#include "core/log.hpp"

namespace crimp {

const Codec* Session::codec_of(const Layout& layout, const Segment& segment) const {
  if (layout.source != Layout::Source::named && layout.source != Layout::Source::negotiated) return runtime_.codec().get();
  if (const auto said = segment.key.empty() ? std::nullopt : codecs_.find(segment.key)) return *said;
  return runtime_.codec_for(segment.key, segment.count);
}

const Codec* Session::momentum_of(const Codec* codec) const {
  if (!codec) codec = runtime_.momentum_codec();  // what is summed exactly shares the momentum of the others
  return codec && codec->memory().kind == MemoryKind::momentum && runtime_.settings().error_feedback ? codec : nullptr;
}

void Session::tell_no_momentum(const Codec& codec) {
  if (std::exchange(told_no_momentum_, true) || rank_ != 0) return;
  log(LogLevel::warn, "calls whose tensors are not known have no momentum, which codec " + codec.spec() +
                          " has for all others: their results are plain sums. Name the tensors (crimp_allreduce, Horovod), or leave momentum to the optimizer (memory=none)");
}

// What is accumulated of this rank's gradients (Lin et al., section 3.2); `values` are float32 copies of the call's.
void Session::clip(const CallParts& parts, float* values) const {
  for (const auto& part : parts)
    for (const Segment& segment : part->layout.segments) {
      const float most = part->call.codec->memory().clip;
      if (!(most > 0.0f) || segment.use == Segment::Use::skip) continue;
      float* const x = values + segment.offset;
      const double gain = clip_gain(Dtype::f32, x, segment.count, static_cast<double>(most) / std::sqrt(size_));
      for (std::uint64_t i = 0; i < segment.count && gain != 1.0; ++i) x[i] *= static_cast<float>(gain);
    }
}

// As after another learning rate l: what waits is in units of the gradients that it was made of, and the program will multiply it by the new rate instead of
// the old one. The paper's p = l g + e (EF-SignSGD, algorithm 1) is p / l = g + e / l, so e / l is multiplied by the old rate over the new one.
Residual& Session::find_residual(const ResidualKey& key, const ResidualShape& shape, Allocator& memory) {
  Residual& residual = residuals_.find(key, shape, memory);
  if (learning_rate_ == 0 || shape.kind == MemoryKind::average) return residual;
  const double ratio = residual.learning_rate == 0 ? 1 : residual.learning_rate / learning_rate_;
  residual.learning_rate = learning_rate_;
  if (ratio == 1) return residual;
  std::vector<float> block(std::min<std::uint64_t>(shape.count, 65536));
  for (std::uint64_t at = 0; at < shape.count; at += block.size()) {
    const std::uint64_t n = std::min<std::uint64_t>(block.size(), shape.count - at);
    memory.read(block.data(), residual.values + at, n * sizeof(float));
    for (std::uint64_t i = 0; i < n; ++i) block[i] = static_cast<float>(std::clamp(ratio * static_cast<double>(block[i]), -0x1p48, 0x1p48));
    memory.write(residual.values + at, block.data(), n * sizeof(float));
  }
  return residual;
}

bool Session::sum_with_momentum(const AllreduceRequest& request, const Layout& layout, const std::vector<const Codec*>& momenta, Pass* why) {
  if (std::all_of(momenta.begin(), momenta.end(), [](const Codec* c) { return !c; })) return false;
  CallValues values(request, scratch_);
  std::vector<ExactTensor> tensors;
  std::span<char> packed;
  try {
    residuals_.begin_call();
    const std::size_t bytes = request.count * size_of(request.dtype);
    values.enter({}, Arena::padded(bytes));
    // Padding too, so that a rank that must leave the call to MPI meets the same count.
    for (std::size_t s = 0; s < layout.segments.size(); ++s) {
      ExactTensor& t = tensors.emplace_back(ExactTensor{&layout.segments[s], momenta[s]});
      if (t.momentum) t.memory = find_residual({layout.source, false, t.segment->key}, ResidualShape::of(*t.momentum, t.segment->count), host_memory()).values;
    }
    if (!values.direct()) values.bodies().reserve(bytes);
    packed = {reinterpret_cast<char*>(values.packed().take(bytes)), bytes};
  } catch (const std::exception& e) {
    log(LogLevel::warn, std::string(e.what()) + "; this rank's part of the call has no momentum");
    *why = Pass::memory;
    return false;
  }
  sum_exactly(request, tensors, values, packed, size_);
  values.leave(layout);
  residuals_.keep();
  runtime_.report.passed(*why);
  return true;
}

bool Session::allreduce_small(const AllreduceRequest& request) {
  const FloatEnvironment environment;
  std::vector<const Codec*> momenta;
  for (const Segment& segment : request.layout->segments) {
    const bool known = segment.use == Segment::Use::sum && !segment.key.empty();
    momenta.push_back(known ? momentum_of(codec_of(*request.layout, segment)) : nullptr);
  }
  Pass why = Pass::small;
  return sum_with_momentum(request, *request.layout, momenta, &why);
}

namespace {

std::string quoted(const char* text) { return text ? "'" + std::string(text) + "'" : std::string("NULL"); }

}  // namespace

void check_extents(const char* name, std::uint64_t rows, std::uint64_t cols) {
  if (!name || !*name) throw Error(ErrorCode::argument_invalid, "crimp_set_extents was given no name; it is the tensor's name in crimp_allreduce");
  if (rows == 0 || cols == 0 || rows > UINT64_MAX / cols)
    throw Error(ErrorCode::argument_invalid, "crimp_set_extents was given " + std::to_string(rows) + " x " + std::to_string(cols) + " for '" + name +
                                                 "'; legal are extents from 1 whose product is the tensor's element count");
}

void Session::set_algorithm(const char* name) {
  require_equal(comm_, rank_, size_, "what crimp_set_algorithm is given", quoted(name));
  check_algorithm("the argument of crimp_set_algorithm", name ? name : "");
  chooser_.force(name);
}

void Session::set_extents(const char* name, std::uint64_t rows, std::uint64_t cols) {
  require_equal(comm_, rank_, size_, "what crimp_set_extents is given", "(" + quoted(name) + ", " + std::to_string(rows) + ", " + std::to_string(cols) + ")");
  check_extents(name, rows, cols);
  powersgd::Extents& known = extents_[{name, rows * cols}];
  known.count = rows * cols;
  known.cols = cols;
  known.given = true;
}

void Session::set_codec(const char* pattern, const char* spec) {
  require_equal(comm_, rank_, size_, "what crimp_set_codec is given", "(" + quoted(pattern) + ", " + quoted(spec) + ")");
  if (!pattern || !*pattern)
    throw Error(ErrorCode::argument_invalid, "crimp_set_codec was given no pattern; legal is a shell pattern over tensors' names, as in \"*.weight\" or \"*\"");
  codecs_.set(pattern, spec);
}

void Session::set_learning_rate(double rate) {
  char text[32];
  char* const end = std::to_chars(text, text + sizeof text - 1, rate).ptr;
  *end = 0;
  require_equal(comm_, rank_, size_, "the learning rate that crimp_set_learning_rate is given", text);
  if (!(rate >= 1e-12 && rate <= 1e12))
    throw Error(ErrorCode::argument_invalid, std::string("crimp_set_learning_rate was given the learning rate ") + text + "; legal is 1e-12 to 1e12");
  learning_rate_ = rate;
}

}  // namespace crimp
