// A mirror of Horovod's response cache: which tensor a bit of its bit vectors stands for. Every rank holds the same
// one.
//
// As in Horovod: a new entry takes the next free bit, or at capacity the bit of the least recently used; erased entries
// leave holes until the end of the cycle, when all bits are dealt again, the least recently used first.
#pragma once
#include <cstddef>
#include <list>
#include <string>
#include <unordered_map>
#include <vector>

#include "horovod/response.hpp"

namespace crimp::horovod {

// Of a message of bits, ahead of the cache's: shutdown, uncached, invalid, set where NO rank has it.
inline constexpr std::size_t kStatusBits = 3;

class ResponseCache {
 public:
  explicit ResponseCache(std::size_t capacity) : capacity_(capacity) {}

  void put(const Response&);             // one name; most recently used from now on
  const Response* use(std::size_t bit);  // null where no entry has the bit; most recently used from now on
  const Response* peek(std::size_t bit) const;
  void erase(std::size_t bit);
  void deal_bits_again();  // after erasures, at the end of a cycle
  void clear();
  std::uint64_t version() const { return version_; }  // changes whenever a bit may stand for another tensor
  std::size_t bits() const { return by_bit_.size(); }
  std::size_t bit(const std::string& name) const { return bits_.at(name); }  // of a tensor that it has

 private:
  using Entry = std::list<Response>::iterator;
  std::size_t capacity_;
  std::uint64_t version_ = 0;
  bool outdated_ = false;
  std::list<Response> entries_;  // most recently used first
  std::vector<Entry> by_bit_;    // entries_.end(): a hole
  std::unordered_map<std::string, std::size_t> bits_;
};

}  // namespace crimp::horovod
