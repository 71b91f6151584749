#include "collective/residual.hpp"

#include <algorithm>
#include <cstring>

#include "codec/byte_residual.hpp"
#include "core/digest.hpp"
#include "core/error.hpp"

namespace crimp {
namespace {

std::uint64_t array_bytes(Encoding encoding, const ResidualShape& shape) {
  return encoded_bytes(encoding, shape.kind, shape.count);
}
std::uint64_t behind(const ResidualShape& shape) {
  return (shape.elements - shape.count * static_cast<std::uint64_t>(FeedbackPolicy{shape.kind}.arrays())) *
         sizeof(float);
}

std::string state_owner(const ResidualShape& shape) {
  return shape.codec && behind(shape) ? shape.codec->spec() : std::string();
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

// To memory that is zeros, without touching more of it than has values.
void write_not_zero(MemoryResource& to, std::byte* at, const std::byte* from, std::uint64_t bytes) {
  constexpr std::uint64_t kPage = 4096;
  for (std::uint64_t done = 0; done < bytes; done += kPage) {
    const std::uint64_t n = std::min(kPage, bytes - done);
    const std::byte* const page = from + done;
    if (std::any_of(page, page + n, [](std::byte b) { return b != std::byte{0}; })) to.write(at + done, page, n);
  }
}

}  // namespace

void ResidualStore::Floats::begin() {
  if (parts_.size() > 1) parts_.clear();  // the next call has one part that is long enough
  used_ = 0;
}

float* ResidualStore::Floats::take(std::uint64_t count) {
  const std::uint64_t bytes = Arena::padded(count * sizeof(float));
  if (parts_.empty() || parts_.back().bytes() - used_ < bytes) {
    parts_.emplace_back(std::max(bytes, parts_.empty() ? all_ : bytes));
    used_ = 0;
    std::uint64_t all = 0;
    for (const Memory& part : parts_) all += part.bytes();
    all_ = std::max(all_, all);
  }
  std::byte* const at = parts_.back().data() + used_;
  used_ += bytes;
  return reinterpret_cast<float*>(at);
}

void ResidualStore::begin_call() {
  ++call_;
  leave_unsettled();
  for (const Owned& key : left_)
    if (const auto at = tensors_.find(key); at != tensors_.end() && at->second.residual.owned.empty()) erase(at);
  left_.clear();
  if (rounds_) floats_.begin();
}

void ResidualStore::leave_unsettled() {
  for (Opened& of : opened_) {
    of.tensor->residual.learning_rate = of.learning_rate;
    of.tensor->residual.owned = std::move(of.owned);
  }
  opened_.clear();
}

// Floats of a residual in bytes.
void ResidualStore::open(Tensor& t) {
  float* const values = floats_.take(t.shape.elements);
  byte_residual::expand(t.memory.data(), t.shape.count, values, workers_);
  std::memcpy(values + t.shape.count, t.memory.data() + array_bytes(t.encoding, t.shape), behind(t.shape));
  opened_.push_back({&t, t.residual.learning_rate, t.residual.owned});
  t.residual.values = values;
}

// A new tensor's. What is behind the arrays belongs to the codec that made it.
void ResidualStore::restore(Tensor& t, const SavedTensor& saved) const {
  const std::uint64_t arrays = array_bytes(t.encoding, t.shape), state = behind(t.shape);
  MemoryResource& to = *t.memory.resource();
  const std::byte* from = saved.payload.data();
  Memory changed;
  if (saved.encoding != t.encoding) {
    changed = Memory(arrays);
    if (t.encoding == Encoding::float32)
      byte_residual::expand(from, saved.count, reinterpret_cast<float*>(changed.data()));
    else
      byte_residual::round(reinterpret_cast<const float*>(from), saved.count, {t.draws, ~std::uint32_t{0}, rank_},
                           changed.data());
    from = changed.data();
  }
  if (saved.owner) write_not_zero(to, t.memory.data(), from, arrays);
  else to.write(t.memory.data(), from, arrays);
  const std::uint64_t saved_arrays = encoded_bytes(saved.encoding, saved.kind, saved.count);
  if (state && t.codec == saved.codec && saved.payload.bytes() == saved_arrays + state)
    to.write(t.memory.data() + arrays, saved.payload.data() + saved_arrays, state);
  if (saved.owner) t.residual.owned.leave_all(saved.count);
  t.residual.turns = saved.turns;
  t.residual.learning_rate = saved.learning_rate;
  t.roundings = saved.roundings;
}

Residual& ResidualStore::find(ResidualKey key, const ResidualShape& shape, MemoryResource& memory) {
  const bool rounds = rounds_ && shape.kind == FeedbackKind::residual && &memory == &host_memory();
  const Encoding encoding = rounds ? Encoding::bytes : Encoding::float32;
  const std::uint64_t bytes = array_bytes(encoding, shape) + behind(shape);
  auto it = tensors_.find(key);
  if (it != tensors_.end() && it->second.call == call_)
    throw Error(ErrorCode::layout_invalid,
                "the tensor '" + std::string(key.name) +
                    "' is in one call twice; what is kept of a tensor belongs to one place in a call");
  if (it != tensors_.end() && (it->second.shape.count != shape.count || it->second.shape.kind != shape.kind)) {
    erase(it);
    it = tensors_.end();
  }
  if (it == tensors_.end()) {
    const Owned& owned = new_.emplace_back(Owned{key.source, key.owner, std::string(key.name)});
    it = tensors_
             .emplace(owned, Tensor{{},
                                    shape,
                                    encoding,
                                    0,
                                    rounds ? digest(key.name) : 0,
                                    state_owner(shape),
                                    Memory(bytes, memory),
                                    call_})
             .first;
    owners_ += key.owner;
    // An owner's is as long as the tensor, of which it owns a share.
    if (Memory& made = it->second.memory; key.owner && made.data()) memory.expect_few(made.data(), made.bytes());
    if (!waiting_.empty())
      if (const auto saved = waiting_.find(key);
          saved != waiting_.end() && saved->second.count == shape.count && saved->second.kind == shape.kind)
        restore(it->second, saved->second);
  } else {
    Tensor& t = it->second;
    // Another codec's, as fp16's that stands in for one, may lie as it is, too.
    const bool same_layout = t.shape.elements == shape.elements &&
                             (t.shape.codec == shape.codec || (behind(t.shape) == 0 && behind(shape) == 0));
    if (t.encoding != encoding) {
      // It moves between host memory, where it is kept in bytes, and a device's: what is behind its arrays stays there.
      Memory floats(array_bytes(Encoding::float32, shape));
      if (t.encoding == Encoding::bytes)
        byte_residual::expand(t.memory.data(), shape.count, reinterpret_cast<float*>(floats.data()));
      else t.memory.resource()->read(floats.data(), t.memory.data(), floats.bytes());
      Memory made(bytes, memory);
      if (rounds)
        byte_residual::round(reinterpret_cast<const float*>(floats.data()), shape.count,
                             {t.draws = digest(key.name), t.roundings++, rank_}, made.data());
      else memory.write(made.data(), floats.data(), floats.bytes());
      t.memory = std::move(made);
    } else if (!same_layout || t.memory.resource() != &memory) {
      t.memory = copy_of(t.memory, same_layout ? bytes : array_bytes(encoding, shape), bytes, memory);
    }
    if (t.shape.codec != shape.codec || t.shape.elements != shape.elements) t.codec = state_owner(shape);
    t.encoding = encoding;
    t.shape = shape;
    t.call = call_;
  }
  if (rounds) open(it->second);
  else it->second.residual.values = reinterpret_cast<float*>(it->second.memory.data());
  return it->second.residual;
}

std::optional<ResidualShape> ResidualStore::shape_of(const ResidualKey& key) const {
  if (const auto at = tensors_.find(key); at != tensors_.end()) return at->second.shape;
  if (const auto saved = waiting_.find(key); saved != waiting_.end())
    return ResidualShape{saved->second.count, saved->second.kind, saved->second.count};
  return {};
}

void ResidualStore::drop_when_empty(const ResidualKey& key) {
  left_.push_back({key.source, key.owner, std::string(key.name)});
}

void ResidualStore::settle() {
  for (const Opened& of : opened_) {
    Tensor& t = *of.tensor;
    const float* const values = t.residual.values;
    byte_residual::round(values, t.shape.count, {t.draws, t.roundings++, rank_}, t.memory.data(), workers_);
    std::memcpy(t.memory.data() + array_bytes(t.encoding, t.shape), values + t.shape.count, behind(t.shape));
  }
  opened_.clear();
}

void ResidualStore::keep() {
  if (!waiting_.empty())
    for (const Owned& key : new_)
      if (const auto saved = waiting_.find(key); saved != waiting_.end()) {
        const auto made = tensors_.find(key);
        restored_ += !key.owner;
        unfit_ += !key.owner && made != tensors_.end() &&
                  (made->second.shape.count != saved->second.count || made->second.shape.kind != saved->second.kind);
        waiting_owners_ -= key.owner;
        waiting_.erase(saved);
      }
  new_.clear();
}

void ResidualStore::drop_new() {
  leave_unsettled();
  for (const Owned& key : new_)
    if (const auto at = tensors_.find(key); at != tensors_.end()) erase(at);
  new_.clear();
}

void ResidualStore::drop(const ResidualKey& key) {
  leave_unsettled();
  if (const auto at = tensors_.find(key); at != tensors_.end()) erase(at);
}

void ResidualStore::forget(Layout::Source source, std::string_view prefix) {
  leave_unsettled();
  erase_if([&](const Owned& key) { return key.source == source && key.name.starts_with(prefix); });
}

std::uint64_t ResidualStore::bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [key, tensor] : tensors_) sum += tensor.memory.bytes();
  return sum;
}

