#include "mpi/tensor_memory.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/reserve.hpp"
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
  // Keys that nobody asks for any more, among those that are not the program's.
  if (unnamed_extents_ <= 4 * PeriodEvidence::kLongest) return;
  std::erase_if(extents_, [](const auto& entry) {
    return !entry.second.given && entry.first.first.starts_with(CallSequence::kKeyPrefix);
  });
  unnamed_extents_ = 0;
}

void TensorMemory::forget_unnamed(std::string_view prefix) {
  residuals_.forget(Layout::Source::periodic, prefix);
  std::erase_if(largest_, [&](const auto& of) {
    return of.first.source == Layout::Source::periodic && of.first.name.starts_with(prefix);
  });
}

void TensorMemory::forget(const Segment& segment) {
  const Size* const size = size_of(Layout::Source::negotiated, segment);
  const std::string kept = size ? size->kept : other_size(segment);
  for (const bool owner : {false, true}) residuals_.drop({Layout::Source::negotiated, owner, kept});
  auto& known = sizes_[false];
  if (const auto sizes = known.find(segment.key); sizes != known.end()) {
    std::erase_if(sizes->second, [&](const Size& of) { return of.count == segment.count; });
    if (sizes->second.empty()) known.erase(sizes);
  }
  extents_.erase({segment.key, segment.count});
}

// What those beyond kMostSizes are kept as, one in place of another.
std::string TensorMemory::other_size(const Segment& segment) { return segment.key + kOfSize + '*'; }

void TensorMemory::set_extents(const std::string& name, std::uint64_t rows, std::uint64_t cols) {
  powersgd::Extents& known = extents_[{name, rows * cols}];
  known.count = rows * cols;
  known.cols = cols;
  known.given = true;
}

Residual& TensorMemory::find(Layout::Source source, const Segment& segment, bool owner, const ResidualShape& shape,
                             MemoryResource& memory) {
  std::string other;
  Residual& residual = residuals_.find({source, owner, kept_as(source, segment, other)}, shape, memory);
  to_rate_of_now(residual, shape, memory);
  return residual;
}

std::string_view TensorMemory::kept_as(Layout::Source source, const Segment& segment, std::string& other) {
  if (!has_name(source)) return segment.key;
  if (const Size* const size = size_of(source, segment)) return size->kept;
  return other = other_size(segment);
}

// As after another learning rate l: what waits is in units of the gradients that it was made of, and the program will
// multiply it by the new rate instead of the old one. The paper's p = l g + e (EF-SignSGD, algorithm 1) is p / l = g +
// e / l, so e / l is multiplied by the old rate over the new one.
void TensorMemory::to_rate_of_now(Residual& residual, const ResidualShape& shape, MemoryResource& memory) const {
  if (learning_rate_ == 0 || shape.kind == FeedbackKind::average) return;
  if (residual.at_next_rate > 0) to_rate(residual.next_rate, residual, shape, memory);
  to_rate(learning_rate_, residual, shape, memory);
}

void TensorMemory::to_rate(double rate, Residual& residual, const ResidualShape& shape, MemoryResource& memory) {
  const double ratio = residual.learning_rate == 0 ? 1 : residual.learning_rate / rate;
  if (ratio != 1) {
    std::vector<float> block(std::min<std::uint64_t>(shape.count, 65536));
    const double most = shape.codec ? static_cast<double>(shape.codec->traits().max_magnitude) / 4 : 0x1p48;
    residual.next_rate = rate;
    for (std::uint64_t& at = residual.at_next_rate; at < shape.count;) {
      const std::uint64_t n = std::min<std::uint64_t>(block.size(), shape.count - at);
      memory.read(block.data(), residual.values + at, n * sizeof(float));
      for (std::uint64_t i = 0; i < n; ++i)
        block[i] = static_cast<float>(std::clamp(ratio * static_cast<double>(block[i]), -most, most));
      memory.write(residual.values + at, block.data(), n * sizeof(float));
      at += n;
    }
    residual.at_next_rate = 0;
  }
  residual.learning_rate = rate;
}

TensorMemory::Size* TensorMemory::size_of(Layout::Source source, const Segment& segment) {
  std::vector<Size>& sizes = sizes_[source == Layout::Source::named][segment.key];
  for (Size& size : sizes)
    if (size.count == segment.count) return &size;
  if (sizes.size() >= kMostSizes) return nullptr;
  std::string kept = sizes.empty() ? segment.key : segment.key + kOfSize + std::to_string(segment.count);
  return &sizes.emplace_back(segment.count, std::move(kept));
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

std::vector<Residual*> TensorMemory::held_sums(const Layout& layout, MemoryResource& memory) {
  std::vector<Residual*> all;
  if (!residuals_.holds_sums()) return all;
  std::string other;
  for (const Segment& segment : layout.segments) {
    all.push_back(nullptr);
    if (!segment.summed()) continue;
    const ResidualKey key{layout.source, true, kept_as(layout.source, segment, other)};
    const std::optional<ResidualShape> shape = residuals_.shape_of(key);
    if (!shape || shape->count != segment.count) continue;
    all.back() = &residuals_.find(key, *shape, memory);
    residuals_.drop_when_empty(key);
    to_rate_of_now(*all.back(), *shape, memory);
  }
  return all;
}

std::vector<powersgd::Extents*> TensorMemory::extents_of(const Layout& layout) {
  std::vector<powersgd::Extents*> all;
  for (const Segment& segment : layout.segments) {
    all.push_back(nullptr);
    if (!segment.summed() || segment.key.empty()) continue;
    const auto [at, made] = extents_.try_emplace({segment.key, segment.count});
    unnamed_extents_ += made && segment.key.starts_with(CallSequence::kKeyPrefix);
    all.back() = &at->second;
  }
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
  // Exchanges are as long as these say, on all ranks: what else there is no memory for is this rank's own.
  insist([&] {
    for (const SavedExtents& e : extents) {
      powersgd::Extents& known = extents_[{e.name, e.count}];
      if (known.given && (!e.given || known.cols != e.cols)) continue;  // the program has said otherwise
      known = {e.count, e.cols, e.q_cols, e.calls, e.given};
    }
  });
  // The sizes have the names that they were saved under.
  for (auto& known : sizes_) known.clear();
  for (const bool plain : {true, false})
    for (const SavedTensor& t : tensors) {
      const std::string_view name = name_of(t.name);
      const bool of_size = t.name == std::string(name) + kOfSize + std::to_string(t.count);  // else a program's own
      if (!has_name(t.source) || t.owner || (name == t.name) != plain || (!plain && !of_size)) continue;
      std::vector<Size>& sizes = sizes_[t.source == Layout::Source::named][std::string(name)];
      if (sizes.size() < kMostSizes) sizes.emplace_back(t.count, t.name);
    }
  residuals_.load(std::move(tensors));
  std::erase_if(largest_, [](const auto& of) { return has_name(of.first.source); });
}

bool TensorMemory::fell(Layout::Source source, const Segment& segment, double largest, double jump) {
  const bool sized = has_name(source);
  Size* const size = sized ? size_of(source, segment) : nullptr;
  if (sized && !size) return false;
  double& last = size ? size->largest : largest_[{source, false, segment.key}];
  return std::exchange(last, largest) > jump * largest;
}

}  // namespace crimp
