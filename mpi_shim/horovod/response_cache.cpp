#include "horovod/response_cache.hpp"

namespace crimp::horovod {

void ResponseCache::put(const Response& response) {
  if (capacity_ == 0) return;
  const std::string& name = response.names.front();
  std::size_t bit;
  if (const auto it = bits_.find(name); it != bits_.end()) {
    bit = it->second;
    entries_.erase(by_bit_[bit]);
  } else if (entries_.size() == capacity_) {
    ++version_;
    bit = bits_.at(entries_.back().names.front());
    bits_.erase(entries_.back().names.front());
    entries_.pop_back();
  } else {
    ++version_;
    bit = by_bit_.size();
    by_bit_.push_back(entries_.end());
  }
  entries_.push_front(response);
  by_bit_[bit] = entries_.begin();
  bits_[name] = bit;
}

const Response* ResponseCache::peek(std::size_t bit) const {
  return bit < by_bit_.size() && by_bit_[bit] != const_cast<ResponseCache*>(this)->entries_.end() ? &*by_bit_[bit]
                                                                                                  : nullptr;
}

const Response* ResponseCache::use(std::size_t bit) {
  if (!peek(bit)) return nullptr;
  entries_.splice(entries_.begin(), entries_, by_bit_[bit]);
  return &entries_.front();
}

void ResponseCache::erase(std::size_t bit) {
  if (!peek(bit)) return;
  bits_.erase(by_bit_[bit]->names.front());
  entries_.erase(by_bit_[bit]);
  by_bit_[bit] = entries_.end();
  outdated_ = true;
  ++version_;
}

void ResponseCache::deal_bits_again() {
  if (!outdated_) return;
  outdated_ = false;
  ++version_;
  by_bit_.clear();
  for (auto it = entries_.end(); it != entries_.begin();) {
    --it;
    bits_[it->names.front()] = by_bit_.size();
    by_bit_.push_back(it);
  }
}

void ResponseCache::clear() {
  entries_.clear();
  by_bit_.clear();
  bits_.clear();
  ++version_;
  outdated_ = false;
}

}  // namespace crimp::horovod
