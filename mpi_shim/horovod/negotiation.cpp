#include "horovod/negotiation.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "core/environment.hpp"

namespace crimp::horovod {
namespace {

constexpr std::uint64_t kUncached = 2;
constexpr std::int64_t kPadBytes = 16;

std::int64_t element_bytes(const Response& r) {
  switch (r.tensor_type) {
    case 6: return 2;
    case 5:
    case 8: return 8;
    case 2:
    case 3: return 2;
    case 4:
    case 7: return 4;
    default: return 1;
  }
}

bool on_gpu(const Response& r) { return !r.devices.empty() && r.devices.front() >= 0; }

// Whether data_call() is told of it: a sum of floating-point values.
bool is_told(const Response& r) {
  return r.type == Response::allreduce && r.reduce_op <= 1 && r.tensor_type >= 6 && r.tensor_type <= 8;
}

bool is(const Response& r, Dtype type) {
  return (r.tensor_type == 6 && type == Dtype::f16) || (r.tensor_type == 7 && type == Dtype::f32) ||
         (r.tensor_type == 8 && type == Dtype::f64);
}

// One of a fused response's tensors.
Response part(const Response& fused, std::size_t i) {
  const auto each = static_cast<std::ptrdiff_t>(fused.sizes.size() / fused.names.size());
  const auto sizes = fused.sizes.begin() + static_cast<std::ptrdiff_t>(i) * each;
  return {fused.type,        {fused.names[i]}, {sizes, sizes + each}, fused.devices,
          fused.tensor_type, fused.reduce_op,  fused.prescale,        fused.postscale};
}

}  // namespace

Options Options::from_environment(int ranks_per_host) {
  Options o;
  o.cache_capacity = static_cast<std::uint32_t>(leading_number("HOROVOD_CACHE_CAPACITY", 1024));
  o.autotune = leading_number("HOROVOD_AUTOTUNE", 0) > 0;
  if (o.autotune && o.cache_capacity) o.cache_capacity = 1024;  // its parameter manager knows no other
  o.fusion_threshold = leading_number("HOROVOD_FUSION_THRESHOLD", o.autotune ? 4ll << 20 : o.fusion_threshold);
  if (ranks_per_host > 0)
    o.threshold_unit = std::int64_t{8 * 64} * ranks_per_host;  // 64 elements of 8 bytes for every rank of a host
  o.separate_groups = leading_number("HOROVOD_DISABLE_GROUP_FUSION", 0) > 0;
  o.pads = leading_number("HOROVOD_BATCH_D2D_MEMCOPIES", 1) != 0;
  return o;
}

std::int64_t Negotiation::threshold() const {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() - options_.threshold_unit;
  return (std::min(*threshold_, most) + options_.threshold_unit - 1) / options_.threshold_unit *
         options_.threshold_unit;
}

void Negotiation::begin_cycle() {
  resolve_hits();
  cache_.deal_bits_again();
  expected_.clear();
  next_ = 0;
  lost_ = Unexplained::nothing_expected;
}

void Negotiation::ready_bits(std::span<const std::int64_t> words) {
  begin_cycle();
  hits_.clear();
  // The first words hold a bit per entry; a timeline doubles them.
  const std::size_t used = std::min(words.size(), (cache_.bits() + kStatusBits + 63) / 64);
  for (std::size_t w = 0; w < used; ++w)
    for (auto bits = static_cast<std::uint64_t>(words[w]); bits; bits &= bits - 1) {
      const std::size_t bit = w * 64 + static_cast<std::size_t>(std::countr_zero(bits));
      if (bit >= kStatusBits) hits_.push_back(bit - kStatusBits);
    }
  const bool all_cached = !words.empty() && (static_cast<std::uint64_t>(words[0]) & kUncached);
  cycle_ = all_cached ? Cycle::hits : Cycle::announced;
}

void Negotiation::invalid_bits(std::span<const std::int64_t> words) {
  for (std::size_t w = 0; w < words.size(); ++w)
    for (auto bits = static_cast<std::uint64_t>(words[w]); bits; bits &= bits - 1)
      cache_.erase(w * 64 + static_cast<std::size_t>(std::countr_zero(bits)));
}

void Negotiation::expect(Response fused, Behind behind) {
  if (fused.type == Response::allreduce) {
    if (behind == Behind::bits && gate_.planned()) {
      ++record_.merged_calls;
      record_.merged_tensors += fused.names.size();
    }
    for (std::size_t i = 0; i < fused.names.size(); ++i)
      gate_.reduced(fused.names[i], static_cast<std::uint64_t>(fused.sizes[i] * element_bytes(fused)));
  }
  expected_.push_back(std::move(fused));
}

Record Negotiation::record() const {
  Record record = record_;
  record.groups = gate_.groups();
  record.unmerged = gate_.unmerged();
  record.releases = gate_.releases();
  record.search = gate_.search();
  record.plans = gate_.turns();
  return record;
}

// What its bits stand for is Horovod's to say, and it says so of new entries only.
void Negotiation::lose_mirror() {
  mirror_ = Mirror::lost;
  cache_.clear();
}

// The fast path: all ranks look their hits up in the order of the bits.
void Negotiation::resolve_hits() {
  if (cycle_ != Cycle::hits) return;
  cycle_ = Cycle::idle;
  ready_.clear();
  if (mirror_ == Mirror::lost) {
    lost_ = Unexplained::cache_differs;
    return;
  }
  for (const std::size_t bit : hits_) {
    const Response* entry = cache_.peek(bit);
    if (!entry) {
      lost_ = Unexplained::cache_differs;
      return lose_mirror();
    }
    ready_.push_back(entry);
  }
  const auto use = [&](const Response* r) { cache_.use(cache_.bit(r->names.front())); };
  if (options_.separate_groups) {
    // Groups come first, in the order of their first member's bit, each in its own order. What is in no group is one by
    // itself then, but for alltoalls.
    using Group = std::pair<bool, std::string>;
    std::vector<Group> order;
    std::map<Group, std::vector<const Response*>> groups;
    std::vector<const Response*> rest;
    for (const Response* r : ready_) {
      if (r->type == Response::alltoall) {
        rest.push_back(r);
        continue;
      }
      Group group(true, group_of(r->names.front()));
      if (group.second.empty()) group = {false, r->names.front()};
      if (!groups.count(group)) order.push_back(group);
      groups[group].push_back(r);
    }
    for (const auto& name : order) {
      auto& members = groups[name];
      std::sort(members.begin(), members.end(), [](const Response* a, const Response* b) {
        return index_in_group(a->names.front()) < index_in_group(b->names.front());
      });
      for (const Response* r : members) use(r);
      fuse(members);
    }
    ready_ = std::move(rest);
    for (const Response* r : ready_) use(r);
  } else {
    for (const std::size_t bit : hits_) cache_.use(bit);
  }
  fuse(ready_);
}

// Horovod's greedy packing: the first tensor takes along what follows and fits, looking past what does not, within the
// threshold.
void Negotiation::fuse(std::vector<const Response*>& waiting) {
  const std::int64_t threshold = this->threshold();
  for (std::size_t begin = 0; begin < waiting.size();) {
    const Response& first = *waiting[begin];
    Response head = first;
    std::size_t i = begin + 1, left = i;  // [begin + 1, left): looked past
    if (first.type == Response::allreduce || first.type == Response::adasum || first.type == Response::reducescatter) {
      const bool pads = options_.pads && on_gpu(first);
      const auto bytes = [&](const Response& r) {
        const std::int64_t n = r.sizes.empty() ? 0 : r.sizes.front() * element_bytes(r);
        return pads ? (n + kPadBytes - 1) / kPadBytes * kPadBytes : n;
      };
      std::int64_t size = bytes(first), skipped = 0;
      for (; i < waiting.size(); ++i) {
        const Response& next = *waiting[i];
        const std::int64_t more = bytes(next);
        if (first.fuses_with(next) && size + more <= threshold) {
          size += more;
          head.names.push_back(next.names.front());
          head.sizes.push_back(next.sizes.front());
        } else {
          skipped += more;
          if (size + skipped > threshold) break;
          waiting[left++] = waiting[i];
        }
      }
    }
    // What was looked past stays in order, ahead of what was not reached.
    std::move_backward(waiting.begin() + static_cast<std::ptrdiff_t>(begin) + 1,
                       waiting.begin() + static_cast<std::ptrdiff_t>(left),
                       waiting.begin() + static_cast<std::ptrdiff_t>(i));
    begin += 1 + i - left;
    expect(std::move(head), Behind::bits);
  }
}

void Negotiation::gathered() {
  if (cycle_ == Cycle::announced || cycle_ == Cycle::cached_list) {
    cycle_ = Cycle::cached_list;
    return;
  }
  // No AND in this cycle: the cache is off, or an autotuner has just switched it off; then it starts empty when it
  // comes back.
  begin_cycle();
  cache_.clear();
  mirror_ = Mirror::kept;
  cycle_ = Cycle::new_list;
}

// Horovod's autotuner sends a C struct: four bools, the threshold in MiB and the cycle time in ms as doubles, a bool.
// It holds from the next cycle on.
void Negotiation::tune(const void* parameters) {
  const auto* bytes = static_cast<const unsigned char*>(parameters);
  double mebibytes, cycle_ms;
  std::memcpy(&mebibytes, bytes + 8, sizeof mebibytes);
  std::memcpy(&cycle_ms, bytes + 16, sizeof cycle_ms);
  const bool flags = std::all_of(bytes, bytes + 4, [](unsigned char b) { return b <= 1; }) && bytes[24] <= 1;
  if (!flags || !(mebibytes >= 0 && mebibytes <= 0x1p20) || !(cycle_ms >= 0 && cycle_ms <= 1e9)) return;
  resolve_hits();
  *threshold_ = static_cast<std::int64_t>(mebibytes * 1024 * 1024);
}

void Negotiation::broadcast(const void* bytes, std::size_t size) {
  constexpr std::size_t kParametersBytes = 32;
  if (cycle_ != Cycle::cached_list && cycle_ != Cycle::new_list) {
    if (options_.autotune && size == kParametersBytes) tune(bytes);
    return;
  }
  const bool cached = cycle_ == Cycle::cached_list;
  cycle_ = Cycle::idle;
  const auto list = read_response_list(bytes, size);
  expected_.clear();
  next_ = 0;
  lost_ = list ? Unexplained::nothing_expected : Unexplained::list_unreadable;
  if (!list) return lose_mirror();
  const bool put = cached && mirror_ == Mirror::kept;
  for (const Response& r : *list) {
    if (r.type == Response::allreduce || r.type == Response::adasum) expect(r, cached ? Behind::bits : Behind::nothing);
    const bool cacheable = r.type == Response::allreduce || r.type == Response::allgather ||
                           r.type == Response::adasum || r.type == Response::alltoall;
    if (put && cacheable && !r.names.empty() && r.devices.size() == static_cast<std::size_t>(ranks_))
      for (std::size_t i = 0; i < r.names.size(); ++i) cache_.put(part(r, i));
  }
  cache_.deal_bits_again();
}

// Whether a response's tensors lie padded in the buffer of its call. Where ranks have joined, devices may say GPU of
// tensors that are not there; the buffer is where all ranks' are, or Horovod itself would sum unequal numbers of
// elements.
bool Negotiation::lies_padded(const Response& fused, const std::function<bool()>& on_device) const {
  if (fused.names.size() == 1 || !options_.pads) return false;
  return fused.devices.size() < static_cast<std::size_t>(ranks_) ? on_device && on_device() : on_gpu(fused);
}

std::shared_ptr<const Layout> Negotiation::data_call(std::uint64_t count, Dtype type,
                                                     const std::function<bool()>& on_device) {
  resolve_hits();
  if (cycle_ == Cycle::announced) cycle_ = Cycle::idle;
  if (cycle_ == Cycle::cached_list) cycle_ = Cycle::new_list;
  // Every sum of floating-point values is told in order, so the next one expected must be this one. If it is not,
  // Horovod packed otherwise than we think (another threshold, pads, gathered rows), and equal counts further on would
  // prove nothing.
  while (next_ < expected_.size() && !is_told(expected_[next_])) ++next_;
  Unexplained why = lost_;
  if (next_ < expected_.size() && !is(expected_[next_], type)) {
    why = Unexplained::type_differs;
  } else if (next_ < expected_.size()) {
    why = Unexplained::count_differs;
    const Response& r = expected_[next_];
    const auto element = static_cast<std::int64_t>(size_of(type));
    std::int64_t dense = 0, padded = 0;
    for (const auto n : r.sizes) {
      dense += n;
      padded += (n * element + kPadBytes - 1) / kPadBytes * kPadBytes / element;
    }
    // Which of both is known beforehand; to try both would take a wrong packing for right where the pads make up for a
    // tiny tensor.
    const bool is_dense = !lies_padded(r, on_device);
    if (static_cast<std::uint64_t>(is_dense ? dense : padded) == count) {
      std::vector<Segment> segments;
      std::uint64_t at = 0;
      for (std::size_t t = 0; t < r.names.size(); ++t) {
        const auto n = static_cast<std::uint64_t>(r.sizes[t]);
        if (n)
          segments.push_back({.key = unnamed(r.names[t]) ? std::string() : r.names[t],
                              .offset = at,
                              .count = n,
                              .alternative = gate_.codec(r.names[t])});
        at += n;
        if (is_dense) continue;
        const std::uint64_t end =
            round_up(at * static_cast<std::uint64_t>(element), kPadBytes) / static_cast<std::uint64_t>(element);
        if (end > at) segments.push_back({"", at, end - at, Segment::Use::skip});
        at = end;
      }
      ++next_;
      ++record_.explained;
      record_.heals += std::exchange(last_call_, LastCall::explained) == LastCall::unexplained;
      return Layout::make(Layout::Source::negotiated, std::move(segments));
    }
  }
  expected_.clear();
  next_ = 0;
  ++record_.unexplained[static_cast<std::size_t>(why)];
  last_call_ = LastCall::unexplained;
  return Layout::unknown(count);
}

}  // namespace crimp::horovod
