// Every rank sends every other one frame, a header and a body as long as its bound, in a single allgather; every rank
// decodes all of them, its own too, in rank order 0..N-1. All of a call's frame is encoded before it leaves, and
// nothing but that one exchange is waited for: what a call that does not block can do without anybody's help (MPI's
// progress rule).
#include "collective/one_shot.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/frame.hpp"
#include "collective/pipeline.hpp"

namespace crimp {
namespace {

// One chunk, however long the call is.
constexpr std::uint64_t kWholeCall = (std::uint64_t{1} << 40) * kPieceElements;

class OneShotRoute final : public ChunkedRoute {
 public:
  OneShotRoute(const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : ChunkedRoute(Algorithm::one_shot, of, chunk_elements, transport_ranks),
        frame_bytes(sizeof(Header) +
                    largest([&](const ChunkPartition& partition) { return partition.body_bound(*part.codec); })) {
    set_bytes((static_cast<std::uint64_t>(ranks) + 1) * Arena::padded(frame_bytes));
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  const std::uint64_t frame_bytes;  // a multiple of kPayloadAlign
};

class OneShot final : public Rounds<OneShot> {
 public:
  OneShot(Transport& transport, const OneShotRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : Rounds(transport, workers, route, call, trace, 1), slice_(route.chunks()[0]), frame_bytes_(route.frame_bytes),
        headers_(ranks()), views_(ranks()) {
    encoding_.reserve(1);
    decoding_.reserve(1);
    if (!call.arena) return;
    mine_ = reinterpret_cast<std::uint8_t*>(call.arena->take(frame_bytes_));
    frames_ = reinterpret_cast<std::uint8_t*>(call.arena->take(ranks() * frame_bytes_));
    begin(route);
  }

 private:
  friend class Rounds<OneShot>;
  static const Step kSteps[2];
  Transport::Ticket frames_due(std::uint64_t) { return ticket_; }

  // A rank without room has nothing to send from or to receive in. Its plan could not be carried any further, so that
  // the others would wait for it: who starts such calls has the room first.
  void send(std::uint64_t chunk) {
    if (!mine_) throw Error(ErrorCode::out_of_memory, "no memory for a call's frames");
    const auto begin = Clock::now();
    bind(bound_, slice_, chunk);
    header_ = header(chunk, bound_.partition().count());
    add(encoding_, header_, bound_, call_.in, static_cast<std::uint32_t>(rank()), mine_ + sizeof(Header));
    start_encode(encoding_);
    finish_encode(encoding_);
    const double took = span("encode", chunk, begin);
    header_.encode_us += static_cast<std::uint32_t>(1e6 * took);
    header_.wire_us = static_cast<std::uint32_t>(call_.exponent);
    result_.encode_s += took;
    std::memcpy(mine_, &header_, sizeof header_);
    ticket_ = under_way(transport_.start_allgather(mine_, frames_, frame_bytes_));
    result_.sent_bytes += frame_bytes_;
    result_.received_bytes += (ranks() - 1) * frame_bytes_;
  }

  std::uint8_t* frame(std::size_t r) { return frames_ + r * frame_bytes_; }

  void sum(std::uint64_t chunk) {
    wait(ticket_, chunk);
    for (std::size_t r = 0; r < ranks(); ++r) std::memcpy(&headers_[r], frame(r), sizeof(Header));
    if (!accept(headers_)) return end();
    commit({&bound_, 1}, {&header_, 1});
    const auto begin = Clock::now();
    may_corrupt_wire({frame(0) + sizeof(Header), std::min(headers_[0].body_bytes, body_bytes())});
    bool good = true;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::uint64_t bytes = std::min(headers_[r].body_bytes, body_bytes());
      good = open(views_[r], headers_[r], bound_, std::span(frame(r) + sizeof(Header), bytes), r, chunk) && good;
    }
    if (good) decode(chunk);
    result_.decode_s += span("decode", chunk, begin);
  }

  std::uint64_t body_bytes() const { return frame_bytes_ - sizeof(Header); }
  int exponent(std::size_t r) const { return static_cast<int>(headers_[r].wire_us); }

  void decode(std::uint64_t chunk) {
    result_.exponent = exponent(0);
    bool alike = true;
    for (std::size_t r = 1; r < ranks(); ++r) {
      alike = alike && exponent(r) == exponent(0);
      result_.exponent = std::max(result_.exponent, exponent(r));
    }
    if (alike) {
      add(decoding_, bound_, views_, chunk);
      start_decode(decoding_);
      finish_decode(decoding_);
    } else {
      add_scaled(chunk);
    }
  }

  // Payloads of values in units of their own, one after another.
  void add_scaled(std::uint64_t chunk) try {
    std::vector<float> one(part_.count);
    float* const sums = call_.out;
    for (std::size_t r = 0; r < ranks(); ++r) {
      int bad = Decoding::kUnknown;
      DecodeJob job{
          codec(), bound_.partition(), {&views_[r], 1}, {bound_.begin(), call_.sequence, 0}, one.data(), false, 0,
          &bad};
      backend_.finish_decode(backend_.start_decode({&job, 1}, mover()), mover());
      if (bad >= 0) return blame(r, chunk, "a piece of it is malformed");
      // Below 2^-126 of the largest rank's unit there is nothing of a float's left.
      const float unit = std::ldexp(1.0f, std::max(exponent(r) - result_.exponent, -149));
      for (std::size_t g = 0; g < slice_.segments.size(); ++g) {
        const Group& group = bound_.partition().groups()[g];
        for (std::uint64_t i = group.offset; i < group.offset + group.count; ++i)
          sums[i] = (r == 0 ? 0.0f : sums[i]) + unit * one[i];
      }
    }
  } catch (const std::exception& e) {
    failed(e);
  }

  const Slice& slice_;
  const std::uint64_t frame_bytes_;
  Header header_;
  std::vector<Header> headers_;
  std::vector<BodyView> views_;
  BoundSlice bound_;
  Encoding encoding_;
  Decoding decoding_;
  std::uint8_t *mine_ = nullptr, *frames_ = nullptr;
  Transport::Ticket ticket_ = kNothing;
};

constexpr OneShot::Step OneShot::kSteps[] = {
    {0, &OneShot::send},
    {0, &OneShot::sum, &OneShot::frames_due},
};

std::unique_ptr<Exchange> OneShotRoute::exchange(Transport& transport, const CallBuffers& call, Workers& workers,
                                                 Trace* trace) const {
  return std::make_unique<OneShot>(transport, *this, call, workers, trace);
}

}  // namespace

std::uint64_t frame_bytes(const RoutePlan& route) { return static_cast<const OneShotRoute&>(route).frame_bytes; }

AlgorithmEntry one_shot_algorithm() {
  return {
      .algorithm = Algorithm::one_shot,
      .name = "one_shot",
      .summary = "every payload to every rank in one exchange, as long as its bound",
      .needs = [](const Codec&, int) { return std::string("it is for sums that do not block (MPI_Iallreduce)"); },
      .chunk_elements = [](std::uint64_t, const Codec&, int) { return kWholeCall; },
      .plan = [](const PartPlan& part, std::uint64_t chunk, int ranks) -> std::unique_ptr<RoutePlan> {
        return std::make_unique<OneShotRoute>(part, chunk, ranks);
      },
      .cost = nullptr,
  };
}

}  // namespace crimp
