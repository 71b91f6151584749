#include "mpi/tensor_memory.hpp"

#include <algorithm>
#include <bit>

#include "schedule/call_sequence.hpp"

namespace crimp {
namespace {

template <class Find>
std::vector<Residual*> each_summed(const Layout& layout, Find&& find) {
  std::vector<Residual*> all;
  all.reserve(layout.segments.size());
  for (const Segment& segment : layout.segments) all.push_back(segment.summed() ? &find(segment) : nullptr);
  return all;
}

}  // namespace

void TensorMemory::begin_call() {
  residuals_.begin_call();
  // Keys that nobody asks for any more.
  if (extents_.size() > 4 * CallSequence::kLongestPeriod)
    std::erase_if(extents_, [](const auto& entry) { return !entry.second.given; });
}

void TensorMemory::forget_unnamed(std::string_view prefix) {
  residuals_.forget(Layout::Source::periodic, prefix);
  std::erase_if(largest_, [&](const auto& of) {
    return of.first.source == Layout::Source::periodic && of.first.name.starts_with(prefix);
  });
}

void TensorMemory::set_extents(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
  powersgd::Extents& known = extents_[{name, rows * cols}];
  known.count = rows * cols;
  known.cols = cols;
  known.given = true;
}

// As after another learning rate l: what waits is in units of the gradients that it was made of, and the program will
// multiply it by the new rate instead of the old one. The paper's p = l g + e (EF-SignSGD, algorithm 1) is p / l = g +
// e / l, so e / l is multiplied by the old rate over the new one.
Residual& TensorMemory::find(Layout::Source source, const Segment& segment, bool owner, const ResidualShape& shape,
                             MemoryResource& memory) {
  const std::string name = kept_name(source, segment);
  Residual& residual = residuals_.find({source, owner, name}, shape, memory);
  if (learning_rate_ == 0 || shape.kind == FeedbackKind::average) return residual;
  const double ratio = residual.learning_rate == 0 ? 1 : residual.learning_rate / learning_rate_;
  residual.learning_rate = learning_rate_;
  if (ratio == 1) return residual;
  std::vector<float> block(std::min<std::uint64_t>(shape.count, 65536));
  for (std::uint64_t at = 0; at < shape.count; at += block.size()) {
    const std::uint64_t n = std::min<std::uint64_t>(block.size(), shape.count - at);
    memory.read(block.data(), residual.values + at, n * sizeof(float));
    for (std::uint64_t i = 0; i < n; ++i)
      block[i] = static_cast<float>(std::clamp(ratio * static_cast<double>(block[i]), -0x1p48, 0x1p48));
    memory.write(residual.values + at, block.data(), n * sizeof(float));
  }
  return residual;
}

std::string TensorMemory::kept_name(Layout::Source source, const Segment& segment) {
  if (source != Layout::Source::negotiated) return segment.key;
  std::vector<std::uint64_t>& sizes = sizes_[segment.key];
  auto at = std::find(sizes.begin(), sizes.end(), segment.count);
  if (at == sizes.end() && sizes.size() < kMostSizes) sizes.push_back(segment.count), at = sizes.end() - 1;
  if (at == sizes.begin() || at == sizes.end()) return segment.key;
  return segment.key + '\x1f' + std::to_string(segment.count);
}

std::vector<Residual*> TensorMemory::of_values(const Layout& layout, const Codec& codec, MemoryResource& memory) {
  return each_summed(layout, [&](const Segment& segment) -> Residual& {
    ResidualShape shape = ResidualShape::of(codec, segment.count);
    if (const auto known = extents_.find({segment.key, segment.count});
        codec.traits().whole_tensors && known != extents_.end())
      shape.elements = powersgd::feedback_elements(segment.count, codec, &known->second);
    return find(layout.source, segment, false, shape, memory);
  });
}

// As long as the tensor, though a rank owns a share of it: shares move when tensors are merged otherwise. Untouched
// pages cost nothing.
std::vector<Residual*> TensorMemory::of_sums(const Layout& layout, const Codec& codec, MemoryResource& memory) {
  return each_summed(layout, [&](const Segment& segment) -> Residual& {
    return find(layout.source, segment, true,
                {segment.count, FeedbackKind::residual, segment.count + codec.state_elements(segment.count), &codec},
                memory);
  });
}

std::vector<powersgd::Extents*> TensorMemory::extents_of(const Layout& layout) {
  std::vector<powersgd::Extents*> all;
  for (const Segment& segment : layout.segments)
    all.push_back(segment.summed() && !segment.key.empty() ? &extents_[{segment.key, segment.count}] : nullptr);
  return all;
}

std::vector<SavedExtents> TensorMemory::saved_extents() const {
  std::vector<SavedExtents> all;
  for (const auto& [key, e] : extents_)
    if (e.count == key.second && (e.cols || e.calls) && !key.first.starts_with(CallSequence::kKeyPrefix))
      all.push_back({key.first, e.count, e.cols, e.q_cols, e.calls, e.given});
  return all;
}

void TensorMemory::load(std::vector<SavedTensor> tensors, const std::vector<SavedExtents>& extents) {
  residuals_.load(std::move(tensors));
  std::erase_if(largest_, [](const auto& of) { return has_name(of.first.source); });
  for (const SavedExtents& e : extents) {
    powersgd::Extents& known = extents_[{e.name, e.count}];
    if (known.given && (!e.given || known.cols != e.cols)) continue;  // the program has said otherwise
    known = {e.count, e.cols, e.q_cols, e.calls, e.given};
  }
}

bool TensorMemory::fell(Layout::Source source, const Segment& segment, double largest, double jump) {
  double& before = largest_[{source, false, segment.key}];
  const bool fallen = before > jump * largest;
  before = largest;
  return fallen;
}

bool TensorMemory::swings(const Segment& segment, double largest) {
  Swing& of = swings_[segment.key];
  const bool falls = of.largest > kSwing * largest;
  of.largest = largest;
  of.falls = static_cast<std::uint16_t>(of.falls << 1 | falls);
  return falls && std::popcount(of.falls) >= kOften;
}

}  // namespace crimp
