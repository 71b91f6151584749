// What is kept of tensors from call to call (codec/codec.hpp, FeedbackKind), one array of float32 for each. A tensor
// keeps it however it is merged with others.
#pragma once
#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codec/codec.hpp"
#include "collective/owned_runs.hpp"
#include "collective/saved_state.hpp"
#include "memory/memory_resource.hpp"
#include "memory/workers.hpp"
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
  float* values;             // of the call under way
  std::uint32_t turns = 0;   // compressed calls that it has seen; whoever compresses counts
  double learning_rate = 0;  // for which it was made (crimp_set_learning_rate); 0: none was known
  // Elements in front that already are for `next_rate`, where a device has failed on the way to it.
  std::uint64_t at_next_rate = 0;
  double next_rate = 0;
  OwnedRuns owned;  // an owner's: where it may hold something
};

// Not thread-safe: one communicator's calls are ordered.
class ResidualStore {
 public:
  // From here on residuals in host memory are kept in bytes between calls (codec/byte_residual.hpp): find() makes
  // floats of them, settle() bytes again. Of other kinds, and in the memory of devices, floats stay. `rank` draws.
  // `workers`, which outlive this, share what is to be done.
  void keep_bytes(int rank, Workers* workers = nullptr) {
    rounds_ = true, rank_ = static_cast<std::uint32_t>(rank), workers_ = workers;
  }

  // What was found and has not settled is as it was before.
  void begin_call();
  // What is kept under this key, in this kind of memory; zeros when new, or what was loaded. With another kind or
  // another count it starts from zeros; with the same two and another array or codec its arrays stay and what is behind
  // them starts from zeros. One that was in another kind of memory moves. Found once in a call, it stays where it is
  // until the call after.
  // Throws Error{layout_invalid} where a call asks twice; Error{out_of_memory} and Error{device_failed}: what was kept
  // is then as it was, unless it was to start from zeros.
  Residual& find(ResidualKey, const ResidualShape&, MemoryResource& memory = host_memory());
  // What is kept, or was loaded and nobody has asked for.
  std::optional<ResidualShape> shape_of(const ResidualKey&) const;
  bool holds_sums() const { return owners_ + waiting_owners_ > 0; }  // whether there is any of an owner
  void drop_when_empty(const ResidualKey&);  // an owner's, which holds nothing any more when the next call begins
  // The call has compressed: what it left in the values is what is kept.
  void settle();
  // Since the last keep(): what find() made holds nothing yet. keep() makes it stay, drop_new() drops it.
  void keep();
  void drop_new();
  void drop(const ResidualKey&);  // one tensor's; not while a call uses it
  // Drops the tensors of this source whose names begin so. Not while a call uses them.
  void forget(Layout::Source, std::string_view prefix = {});
  std::uint64_t bytes() const;
  std::size_t tensors() const { return tensors_.size(); }

  // Of all that has a name: what is kept, and what was loaded and nobody has asked for. Not while a call is under way.
  // Throws Error{out_of_memory}; what is viewed stays until the next call.
  std::vector<TensorView> saved() const;
  std::size_t unnamed() const;  // how many saved() leaves out
  // In place of all that has a name: it waits until find() asks for it.
  void load(std::vector<SavedTensor>);
  struct Loaded {
    std::uint64_t restored = 0;  // were asked for
    std::uint64_t unfit = 0;     // of those, with another count or kind of memory: they began from zeros
    std::uint64_t waiting = 0;
  };
  Loaded loaded() const;
  bool waiting() const { return !waiting_.empty(); }
  void forget_waiting() { waiting_.clear(), waiting_owners_ = 0; }

 private:
  struct Tensor {
    Residual residual;
    ResidualShape shape;
    Encoding encoding;
    std::uint32_t roundings = 0;
    std::uint64_t draws;  // its name's digest: tensors round by random bits of their own
    std::string codec;    // whose state is behind the arrays; empty: nothing is
    Memory memory;        // by `encoding`: the arrays, what is behind them
    std::uint64_t call;   // the last one that found it
  };
  struct Opened {
    Tensor* tensor;
    double learning_rate;  // before the call, as what follows
    OwnedRuns owned;
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
  // The floats of residuals that are kept in bytes, for one call. Runs stay where they are until the next one.
  class Floats {
   public:
    void begin();
    float* take(std::uint64_t count);  // throws Error{out_of_memory}

   private:
    std::vector<Memory> parts_;
    std::uint64_t used_ = 0, all_ = 0;  // of the last part; of all
  };
  template <class At>
  void erase(At at) {
    owners_ -= at->first.owner;
    tensors_.erase(at);
  }
  template <class Of>
  void erase_if(Of&& of) {
    std::erase_if(tensors_, [&](const auto& entry) {
      const bool gone = of(entry.first);
      owners_ -= gone && entry.first.owner;
      return gone;
    });
  }
  void open(Tensor&);
  void leave_unsettled();
  void restore(Tensor&, const SavedTensor&) const;

  std::unordered_map<Owned, Tensor, Hash, Equal> tensors_;
  std::unordered_map<Owned, SavedTensor, Hash, Equal> waiting_;  // loaded, and not asked for
  std::uint64_t call_ = 1, restored_ = 0, unfit_ = 0;
  std::vector<Owned> new_;
  std::vector<Opened> opened_;                   // in this call
  std::vector<Owned> left_;                      // by owners, in this call
  std::size_t owners_ = 0, waiting_owners_ = 0;  // of tensors_ and waiting_ those of owners
  Floats floats_;
  bool rounds_ = false;
  std::uint32_t rank_ = 0;
  Workers* workers_ = nullptr;
};

}  // namespace crimp
