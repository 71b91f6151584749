// Every rank sends every other one frame, a header and a body as long as its bound, in a single exchange; every rank
// decodes all that it has received, its own too, in rank order 0..N-1. All of a call's frames are encoded before they
// leave, and nothing but that one exchange is waited for: what a call that does not block can do without anybody's help
// (MPI's progress rule), and what takes a short call that does block half of allgather's messages. Its bits are
// those of allgather in one chunk.
//
// A frame holds the whole call, the same for all ranks, or where ranks receive shares that rank's share. Who has no
// share receives nothing.
#include "collective/one_shot.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/pipeline.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

// In place of an exponent: the payload decodes to zeros, which no unit changes.
constexpr int kAnyUnit = std::numeric_limits<int>::min();

// One chunk, however long the call is.
constexpr std::uint64_t kWholeCall = (std::uint64_t{1} << 40) * kPieceElements;

class OneShotRoute final : public ChunkedRoute {
 public:
  OneShotRoute(const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : ChunkedRoute(Algorithm::one_shot, of, cut(of, chunk_elements, transport_ranks), transport_ranks) {
    for (const Slice& run : chunks()) {
      const std::uint64_t count = run.partition.count();
      const bool none = part.shares && count == 0;
      // Also of a part that is declined, whose rank sends as much as the others.
      frames.push_back(none ? 0 : sizeof(Header) + body_bound(*part.codec, *part.layout, run.begin, run.begin + count));
      offsets.push_back(all_frames);
      all_frames += frames.back();
      largest_frame = std::max(largest_frame, frames.back());
    }
    room = all_frames + static_cast<std::uint64_t>(ranks) * largest_frame;
    set_bytes(Arena::padded(all_frames) + Arena::padded(static_cast<std::uint64_t>(ranks) * largest_frame));
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  // Of the frames that a rank receives.
  std::size_t own(std::size_t rank) const { return part.shares ? rank : 0; }

  std::vector<std::uint64_t> frames, offsets;  // of each rank's share, or one; bytes, multiples of kPayloadAlign
  std::uint64_t all_frames = 0, largest_frame = 0;

 private:
  static Runs cut(const PartPlan& of, std::uint64_t setting, int ranks) {
    const std::uint64_t chunk = std::max(setting, of.count);
    if (!of.shares) return {{{0, of.count}}, 1, chunk};
    Runs runs{{}, static_cast<std::size_t>(ranks), chunk};
    for (int r = 0; r < ranks; ++r) runs.runs.push_back(of.shares->of(r));
    return runs;
  }
};

class OneShot final : public Rounds<OneShot> {
 public:
  OneShot(Transport& transport, const OneShotRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : Rounds(transport, workers, route, call, trace, 1), plan_(route), frame_bytes_(route.frames[route.own(rank())]),
        bounds_(route.frames.size()), mine_(route.frames.size()), headers_(ranks()), views_(ranks()) {
    if (part_.shares)
      for (std::size_t r = 0; r < ranks(); ++r)
        bytes_due_.push_back(frame_bytes_), offsets_due_.push_back(r * frame_bytes_);
    encoding_.reserve(1);
    decoding_.reserve(1);
    if (call.room) leaving_ = call.room, arrived_ = call.room + route.all_frames;
    if (!call.arena) return;
    auto* const leaving = reinterpret_cast<std::uint8_t*>(call.arena->take(route.all_frames));
    auto* const arrived = reinterpret_cast<std::uint8_t*>(call.arena->take(ranks() * frame_bytes_));
    if (!call.room) leaving_ = leaving, arrived_ = arrived;
    begin(route);
  }

 private:
  friend class Rounds<OneShot>;
  static const Step kSteps[2];
  Transport::Ticket frames_due(std::uint64_t) { return ticket_; }

  // A rank without an arena sends as many bytes as the others, which wait for them: a call that blocks has had the room
  // before all else (CallBuffers::room), and who starts one that does not has its arena first.
  void find_room() try {
    const std::uint64_t bytes = plan_.all_frames + ranks() * frame_bytes_;
    insist([&] { room_.resize(bytes); });
    leaving_ = room_.data();
    arrived_ = leaving_ + plan_.all_frames;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::out_of_memory, "no memory for a call's frames");
  }

  void send(std::uint64_t chunk) {
    if (!leaving_) find_room();
    const auto begin = Clock::now();
    std::uint8_t flags = 0;
    for (std::size_t q = 0; q < mine_.size(); ++q) {
      bind(bounds_[q], plan_.chunks()[q], chunk);
      mine_[q] = header(chunk, bounds_[q].partition().count());
      if (plan_.frames[q] == 0) continue;
      add(encoding_, mine_[q], bounds_[q], call_.in + bounds_[q].begin(), encoder(),
          leaving_ + plan_.offsets[q] + sizeof(Header));
      start_encode(encoding_);
      finish_encode(encoding_);
      flags |= mine_[q].flags;
    }
    note_encode(mine_, chunk, begin);
    for (std::size_t q = 0; q < mine_.size(); ++q) {
      Header& h = mine_[q];
      // What is wrong with one share of this rank's is said to all.
      if (flags & ~kFlagCorrupt) h.flags |= flags, h.body_bytes = h.body_hash = 0;
      h.wire_us = static_cast<std::uint32_t>(call_.zeros ? kAnyUnit : call_.exponent);
      if (plan_.frames[q]) std::memcpy(leaving_ + plan_.offsets[q], &h, sizeof h);
    }
    if (part_.shares) {
      ticket_ = under_way(
          transport_.start_alltoallv(leaving_, plan_.frames, plan_.offsets, arrived_, bytes_due_, offsets_due_));
      result_.sent_bytes += plan_.all_frames - frame_bytes_;
    } else {
      ticket_ = under_way(transport_.start_allgather(leaving_, arrived_, frame_bytes_));
      result_.sent_bytes += frame_bytes_;
    }
    result_.received_bytes += (ranks() - 1) * frame_bytes_;
  }

  std::uint8_t* frame(std::size_t r) { return arrived_ + r * frame_bytes_; }
  const BoundSlice& own() const { return bounds_[plan_.own(rank())]; }

  // Frames of other lengths, as of a call that a rank has cut into other tensors, MPI itself may refuse.
  void arrive(std::uint64_t chunk) try { wait(ticket_, chunk); } catch (const Error& e) {
    if (e.code() != ErrorCode::transport_failed || part_.shares) throw;
    throw Error(ErrorCode::call_differs,
                std::string("ranks are not in the same MPI_Allreduce, or MPI failed: ") + e.what(), e.mpi_code());
  }

  void sum(std::uint64_t chunk) {
    arrive(chunk);
    if (frame_bytes_ == 0) return end();
    for (std::size_t r = 0; r < ranks(); ++r) std::memcpy(&headers_[r], frame(r), sizeof(Header));
    if (!accept(headers_)) return end();
    commit(bounds_, mine_);
    const auto begin = Clock::now();
    const std::uint64_t most = frame_bytes_ - sizeof(Header);
    if (open_all(views_, headers_, own(), chunk, most, [&](std::size_t r) { return frame(r) + sizeof(Header); }))
      decode(chunk);
    result_.decode_s += span("decode", chunk, begin);
  }

  int exponent(std::size_t r) const { return static_cast<int>(headers_[r].wire_us); }

  void decode(std::uint64_t chunk) {
    int most = kAnyUnit;
    bool alike = true;
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (exponent(r) == kAnyUnit) continue;
      alike = alike && (most == kAnyUnit || most == exponent(r));
      most = std::max(most, exponent(r));
    }
    result_.exponent = most == kAnyUnit ? 0 : most;
    if (alike) {
      add(decoding_, own(), views_, chunk, out(own()));
      start_decode(decoding_);
      finish_decode(decoding_);
    } else {
      add_scaled(chunk);
    }
  }

  // Payloads of values in units of their own, one after another.
  void add_scaled(std::uint64_t chunk) try {
    const Slice& slice = *own().slice;
    std::vector<float> one(part_.shares ? part_.shares->of(static_cast<int>(rank())).count() : part_.count);
    float* const sums = call_.out.floats() + (slice.begin - call_.out_begin);
    for (std::size_t r = 0; r < ranks(); ++r) {
      int bad = Decoding::kUnknown;
      DecodeJob job{codec(), slice.partition, {&views_[r], 1}, {slice.begin, call_.sequence, 0}, one.data(), false, 0,
                    &bad};
      backend_.finish_decode(backend_.start_decode({&job, 1}, mover()), mover());
      if (bad >= 0) return blame(r, chunk, "a piece of it is malformed");
      // Below 2^-126 of the largest rank's unit there is nothing of a float's left.
      const float unit = exponent(r) == kAnyUnit ? 1 : std::ldexp(1.0f, std::max(exponent(r) - result_.exponent, -149));
      for (const Group& group : slice.partition.groups())
        for (std::uint64_t i = group.offset; i < group.offset + group.count; ++i)
          sums[i] = (r == 0 ? 0.0f : sums[i]) + unit * one[i];
    }
  } catch (const std::exception& e) {
    failed(e);
  }

  const OneShotRoute& plan_;
  const std::uint64_t frame_bytes_;                     // that this rank receives from each
  std::vector<std::uint64_t> bytes_due_, offsets_due_;  // of shares
  std::vector<BoundSlice> bounds_;
  std::vector<Header> mine_, headers_;
  std::vector<BodyView> views_;
  Encoding encoding_;
  Decoding decoding_;
  std::uint8_t *leaving_ = nullptr, *arrived_ = nullptr;
  std::vector<std::uint8_t> room_;  // where the call has no arena
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

std::uint64_t frame_bytes(const RoutePlan& route) { return static_cast<const OneShotRoute&>(route).largest_frame; }

std::uint64_t frame_bytes(const Codec& codec, const Layout& layout, std::uint64_t chunk_setting) {
  const std::uint64_t count =
      layout.segments.empty() ? 0 : layout.segments.back().offset + layout.segments.back().count;
  // Where chunks end pieces do.
  const bool chunked = count > (chunk_setting ? chunk_setting : kDefaultChunk);
  return chunked || codec.traits().whole_tensors ? 0 : sizeof(Header) + body_bound(codec, layout, 0, count);
}

OneShotTraffic one_shot_traffic(const RoutePlan& plan) {
  const auto& route = static_cast<const OneShotRoute&>(plan);
  const auto n = static_cast<std::uint64_t>(route.ranks);
  const std::uint64_t element = size_of(route.part.dtype), values = route.part.count * element;
  OneShotTraffic traffic{0, 0, n * route.largest_frame};
  if (!route.part.shares) {
    traffic.moved = traffic.frames;
    traffic.plain = 2 * values;
    return traffic;
  }
  for (int r = 0; r < route.ranks; ++r) {
    const std::uint64_t frame = route.frames[static_cast<std::size_t>(r)];
    const std::uint64_t share = route.part.shares->of(r).count() * element;
    traffic.moved = std::max({traffic.moved, (n - 1) * frame, route.all_frames - frame});
    traffic.plain = std::max({traffic.plain, share, values - share});
  }
  return traffic;
}

AlgorithmEntry one_shot_algorithm() {
  return {
      .algorithm = Algorithm::one_shot,
      .name = "one_shot",
      .summary = "allgather of short calls: every payload with its header in one exchange, as long as its bound",
      .chunk_elements = [](std::uint64_t, const Codec&, int) { return kWholeCall; },
      .plan = [](const PartPlan& part, std::uint64_t chunk, int ranks) -> std::unique_ptr<RoutePlan> {
        return std::make_unique<OneShotRoute>(part, chunk, ranks);
      },
      .cost =
          [](const CostQuery& q) {
            const double n = q.network.ranks;
            return q.elements() * (q.codec.encode_s + q.codec.sum_s(n)) +
                   q.network.allgather.at((n - 1) * static_cast<double>(q.frame_bytes));
          },
      .one_exchange = true,
  };
}

}  // namespace crimp
