#include "horovod/gate.hpp"

#include <algorithm>
#include <bit>

namespace crimp::horovod {
namespace {
constexpr std::size_t kStatusBits = 3;
}

void Gate::forget() {
  tensors_.clear();
  by_name_.clear();
  members_.clear();
  cache_version_ = ~0ull;
  open_ = holding_ = false;
}

void Gate::reduced(const std::string& name, std::uint64_t bytes) {
  if (plan_.off()) return;
  open_ = holding_ = false;
  const auto [it, added] = by_name_.emplace(name, tensors_.size());
  if (added) {
    tensors_.push_back({name, bytes});
    members_.clear();  // a new tensor: its place must be recorded before anything is held again
  }
  Tensor& tensor = tensors_[it->second];
  ++tensor.reductions;
  if (members_.empty()) return make_plan();
  if (tensor.group < 0) return;
  if (tensor.done)  // a new step began before the last one was complete
    for (Tensor& t : tensors_) t.done = false;
  tensor.done = true;
  while (current_ < members_.size() && done(current_)) ++current_;
  if (current_ < members_.size()) return;
  for (Tensor& t : tensors_) t.done = false;
  current_ = 0;
}

bool Gate::done(std::size_t group) const {
  return std::all_of(members_[group].begin(), members_[group].end(), [&](std::size_t t) { return tensors_[t].done || tensors_[t].excluded; });
}

// At the end of a step: when all tensors that are reduced in every step have been reduced equally often. Others, such as a metric once
// an epoch, are never held.
void Gate::make_plan() {
  std::uint32_t most = 0;
  for (const Tensor& t : tensors_) most = std::max(most, t.reductions);
  if (most < kRecorded) return;
  std::vector<std::size_t> planned;
  std::vector<std::uint64_t> bytes;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& t = tensors_[i];
    t.group = -1;
    if (t.excluded || t.bytes <= 8) continue;  // single numbers are metrics
    if (t.reductions + 1 == most) return;      // in the middle of a step
    if (t.reductions != most) continue;
    planned.push_back(i);
    bytes.push_back(t.bytes);
  }
  if (planned.empty()) return;
  const auto groups = plan_.groups(bytes);
  members_.assign(groups.back() + 1, {});
  for (std::size_t i = 0; i < planned.size(); ++i) {
    tensors_[planned[i]].group = static_cast<int>(groups[i]);
    members_[groups[i]].push_back(planned[i]);
  }
  for (Tensor& t : tensors_) t.done = false;
  current_ = 0;
  cache_version_ = ~0ull;
}

void Gate::read_bits(const ResponseCache& cache) {
  if (cache_version_ == cache.version()) return;
  cache_version_ = cache.version();
  tensor_of_bit_.assign(cache.bits(), -1);
  for (std::size_t b = 0; b < cache.bits(); ++b)
    if (const Response* r = cache.peek(b))
      if (const auto it = by_name_.find(r->names.front()); it != by_name_.end()) tensor_of_bit_[b] = static_cast<int>(it->second);
}

void Gate::hold(std::span<std::int64_t> own_bits, const ResponseCache& cache, Clock::time_point now) {
  constexpr std::int64_t calm = (1 << kStatusBits) - 1;
  if (members_.empty() || own_bits.empty() || (own_bits[0] & calm) != calm || open_) return;
  read_bits(cache);
  const std::size_t words = std::min(own_bits.size(), (cache.bits() + kStatusBits + 63) / 64);
  const auto is_set = [&](std::size_t bit) { return (own_bits[bit / 64] >> (bit % 64)) & 1; };

  std::size_t missing = 0;
  for (const std::size_t t : members_[current_]) missing += !tensors_[t].done && !tensors_[t].excluded;
  bool any = false;
  for (std::size_t b = 0; b < cache.bits() && (b + kStatusBits) / 64 < words; ++b) {
    const int t = tensor_of_bit_[b];
    if (t < 0 || tensors_[static_cast<std::size_t>(t)].group < 0 || tensors_[static_cast<std::size_t>(t)].excluded || !is_set(b + kStatusBits))
      continue;
    any = true;
    const Tensor& tensor = tensors_[static_cast<std::size_t>(t)];
    if (tensor.group == static_cast<int>(current_) && !tensor.done) --missing;
  }
  if (!any) {
    holding_ = false;
    return;
  }
  if (!holding_) held_since_ = now;
  holding_ = true;
  if (now - held_since_ > bound_) {
    ++timeouts_;
    open_ = true;
    for (const std::size_t t : members_[current_]) {
      Tensor& tensor = tensors_[t];
      bool ready = tensor.done;
      for (std::size_t b = 0; b < tensor_of_bit_.size() && !ready; ++b)
        ready = tensor_of_bit_[b] == static_cast<int>(t) && (b + kStatusBits) / 64 < words && is_set(b + kStatusBits);
      if (!ready && ++tensor.missed == 2) tensor.excluded = true;
    }
    return;
  }
  for (std::size_t b = 0; b < cache.bits() && (b + kStatusBits) / 64 < words; ++b) {
    const int t = tensor_of_bit_[b];
    if (t < 0) continue;
    const Tensor& tensor = tensors_[static_cast<std::size_t>(t)];
    if (tensor.group < 0 || tensor.excluded) continue;
    const bool passes = missing == 0 && tensor.group == static_cast<int>(current_);
    if (!passes) own_bits[(b + kStatusBits) / 64] &= ~(std::int64_t{1} << ((b + kStatusBits) % 64));
  }
}

}  // namespace crimp::horovod
