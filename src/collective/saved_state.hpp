// The file of what one rank keeps of the tensors of a communicator: STATE_FORMAT.md, beside this. Written from what is
// there, read with nothing believed: a file that is cut, damaged or made up is refused, and takes no more memory than a
// few times its own length meanwhile.
#pragma once
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/byte_residual.hpp"
#include "codec/codec.hpp"
#include "core/private_directory.hpp"
#include "memory/memory_resource.hpp"
#include "schedule/layout.hpp"

namespace crimp {

// How arrays are kept, in memory and in the file alike.
enum class Encoding : std::uint8_t { float32 = 0, bytes = 1 };  // bytes: codec/byte_residual.hpp, of residuals only

// Of the arrays of a tensor of `count` elements.
inline std::uint64_t encoded_bytes(Encoding encoding, FeedbackKind kind, std::uint64_t count) {
  return encoding == Encoding::bytes
             ? byte_residual::bytes(count)
             : count * static_cast<std::uint64_t>(FeedbackPolicy{kind}.arrays()) * sizeof(float);
}

// One tensor as it is kept: the arrays of its kind, and behind them the floats that `codec` keeps besides.
template <class Text, class Payload>
struct TensorOf {
  Layout::Source source;
  bool owner;
  Text name;
  FeedbackKind kind;
  Encoding encoding;
  std::uint64_t count;
  std::uint32_t turns, roundings;
  double learning_rate;
  Text codec;  // canonical text; empty: there is nothing behind the arrays
  Payload payload;
};
using TensorView = TensorOf<std::string_view, const Memory*>;
using SavedTensor = TensorOf<std::string, Memory>;  // in host memory

// powersgd::Extents, of the tensor that has this name and count.
struct SavedExtents {
  std::string name;
  std::uint64_t count, cols, q_cols, calls;
  bool given;
};

struct StateHeader {
  std::uint32_t rank, ranks;  // of the communicator
  std::uint64_t generation;   // of the directory, from 1
  std::uint64_t set;          // of the job that saved; files of one generation that have another do not belong together
  std::uint32_t sequence;     // compressed calls so far
};

struct SavedState {
  StateHeader header;
  std::vector<SavedTensor> tensors;
  std::vector<SavedExtents> extents;
};

// Why a file is not read, as the end of a sentence: "is damaged: ...".
class StateError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// False where some are left out, because the format has no room for names as long as theirs (65535 bytes at most).
// Throws std::bad_alloc, and Error{device_failed} of what is in a device's memory.
bool write_state(const StateHeader&, const std::vector<TensorView>&, const std::vector<SavedExtents>&,
                 const PrivateDirectory::Put&);
// Throws StateError, and Error{out_of_memory} or std::bad_alloc.
SavedState read_state(ByteSource&);

// Other numbers of ranks. What error feedback owes is owed to the sum over the ranks, so any distribution of the old
// ranks' residuals over the new ones owes the same: new rank r takes those of the old ranks r, r + ranks, r + 2 ranks,
// ..., and none where there are so few. What an owner of sums kept is owed to the sum likewise, and becomes part of its
// own values' residual, because who will own which elements is not known. Momenta and averages are added up, too: what
// they will yet add to the sum stays the same. State of codecs begins anew, but for PowerSGD's factors, which all ranks
// have alike.
//
// The old ranks whose files the new rank reads, in this order; where there are none whose residuals it takes, one from
// which it learns the rest.
struct Sources {
  std::vector<std::uint32_t> ranks;
  bool values;  // false: of what was read everything but the values
};
Sources sources_of(std::uint32_t rank, std::uint32_t ranks, std::uint32_t old_ranks);
// Of the old ranks' states, which are at least one.
class Redistribution {
 public:
  explicit Redistribution(bool values) : values_(values) {}
  void add(SavedState);
  SavedState take() { return std::move(sum_); }

 private:
  void add(SavedTensor);
  bool values_, first_ = true;
  SavedState sum_;
  std::map<std::pair<Layout::Source, std::string>, std::size_t> places_;  // of sum_.tensors
};

}  // namespace crimp
