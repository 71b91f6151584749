#include "collective/residual.hpp"

#include <cstring>

#include "core/error.hpp"

namespace crimp {
namespace {

std::uint64_t array_bytes(const ResidualShape& shape) {
  return shape.count * static_cast<std::uint64_t>(FeedbackPolicy{shape.kind}.arrays()) * sizeof(float);
}

// The first bytes of `from` in new memory; zeros behind them.
Memory copy_of(const Memory& from, std::uint64_t used, std::uint64_t bytes, MemoryResource& to) {
  Memory made(bytes, to);
  if (from.resource() == &host_memory()) {
    to.write(made.data(), from.data(), used);
  } else if (&to == &host_memory()) {
    from.resource()->read(made.data(), from.data(), used);
  } else {
    const Memory between(used);
    from.resource()->read(between.data(), from.data(), used);
    to.write(made.data(), between.data(), used);
  }
  return made;
}

}  // namespace

Residual& ResidualStore::find(ResidualKey key, const ResidualShape& shape, MemoryResource& memory) {
  const std::uint64_t bytes = shape.elements * sizeof(float);
  auto it = tensors_.find(key);
  if (it != tensors_.end() && it->second.call == call_)
    throw Error(ErrorCode::layout_invalid,
                "the tensor '" + std::string(key.name) +
                    "' is in one call twice; what is kept of a tensor belongs to one place in a call");
  if (it != tensors_.end() && (it->second.shape.count != shape.count || it->second.shape.kind != shape.kind)) {
    tensors_.erase(it);
    it = tensors_.end();
  }
  if (it == tensors_.end()) {
    const Owned& owned = new_.emplace_back(Owned{key.source, key.owner, std::string(key.name)});
    it = tensors_.emplace(owned, Tensor{{}, shape, Memory(bytes, memory), call_}).first;
  } else {
    Tensor& t = it->second;
    const bool same_layout = t.shape.elements == shape.elements && t.shape.codec == shape.codec;
    if (!same_layout || t.memory.resource() != &memory)
      t.memory = copy_of(t.memory, same_layout ? bytes : array_bytes(shape), bytes, memory);
    t.shape = shape;
    t.call = call_;
  }
  it->second.residual.values = reinterpret_cast<float*>(it->second.memory.data());
  return it->second.residual;
}

void ResidualStore::drop_new() {
  for (const Owned& key : new_) tensors_.erase(key);
  new_.clear();
}

void ResidualStore::forget(Layout::Source source, std::string_view prefix) {
  std::erase_if(tensors_, [&](const auto& entry) {
    return entry.first.source == source && entry.first.name.starts_with(prefix);
  });
}

std::uint64_t ResidualStore::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [key, tensor] : tensors_) sum += tensor.memory.bytes();
  return sum;
}

}  // namespace crimp
