// A map of what may be made anew, with at most so many entries: another one then takes the place of one that arithmetic
// picks. A training's calls come in a cycle, of which the least recently used one is the next: a map that forgot that
// one, or all, would know none of a cycle that is a little longer than itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace crimp {

// The same entries wherever the same calls were made. What find() and put() give stays where it is until it is erased.
// Not thread-safe.
template <class Key, class Value>
class BoundedMap {
 public:
  explicit BoundedMap(std::size_t most) : most_(most) {}

  std::size_t size() const { return entries_.size(); }
  const Value* find(const Key& key) const {
    const auto at = entries_.find(key);
    return at == entries_.end() ? nullptr : &at->second.value;
  }
  Value* find(const Key& key) {
    const auto at = entries_.find(key);
    return at == entries_.end() ? nullptr : &at->second.value;
  }
  // In place of what there is of this key. Throws std::bad_alloc as if it had not been called.
  Value& put(const Key& key, Value value) {
    if (const auto at = entries_.find(key); at != entries_.end()) return at->second.value = std::move(value);
    places_.reserve(places_.size() + 1 > places_.capacity() ? 2 * places_.size() + 1 : places_.capacity());
    auto fresh = typename Entries::node_type();
    {
      Entries one;
      one.emplace(key, Entry{std::move(value), 0});
      fresh = one.extract(one.begin());
    }
    if (entries_.size() >= most_) evict();
    fresh.mapped().place = places_.size();
    const auto at = entries_.insert(std::move(fresh)).position;
    places_.push_back(at);
    return at->second.value;
  }
  // Not of an empty map. What is there no more.
  Value evict() {
    std::uint64_t mixed = (++evicted_) * 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93;
    const auto at = places_[static_cast<std::size_t>((mixed ^ mixed >> 32) % places_.size())];
    Value evicted = std::move(at->second.value);
    erase(at);
    return evicted;
  }
  void erase(const Key& key) {
    if (const auto at = entries_.find(key); at != entries_.end()) erase(at);
  }
  void clear() { entries_.clear(), places_.clear(); }

  template <class F>  // f(value)
  void for_each(F&& f) const {
    for (const auto& [_, entry] : entries_) f(entry.value);
  }

 private:
  struct Entry {
    Value value;
    std::size_t place;
  };
  using Entries = std::map<Key, Entry>;

  void erase(typename Entries::iterator at) {
    places_[at->second.place] = places_.back();
    places_.back()->second.place = at->second.place;
    places_.pop_back();
    entries_.erase(at);
  }

  std::size_t most_;
  Entries entries_;
  std::vector<typename Entries::iterator> places_;
  std::uint64_t evicted_ = 0;
};

}  // namespace crimp
