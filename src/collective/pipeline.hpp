// What the pipelines of all algorithms do alike: cutting a call into chunks, headers and what they decide, memories
// that wait aside until every rank is known to compress the call, checks of what arrives, times.
//
// An algorithm is a Rounds<Algorithm>: a table of steps. What several algorithms agree on is a base of theirs, between
// Pipeline and Rounds.
//
// Protocol of every algorithm. The headers of stage 0 come before any body, or each with its own (one_shot). Where one
// has a flag, no body is sent, no residual has changed (but for echoes of outliers and old learning rates that the
// session took out of it, and for what owners handed on), and the call is MPI's. Where they disagree, all ranks throw
// alike. After that nothing ends a call early: what is corrupt is remembered, the exchanges are completed, and the
// error is the call's result.
#pragma once
#include <algorithm>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/host_backend.hpp"
#include "codec/payload.hpp"
#include "collective/collective.hpp"
#include "collective/frame.hpp"
#include "collective/partition.hpp"
#include "core/clock.hpp"
#include "memory/workers.hpp"

namespace crimp {

// A slice in one call: `feedback` has each group's memory.
struct BoundSlice {
  const Slice* slice = nullptr;
  std::vector<FeedbackView> feedback;
  // memories: one per segment, `arrays` arrays behind one another, and behind the codec's own arrays its states; or
  // empty.
  void take(const Slice&, const PartPlan&, const CallBuffers&, const std::vector<float*>& memories, int arrays);
  std::uint64_t begin() const { return slice->begin; }
  const ChunkPartition& partition() const { return slice->partition; }
};

class Pipeline {
 public:
  static constexpr Transport::Ticket kNothing = -1;  // no exchange

 protected:
  // Virtual, so that it is the first base of Rounds and steps of a Base need no other `this`, which GCC's UBSan
  // misreads.
  virtual ~Pipeline() = default;
  Pipeline(Transport&, Workers&, const RoutePlan&, const CallBuffers&, Trace*);
  void begin(const ChunkedRoute&);  // takes its spare_bytes() and scratch_bytes()

  const Codec& codec() const { return *part_.codec; }
  std::size_t ranks() const { return ranks_; }
  std::size_t rank() const { return static_cast<std::size_t>(transport_.rank()); }
  // What lets exchanges under way move on.
  Progress mover() {
    return [this] { transport_.progress(); };
  }
  // Notes a span that began then and has ended now; returns its seconds.
  double span(const char* name, std::uint64_t chunk, Clock::time_point begin);

  // Stage 0: this chunk's part of the call, memories redirected where they must wait.
  void bind(BoundSlice& bound, const Slice& slice, std::uint64_t chunk) {
    bind(bound, slice, chunk, slice.begin - chunk * route_.chunk);
  }
  // Where a chunk is no run of elements: the slice's place among those of the chunk.
  void bind(BoundSlice&, const Slice&, std::uint64_t chunk, std::uint64_t place);
  // A header with all that does not depend on a body.
  Header header(std::uint64_t chunk, std::uint64_t count, std::uint8_t stage = 0) const;
  // Bodies that are encoded together. What fails of it becomes a flag in their headers.
  struct Encoding {
    std::vector<Header*> headers;
    std::vector<EncodeJob> jobs;  // of the headers without flags
    std::optional<Backend::Ticket> ticket;
    void reserve(std::size_t bodies) { headers.reserve(bodies), jobs.reserve(bodies); }  // before any is added
  };
  // Adds a slice, to be encoded to `body`; where the header has flags there is no body, and then
  // there need be no values. values: of its first element. Where the backend is not asynchronous it is encoded and
  // finished at once. What is added stays until it is finished.
  void add(Encoding&, Header&, const BoundSlice&, ConstValues values, std::uint32_t encoder, std::uint8_t* body);
  std::uint32_t encoder() const { return static_cast<std::uint32_t>(rank()) ^ call_.salt; }  // as RandomCounter::rank
  void start_encode(Encoding&);                                                              // what has been added
  void finish_encode(Encoding&);  // completes the headers; the bodies are in place
  // Adds to these headers and to the result what encoding the bodies has taken since then.
  void note_encode(std::span<Header> mine, std::uint64_t chunk, Clock::time_point begin);
  // Headers of all ranks in one chunk and stage. False: some rank asks for MPI. Throws Error{call_differs}, with
  // nothing left under way.
  bool accept(std::span<const Header>);
  // After the first accept(): new memories of a chunk that was cut before go to their places, neighbours' together.
  // mine: its headers; where encoding has failed nothing waits.
  void commit(std::span<const BoundSlice> slices, std::span<const Header> mine);
  // Where bodies of so many bytes are received: in their bounds, or, where the backend is asynchronous, behind one
  // another, so that they travel in one copy.
  void place(std::span<const std::uint64_t> bytes, std::span<const std::uint64_t> bounds,
             std::span<std::uint64_t> offsets) const;
  bool committed() const { return committed_; }

  // An exchange of this call, waited for with wait(), and before the call ends in any case.
  Transport::Ticket under_way(Transport::Ticket);
  void wait(Transport::Ticket, std::uint64_t chunk);

