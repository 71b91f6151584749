#include "collective/shared_models.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/digest.hpp"

namespace crimp {
namespace {

struct Text {
  std::string bytes;
  template <class T>
  void add(T value) {
    static_assert(std::is_scalar_v<T>);  // a struct has padding
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes.append(raw, sizeof raw);
  }
  void add(const SizeClass& c) {
    add(c.one_exchange_of_halves), add(c.one_exchange), add(c.collective), add(c.alone), add(c.bits);
  }
  void add(const Carriage& c) { add(c.algorithm), add(c.nodes), add(c.halves), add(c.radix), add(c.chunk_setting); }
  void add(const CodecCost& c) {
    for (const double x : {c.encode_s, c.decode_s, c.payload_bytes, c.scan_s, c.add_s, c.launch_s}) add(x);
  }
  void add(const NetworkModel& m) {
    add(m.ranks);
    for (const Curve* curve : {&m.allgather, &m.alltoall, &m.plain, &m.step}) {
      add(curve->points().size());
      for (const auto& p : curve->points()) add(p.bytes), add(p.s);
    }
  }
};

}  // namespace

std::uint64_t Models::digest() const {
  Text text;
  text.add(network);
  text.add(hierarchy.has_value());
  if (hierarchy)
    text.add(hierarchy->leaders), text.add(hierarchy->node.ranks), text.add(hierarchy->node.byte_s),
        text.add(hierarchy->node.barrier_s);
  for (const auto& [spec, codec] : codecs) {
    text.bytes += spec + '\n';
    text.add(codec.cost);
    text.add(codec.halves.has_value());
    if (codec.halves) text.add(*codec.halves);
    for (const auto& [size, trials] : codec.trials) {
      text.add(size);
      for (const auto& [choice, s] : trials.results()) text.add(choice.carriage), text.add(s);
    }
  }
  return std::max<std::uint64_t>(1, crimp::digest(text.bytes));
}

std::uint64_t group_of(std::span<const int> ranks, std::span<const int> hosts) {
  Text text;
  std::vector<int> sorted(ranks.begin(), ranks.end());
  if (!hosts.empty()) std::sort(sorted.begin(), sorted.end());
  for (const int rank : sorted) text.add(rank);
  std::map<int, int> numbers;  // in the order of the hosts' first ranks
  for (const int host : hosts) text.add(numbers.try_emplace(host, static_cast<int>(numbers.size())).first->second);
  return crimp::digest(text.bytes);
}

std::shared_ptr<const Models> SharedModels::find(std::uint64_t group) const {
  std::lock_guard lock(mutex_);
  const auto at = groups_.find(group);
  return at == groups_.end() ? nullptr : at->second.models;
}

void SharedModels::publish(std::uint64_t group, Models models) {
  std::lock_guard lock(mutex_);
  const auto at = groups_.find(group);
  if (at == groups_.end()) return;
  if (at->second.models)
    for (const auto& [spec, codec] : at->second.models->codecs) models.codecs.try_emplace(spec, codec);
  at->second.models = std::make_shared<const Models>(std::move(models));
}

std::uint64_t SharedModels::calls(std::uint64_t group) const {
  std::lock_guard lock(mutex_);
  const auto at = groups_.find(group);
  return at == groups_.end() ? 0 : at->second.calls;
}

void SharedModels::count_call(std::uint64_t group) {
  std::lock_guard lock(mutex_);
  if (groups_.size() < kMostGroups || groups_.contains(group)) ++groups_[group].calls;
}

std::uint64_t SharedModels::unfinished(std::uint64_t group) const {
  std::lock_guard lock(mutex_);
  const auto at = groups_.find(group);
  return at == groups_.end() ? 0 : at->second.unfinished;
}

void SharedModels::count_unfinished(std::uint64_t group) {
  std::lock_guard lock(mutex_);
  if (const auto at = groups_.find(group); at != groups_.end()) ++at->second.unfinished;
}

}  // namespace crimp