ResidualStore::Loaded ResidualStore::loaded() const {
  const auto waiting = std::count_if(waiting_.begin(), waiting_.end(), [](const auto& of) { return !of.first.owner; });
  return {restored_, unfit_, static_cast<std::uint64_t>(waiting)};
}

std::vector<TensorView> ResidualStore::saved() const {
  std::vector<TensorView> all;
  all.reserve(tensors_.size() + waiting_.size());
  for (const auto& [key, t] : tensors_)
    if (has_name(key.source))
      all.push_back({key.source, key.owner, key.name, t.shape.kind, t.encoding, t.shape.count, t.residual.turns,
                     t.roundings, t.residual.learning_rate, t.codec, &t.memory});
  for (const auto& [key, s] : waiting_) {
    if (tensors_.contains(key)) continue;  // asked for by a call that has not kept it yet
    all.push_back({key.source, key.owner, key.name, s.kind, s.encoding, s.count, s.turns, s.roundings, s.learning_rate,
                   s.codec, &s.payload});
  }
  return all;
}

std::size_t ResidualStore::unnamed() const {
  return static_cast<std::size_t>(
      std::count_if(tensors_.begin(), tensors_.end(), [](const auto& entry) { return !has_name(entry.first.source); }));
}

void ResidualStore::load(std::vector<SavedTensor> tensors) {
  std::unordered_map<Owned, SavedTensor, Hash, Equal> waiting;
  waiting.reserve(tensors.size());
  for (SavedTensor& t : tensors) {
    Owned key{t.source, t.owner, t.name};
    waiting.insert_or_assign(std::move(key), std::move(t));
  }
  leave_unsettled();
  erase_if([](const Owned& key) { return has_name(key.source); });
  waiting_ = std::move(waiting);
  waiting_owners_ = static_cast<std::size_t>(
      std::count_if(waiting_.begin(), waiting_.end(), [](const auto& of) { return of.first.owner; }));
  restored_ = unfit_ = 0;
  new_.clear();
}

}  // namespace crimp
