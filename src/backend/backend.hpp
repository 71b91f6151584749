// Where a call's values lie, and everything that touches them: encoding, decoding, memories, conversions. The pipelines
// (src/collective) see values only as pointers that they hand to a Backend; bodies they send and receive themselves.
//
// A Backend serves one communicator's calls, one after another: not thread-safe. What it starts happens in the order of
// starting. Payload bytes and decoded bits do not depend on the Backend, so ranks with different ones take part in the
// same call. Errors: Error{device_failed}; host values cannot fail. After one, what was under way is void, and
// finish_*() of it throws as well or returns; nothing blocks for ever.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "backend/shared_slots.hpp"
#include "codec/payload.hpp"
#include "core/values.hpp"
#include "memory/memory_resource.hpp"

namespace crimp {

class TensorSteps;  // codec/powersgd/tensor_steps.hpp
class SumSteps;     // codec/sum_steps.hpp

// A body to encode, as encode_body() takes it. Values, memories, body, codec and *bytes stay until the encoding is
// finished; the rest may go.
struct EncodeJob {
  const Codec& codec;
  const ChunkPartition& partition;
  ConstValues values;  // of float32, or of any type that the backend converts()
  std::span<const FeedbackView> feedback;
  RandomCounter counter;
  std::uint8_t* body;    // in staging()
  float* scratch;        // scratch_elements(), in memory()
  std::uint64_t* bytes;  // receives the body's
};

// Bodies to decode and add, as decode_add() takes them: opened with open(), all of one partition. Bodies' bytes, codec
// and *bad stay until it is finished.
struct DecodeJob {
  const Codec& codec;
  const ChunkPartition& partition;
  std::span<const BodyView> bodies;
  RandomCounter counter;
  Values out;  // likewise; where `accumulate` of float32
  bool accumulate = false;
  int voters = 0;
  int* bad = nullptr;     // receives what decode_add() returns
  bool streamed = false;  // a hint, for host memory: nobody reads the sums soon
};

struct FloatCopy {  // without defaults: an array of them is not written before it is used
  float* to;
  const float* from;
  std::uint64_t count;
};
inline constexpr std::size_t kCopiesAtOnce = 160;  // for which copy_all() starts one piece of work, where it can

class Backend {
 public:
  using Ticket = std::int64_t;
  virtual ~Backend() = default;
  // False: what start_*() begins is done when it returns.
  virtual bool asynchronous() const = 0;
  virtual MemoryResource& memory() = 0;   // of values, residuals, scratch
  virtual MemoryResource& staging() = 0;  // of bodies, what MPI is given
  // Whether the host may read bodies where they lie. False: they are not hashed, and open() brings over what it looks
  // at.
  virtual bool readable_bodies() const = 0;

  // Whether it can encode and decode for this codec.
  virtual bool runs(const Codec&) = 0;
  // Whether values of every type are widened as they are encoded with it, and sums rounded as they are stored.
  virtual bool converts(const Codec&) { return false; }
  // Before anything is started: makes room for bodies of this partition and of parts of it, `ranks` of them encoded or
  // decoded at once; and, with the arena that the call's bodies are taken of, for the call. Throws
  // Error{out_of_memory}.
  virtual void prepare(const Codec&, const ChunkPartition&, int ranks) = 0;
  virtual void prepare(const Arena& staging) = 0;

  // Several jobs are one piece of work, so that what a start costs is paid once: of one codec, `accumulate`, `voters`
  // and number of bodies, and with counters that differ as their places in one array of values do. finish_*() take a
  // ticket once. `progress` is called while waiting.
  virtual Ticket start_encode(std::span<const EncodeJob>, const Progress& progress) = 0;
  virtual void finish_encode(Ticket, const Progress& progress) = 0;  // the bodies are in place
  virtual Ticket start_decode(std::span<const DecodeJob>, const Progress& progress) = 0;
  virtual void finish_decode(Ticket, const Progress& progress) = 0;  // the bodies may be overwritten
  virtual std::string open(BodyView& view, const Codec& codec, const ChunkPartition& partition,
                           std::span<const std::uint8_t> body) = 0;

  // For codecs of whole tensors, on what is in memory(); null where it has none. It lives as long as the backend.
  virtual TensorSteps* tensor_steps() { return nullptr; }

  virtual void copy(float* to, const float* from, std::uint64_t count) = 0;  // within memory()
  // Each of them, in any order: none reads what another one writes.
  virtual void copy_all(std::span<const FloatCopy> all) {
    for (const FloatCopy& one : all) copy(one.to, one.from, one.count);
  }
  // Between memory() and host memory, which is pinned where the backend is asynchronous. Complete after synchronize().
  virtual void read(void* host, const void* from, std::size_t bytes) = 0;
  virtual void write(void* to, const void* host, std::size_t bytes) = 0;
  virtual void widen(Dtype, const void* in, float* out, std::uint64_t count) = 0;
  virtual void narrow(Dtype, const float* in, void* out, std::uint64_t count) = 0;
  // results[i] = the largest magnitude (src/core/convert.hpp) of groups[i], whose offsets are elements from `values`.
  // Complete on return.
  virtual void magnitudes(Dtype, const void* values, std::span<const Group> groups, double* results) = 0;

  // A call's begin: waits for what the caller has enqueued that the values may depend on. `everything`: for whatever
  // runs on the device.
  virtual void begin(bool everything) = 0;
  // All that was started is complete. A call ends with this, so that nothing touches memory behind it; after an error
  // nothing does, either.
  virtual void synchronize() = 0;

  // For codecs whose payloads are summed as integers, on what is in memory(); null where it has none. They live as long
  // as the backend.
  virtual SumSteps* sum_steps(const Codec&) { return nullptr; }

  // The device that memory() belongs to, by its number in this process; -1: it is the host's.
  virtual int device() const { return -1; }
  // A slot of so many floats in memory(), for the ranks of a node; null where that is the host's.
  virtual std::unique_ptr<SharedSlots> shared_slots(std::uint64_t) { return nullptr; }
};

}  // namespace crimp
