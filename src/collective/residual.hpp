// What is kept of tensors from call to call (codec/codec.hpp, FeedbackKind), one array of float32 for each. A tensor
// keeps it however it is merged with others.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codec/codec.hpp"
#include "memory/memory_resource.hpp"
#include "schedule/layout.hpp"

namespace crimp {

// Keys of different kinds never meet, whatever names programs give their tensors.
template <class Name>
struct KeyOf {
  Layout::Source source;  // who named it
  bool owner;             // of sums that this rank encodes as their owner; not of its own values
  Name name;
  auto operator<=>(const KeyOf&) const = default;
};
using ResidualKey = KeyOf<std::string_view>;

struct ResidualShape {
  std::uint64_t count;  // the tensor's elements
  FeedbackKind kind;
  std::uint64_t
      elements;  // of the array: the kind's arrays of `count` behind one another, then what `codec` keeps besides
  const Codec* codec = nullptr;
  static ResidualShape of(const Codec& codec, std::uint64_t count) {
    return {count, codec.feedback().kind, codec.feedback_elements(count), &codec};
  }
};

struct Residual {
  float* values;
  std::uint32_t turns = 0;   // compressed calls that it has seen; whoever compresses counts
  double learning_rate = 0;  // for which it was made (crimp_set_learning_rate); 0: none was known
};

// Not thread-safe: one communicator's calls are ordered.
class ResidualStore {
 public:
  void begin_call() { ++call_; }
  // What is kept under this key, in this kind of memory; zeros when new. With another kind or another count it starts
  // from zeros; with the same two and another array or codec its arrays stay and what is behind them starts from zeros.
  // One that was in another kind of memory moves. Found once in a call, it stays where it is until the call after.
  // Throws Error{layout_invalid} where a call asks twice; Error{out_of_memory} and Error{device_failed}: what was kept
  // is then as it was, unless it was to start from zeros.
  Residual& find(ResidualKey, const ResidualShape&, MemoryResource& memory = host_memory());
  // Since the last keep(): what find() made holds nothing yet. keep() makes it stay, drop_new() drops it.
  void keep() { new_.clear(); }
  void drop_new();
  // Drops the tensors of this source whose names begin so. Not while a call uses them.
  void forget(Layout::Source, std::string_view prefix = {});
  std::uint64_t bytes() const;
  std::size_t tensors() const { return tensors_.size(); }

 private:
  struct Tensor {
    Residual residual;
    ResidualShape shape;
    Memory memory;
    std::uint64_t call;  // the last one that found it
  };
  // Looked up once for each tensor of each call, by names that are elsewhere.
  using Owned = KeyOf<std::string>;
  static ResidualKey view(const Owned& key) { return {key.source, key.owner, key.name}; }
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(const ResidualKey& key) const {
      return std::hash<std::string_view>()(key.name) ^
             (static_cast<std::size_t>(key.source) * 2 + key.owner) * 0x9e3779b97f4a7c15;
    }
    std::size_t operator()(const Owned& key) const { return (*this)(view(key)); }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const Owned& a, const Owned& b) const { return a == b; }
    bool operator()(const Owned& a, const ResidualKey& b) const { return view(a) == b; }
    bool operator()(const ResidualKey& a, const Owned& b) const { return a == view(b); }
  };
  std::unordered_map<Owned, Tensor, Hash, Equal> tensors_;
  std::uint64_t call_ = 1;
  std::vector<Owned> new_;
};

}  // namespace crimp
