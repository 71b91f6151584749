#include "schedule/layout_cache.hpp"

#include <cstring>

#include "core/digest.hpp"

namespace crimp {
namespace {

std::uint64_t digest_of(std::span<const LayoutCache::Tensor> tensors) {
  std::uint64_t sum = tensors.size();
  for (const auto& t : tensors) sum = (sum ^ t.count) * 0x9e3779b97f4a7c15 + digest(t.name);
  return sum;
}

// Tensors without elements have no segment.
bool same(std::span<const LayoutCache::Tensor> tensors, const Layout& layout) {
  auto segment = layout.segments.begin();
  for (const auto& t : tensors) {
    if (t.count == 0) continue;
    if (segment == layout.segments.end() || segment->count != t.count || segment->key != t.name) return false;
    ++segment;
  }
  return segment == layout.segments.end();
}

}  // namespace

std::shared_ptr<const Layout> LayoutCache::find(std::span<const Tensor> tensors) const {
  const std::uint64_t digest = digest_of(tensors);
  std::lock_guard lock(mutex_);
  const auto* const known = layouts_.find(digest);
  return known && same(tensors, **known) ? *known : nullptr;
}

void LayoutCache::put(std::span<const Tensor> tensors, std::shared_ptr<const Layout> layout) {
  const std::uint64_t digest = digest_of(tensors);
  std::lock_guard lock(mutex_);
  layouts_.put(digest, std::move(layout));
}

}  // namespace crimp
