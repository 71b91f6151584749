// What is kept of tensors from call to call (codec/codec.hpp, MemoryKind), one array of float32 for each. A tensor keeps it however it is merged with others.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "codec/codec.hpp"
#include "schedule/layout.hpp"
#include "memory/allocator.hpp"

namespace crimp {

// Keys of different kinds never meet, whatever names programs give their tensors.
struct ResidualKey {
  Layout::Source source;  // who named it
  bool owner;             // of sums that this rank encodes as their owner; not of its own values
  std::string name;
  auto operator<=>(const ResidualKey&) const = default;
};

struct ResidualShape {
  std::uint64_t count;     // the tensor's elements
  MemoryKind kind;
  std::uint64_t elements;  // of the array: the kind's planes of `count` behind one another, then what `codec` keeps besides
  const Codec* codec = nullptr;
  static ResidualShape of(const Codec& codec, std::uint64_t count) { return {count, codec.memory().kind, codec.memory_elements(count), &codec}; }
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
  // What is kept under this key, in this kind of memory; zeros when new. With another kind or another count it starts from zeros; with the same two and another
  // array or codec its planes stay and what is behind them starts from zeros. One that was in another kind of memory moves.
  // Found once in a call, it stays where it is until the call after. Throws Error{layout_invalid} where a call asks twice; Error{out_of_memory} and
  // Error{device_failed}: what was kept is then as it was, unless it was to start from zeros.
  Residual& find(const ResidualKey&, const ResidualShape&, Allocator& memory = host_memory());
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
  std::map<ResidualKey, Tensor> tensors_;
  std::uint64_t call_ = 1;
  std::vector<ResidualKey> new_;
};

}  // namespace crimp