  // Slices that are decoded together, all of as many bodies. A malformed piece or a failure becomes the call's error.
  struct Decoding {
    static constexpr int kNone = -1, kUnknown = -2;
    struct Sum {
      std::uint64_t chunk;
      std::size_t from;    // whose bodies, where not one of each rank
      int bad = kUnknown;  // the index of a malformed one
    };
    std::vector<Sum> sums;
    std::vector<DecodeJob> jobs;  // of the sums
    std::optional<Backend::Ticket> ticket;
    bool read_again = false;  // by the next step: the sums stay in the caches
    void reserve(std::size_t slices) { sums.reserve(slices), jobs.reserve(slices); }  // before any is added
  };
  // Adds a slice, decoded to `to`, whose views stay until it is started: at once, where the backend is not
  // asynchronous.
  void add(Decoding&, const BoundSlice&, std::span<const BodyView>, std::uint64_t chunk, Values to, int voters = 0,
           std::size_t from = 0);
  Values out(const BoundSlice& slice) const { return call_.out + (slice.begin() - call_.out_begin); }  // its results'
  Arena& values() const { return call_.values ? *call_.values : *call_.arena; }
  void start_decode(Decoding&);
  bool finish_decode(Decoding&);  // false where it came to nothing

  // Checks a body against its header and opens it; where it is bad, remembers whose it was.
  bool open(BodyView&, const Header&, const BoundSlice&, std::span<const std::uint8_t> body, std::size_t from,
            std::uint64_t chunk);
  // Likewise every rank's, which lies at body(rank) and is no longer than `most`. False: one is bad.
  template <class Body>
  bool open_all(std::span<BodyView> views, std::span<const Header> headers, const BoundSlice& bound,
                std::uint64_t chunk, std::uint64_t most, Body body) {
    const auto arrived = [&](std::size_t r) {
      return std::span<std::uint8_t>(body(r), std::min(headers[r].body_bytes, most));
    };
    if (backend_.readable_bodies()) may_corrupt_wire(arrived(0));
    bool good = true;
    for (std::size_t r = 0; r < ranks_; ++r) good = open(views[r], headers[r], bound, arrived(r), r, chunk) && good;
    return good;
  }
  void blame(std::size_t from, std::uint64_t chunk, const std::string& what);
  bool usable(const std::string& defect, std::size_t from,
              std::uint64_t chunk);             // blames where there is one; collective/frame.hpp finds them
  void failed(const std::exception&);           // becomes the call's error
  void failed(Header&, const std::exception&);  // while the body of this header was made
  void failed(Encoding&, const std::exception&);

  void end() { ended_ = true; }  // no step follows
  bool ended() const { return ended_; }

  Transport& transport_;
  Workers& workers_;
  HostBackend host_;
  Backend& backend_;  // host_, or the call's own
  const RoutePlan& route_;
  const PartPlan& part_;
  const bool streamed_;  // the result is, where that is the host's
  const CallBuffers& call_;
  CollectiveResult result_;
  float* scratch_ = nullptr;

 private:
  Trace* trace_;
  std::size_t ranks_;
  std::uint32_t layout_;
  bool committed_ = false, ended_ = false;
  float* spare_memory_[2] = {};
  float* spare_states_[2] = {};  // the next group's
  struct UnderWay {
    Transport::Ticket ticket;
    Clock::time_point since;  // with a trace
  };
  std::vector<UnderWay> under_way_;
  Error differs(const Header& got, std::size_t from, const std::string& what) const;  // disagreement() of rank 0's
};

// An algorithm that does the same steps for every chunk, several chunks at a time: in round t a step works on chunk t -
// lag, where there is such a chunk. The table kSteps of Algorithm is the order of all it does and of all it sends; a
// step waits for no exchange but what awaits() names.
template <class Algorithm, class Base = Pipeline>
class Rounds : protected Base, public Exchange {
 public:
  struct Step {
    std::uint64_t lag;
    void (Algorithm::*run)(std::uint64_t chunk);
    Transport::Ticket (Algorithm::*awaits)(std::uint64_t chunk) = nullptr;  // null, or kNothing: it waits for nothing
  };

  void start() final {
    advance([this](const Step& step, std::uint64_t chunk) {
      return !step.awaits || (self().*step.awaits)(chunk) == Base::kNothing;
    });
  }
  bool progress() final {
    advance([this](const Step& step, std::uint64_t chunk) {
      const Transport::Ticket ticket = step.awaits ? (self().*step.awaits)(chunk) : Base::kNothing;
      return ticket == Base::kNothing || this->transport_.done(ticket);
    });
    return this->ended();
  }
  CollectiveResult finish() final {
    advance([](const Step&, std::uint64_t) { return true; });
    return std::move(this->result_);
  }

 protected:
  template <class Route>
  Rounds(Transport& transport, Workers& workers, const Route& route, const CallBuffers& call, Trace* trace,
         std::uint64_t chunks)
      : Base(transport, workers, route, call, trace), chunks_(chunks) {}
  std::uint64_t chunks() const { return chunks_; }
  void after_rounds() {}           // what is left when all chunks are through
  void again() { again_ = true; }  // the step that runs is not through: it awaits something once more

 private:
  Algorithm& self() { return static_cast<Algorithm&>(*this); }
  static constexpr std::uint64_t rounds_behind() {
    std::uint64_t most = 0;
    for (const Step& step : Algorithm::kSteps) most = std::max(most, step.lag);
    return most;
  }
  // All steps up to the first that `may` not run.
  template <class May>
  void advance(May may) {
    while (!this->ended()) {
      if (round_ == chunks_ + rounds_behind()) {
        self().after_rounds();
        return this->end();
      }
      const Step& step = Algorithm::kSteps[step_];
      if (const std::uint64_t chunk = round_ - step.lag; round_ >= step.lag && chunk < chunks_) {
        if (!may(step, chunk)) return;
        (self().*step.run)(chunk);
        if (std::exchange(again_, false)) continue;
      }
      if (++step_ == std::size(Algorithm::kSteps)) step_ = 0, ++round_;
    }
  }

  std::uint64_t chunks_, round_ = 0;
  std::size_t step_ = 0;
  bool again_ = false;
};

}  // namespace crimp
