// What the pipelines of all algorithms do alike: cutting a call into chunks, headers and what they decide, memories that wait aside
// until every rank is known to compress the call, checks of what arrives, times.
//
// Protocol of every algorithm. The headers of stage 0 come before any body. Where one has a flag, no body is sent, no residual has
// changed (but for echoes of outliers and old learning rates that the session took out of it), and the call is MPI's. Where they disagree, all ranks throw alike. After that nothing ends a call early: what is corrupt is
// remembered, the exchanges are completed, and the error is the call's result.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memory/workers.hpp"
#include "backend/host_backend.hpp"
#include "core/trace.hpp"
#include "collective/collective.hpp"
#include "codec/payload.hpp"

namespace crimp {

// A run of a call's elements, cut for a codec: groups end where segments do, and `feedback` has each group's memory.
struct Cut {
  std::uint64_t begin = 0;  // in the call
  Shape shape;
  std::vector<Feedback> feedback;
  std::vector<float> states;  // of the groups, where they wait aside
  // Elements [begin, end). memories: one per segment, `planes` planes behind one another, and behind the codec's own planes its states; or empty.
  void make(const CollectiveCall&, const std::vector<float*>& memories, int planes, std::uint64_t begin, std::uint64_t end);
};

class Pipeline {
 public:
  static std::uint64_t chunks_of(const CollectiveCall&);
  static std::uint64_t chunk_begin(const CollectiveCall& call, std::uint64_t chunk) { return chunk * call.chunk; }
  static std::uint64_t chunk_end(const CollectiveCall& call, std::uint64_t chunk);
  // The largest of bound(cut) over the call's chunks.
  template <class Bound>
  static std::uint64_t largest(const CollectiveCall& call, Bound bound) {
    Cut cut;
    std::uint64_t most = 0;
    // All chunks but those with segment borders have the same shape; cutting each is cheap next to encoding it.
    for (std::uint64_t i = 0; i < chunks_of(call); ++i) {
      cut.make(call, {}, 0, chunk_begin(call, i), chunk_end(call, i));
      most = std::max<std::uint64_t>(most, bound(cut));
      if (call.layout->segments.size() == 1 && i == 0) break;  // the first is the largest
    }
    return most;
  }
  // Bytes that begin() takes of the arena, or of the call's other one for values.
  static std::uint64_t own_bytes(const CollectiveCall&);
  static std::uint64_t own_bytes_of_arena(const CollectiveCall& call) { return call.values ? 0 : own_bytes(call); }

 protected:
  Pipeline(Transport&, Workers&, const CollectiveCall&, Trace*);
  void begin(Arena& arena);  // takes own_bytes()

  std::uint64_t chunks() const { return chunks_; }
  std::size_t ranks() const { return ranks_; }
  std::size_t rank() const { return static_cast<std::size_t>(transport_.rank()); }
  Progress progress() {
    return [this] { transport_.progress(); };
  }
  // Notes a span that began then and has ended now; returns its seconds.
  double span(const char* name, std::uint64_t chunk, Clock::time_point begin);

  // Stage 0: this chunk's part of the call, memories redirected where they must wait.
  void cut(Cut&, std::uint64_t chunk, std::uint64_t begin, std::uint64_t end);
  // A header with all that does not depend on a body.
  Header header(std::uint64_t chunk, std::uint64_t count, std::uint8_t stage = 0) const;
  // An encoding under way. What fails of it becomes a flag in its header.
  struct Encoding {
    Header* header = nullptr;
    std::uint8_t* body = nullptr;
    std::optional<Backend::Ticket> ticket;
  };
  // Starts encoding to `body`; nothing where the header has flags. Where the backend is not asynchronous it is finished, too.
  void start_encode(Encoding&, Header&, const Cut&, const float* values, std::uint32_t encoder, std::uint8_t* body);
  void finish_encode(Encoding&);  // completes the header; the body is in place
  // Headers of all ranks in one chunk and stage. False: some rank asks for MPI. Throws Error{call_differs}, with nothing left under way.
  bool accept(std::span<const Header>);
  // After the first accept(): new memories of a chunk that was cut before go to their places.
  void commit(const Cut&);
  bool committed() const { return committed_; }

  // An exchange of this call, waited for with wait(), and before the call ends in any case.
  Transport::Ticket under_way(Transport::Ticket);
  void wait(Transport::Ticket, std::uint64_t chunk);

  // A decoding under way; `from`: whose bodies, where not one of each rank. A malformed piece or a failure becomes the call's error.
  struct Decoding {
    std::uint64_t chunk = 0;
    std::size_t from = 0;
    std::optional<Backend::Ticket> ticket;
  };
  void start_decode(Decoding&, const Cut&, std::span<const BodyView>, std::uint64_t chunk, int voters = 0, std::size_t from = 0);
  bool finish_decode(Decoding&);  // false where it came to nothing

  // Checks a body against its header and opens it; where it is bad, remembers whose it was.
  bool open(BodyView&, const Header&, const Cut&, std::span<const std::uint8_t> body, std::size_t from, std::uint64_t chunk);
  void blame(std::size_t from, std::uint64_t chunk, const std::string& what);
  bool usable(const std::string& defect, std::size_t from, std::uint64_t chunk);  // blames where there is one; collective/frame.hpp finds them
  void failed(const std::exception&);           // becomes the call's error
  void failed(Header&, const std::exception&);  // while the body of this header was made

  Transport& transport_;
  Workers& workers_;
  HostBackend host_;
  Backend& backend_;  // host_, or the call's own
  const CollectiveCall& call_;
  CollectiveResult result_;
  float* scratch_ = nullptr;

 private:
  Trace* trace_;
  std::uint64_t chunks_;
  std::size_t ranks_;
  std::uint32_t layout_;
  bool committed_ = false;
  float* spare_memory_[2] = {};
  std::vector<Transport::Ticket> under_way_;
};

}  // namespace crimp
