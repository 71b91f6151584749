// Every rank receives its share of the sums alone (PartPlan::shares): the first of two_shot's two shots. Alltoall of
// encoded shares; each rank decodes all ranks' in rank order, and what it has then is its result: nothing is encoded
// twice, so there are no residuals but the senders'. A sum for a root is a share of all for one rank. Received by a
// rank: n - 1 payloads of its share.
//
// A chunk is a part of every rank's share, so that all links and all ranks are busy in each.
#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/pipeline.hpp"

namespace crimp {
namespace {

// In step t: chunk t+1 is encoded, t's bodies leave, t-1's are summed.
constexpr std::size_t kChunkSlots = 3, kSendSlots = 3, kReceiveSlots = 2;

// A rank receives so many bodies of its run at once.
std::uint64_t most_of_run(const Codec& codec, std::uint64_t ranks) {
  const std::uint64_t piece = codec.piece_bound(kPieceElements) + kPayloadAlign;
  return std::max<std::uint64_t>(1, kReceiveBudget / (kReceiveSlots * ranks * piece)) * kPieceElements;
}

class ReduceScatterRoute final : public ChunkedRoute {
 public:
  ReduceScatterRoute(const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : ChunkedRoute(Algorithm::reduce_scatter, of, cut(of, chunk_elements, transport_ranks), transport_ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    for (std::size_t i = 0; i < rounds(); ++i) {
      auto& of_round = offsets.emplace_back(1, 0);
      for (std::size_t q = 0; q < n; ++q) {
        const std::uint64_t body = run(i, q).partition.body_bound(*part.codec);
        largest_run = std::max(largest_run, body);
        of_round.push_back(of_round.back() + body);
      }
      all_runs = std::max(all_runs, of_round.back());
    }
    set_bytes(kSendSlots * Arena::padded(all_runs) + kReceiveSlots * Arena::padded(n * largest_run));
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  // A round's runs are encoded together.
  void prepare(Backend& backend) const override {
    ChunkedRoute::prepare(backend);
    if (!backend.asynchronous()) return;
    for (std::size_t i = 0; i < rounds(); ++i) {
      ChunkPartition all;
      for (std::size_t q = 0; q < static_cast<std::size_t>(ranks); ++q)
        for (const Group& group : run(i, q).partition.groups()) all.add_group(group.count);
      backend.prepare(*part.codec, all, ranks);
    }
  }

  std::size_t rounds() const { return chunks().size() / static_cast<std::size_t>(ranks); }
  const Slice& run(std::size_t round, std::size_t rank) const {
    return chunks()[round * static_cast<std::size_t>(ranks) + rank];
  }

  std::vector<std::vector<std::uint64_t>> offsets;  // of a chunk's bodies behind one another, in their bounds
  std::uint64_t all_runs = 0, largest_run = 0;      // bounds of the bodies of a chunk, and of one

 private:
  // A share's pieces are dealt to as many chunks as the elements, or the largest share, need.
  static Runs cut(const PartPlan& of, std::uint64_t chunk, int ranks) {
    const Shares& shares = *of.shares;
    const std::uint64_t rounds =
        std::max({std::uint64_t{1}, div_up(of.count, chunk),
                  div_up(shares.largest(), most_of_run(*of.codec, static_cast<std::uint64_t>(ranks)))});
    Runs runs{{}, static_cast<std::size_t>(ranks), 0};
    const auto step = [&](int r) { return round_up(div_up(shares.of(r).count(), rounds), kPieceElements); };
    for (std::uint64_t i = 0; i < rounds; ++i)
      for (int r = 0; r < ranks; ++r) {
        const Shares::Run share = shares.of(r);
        runs.runs.push_back(
            {std::min(share.begin + i * step(r), share.end), std::min(share.begin + (i + 1) * step(r), share.end)});
      }
    for (int r = 0; r < ranks; ++r) runs.elements += step(r);
    runs.elements = std::max(runs.elements, kPieceElements);
    // Rounded steps may leave nothing for the last ones.
    const auto none = [](const Shares::Run& run) { return run.count() == 0; };
    while (runs.runs.size() > runs.at_once && std::all_of(runs.runs.end() - ranks, runs.runs.end(), none))
      runs.runs.resize(runs.runs.size() - runs.at_once);
    return runs;
  }
};

class ReduceScatter final : public Rounds<ReduceScatter> {
 public:
  ReduceScatter(Transport& transport, const ReduceScatterRoute& route, const CallBuffers& call, Workers& workers,
                Trace* trace)
      : Rounds(transport, workers, route, call, trace, route.rounds()), plan_(route), largest_(route.largest_run),
        header_bytes_(ranks(), sizeof(Header)), header_offsets_(ranks()), body_offsets_(ranks()), send_(ranks()),
        receive_(ranks()), views_(ranks()) {
    for (std::size_t r = 0; r < ranks(); ++r) header_offsets_[r] = r * sizeof(Header), body_offsets_[r] = r * largest_;
    for (auto& chunk : chunk_) {
      chunk.runs.resize(ranks());
      chunk.encoding.reserve(ranks());
      chunk.mine.resize(ranks());
      chunk.received.resize(ranks());
      chunk.offsets.resize(ranks());
    }
    decoding_.reserve(1);
    if (!call.arena) return;
    const auto take = [&](auto& slots, std::uint64_t bytes) {
      for (auto& slot : slots) slot = reinterpret_cast<std::uint8_t*>(call.arena->take(bytes));
    };
    take(leaving_, route.all_runs);
    take(arriving_, ranks() * largest_);
    begin(route);
  }

 private:
  struct Chunk {
    std::vector<BoundSlice> runs;  // of each rank's share
    std::vector<Header> mine, received;
    Encoding encoding;
    std::vector<std::uint64_t> offsets;  // of the bodies as they arrive
    Transport::Ticket headers = kNothing, bodies = kNothing;
  };
  Chunk& chunk(std::uint64_t i) { return chunk_[i % kChunkSlots]; }

  friend class Rounds<ReduceScatter>;
  static const Step kSteps[4];
  Transport::Ticket headers_of(std::uint64_t i) { return chunk(i).headers; }
  Transport::Ticket bodies_of(std::uint64_t i) { return chunk(i).bodies; }

  void encode(std::uint64_t i) {
    const auto begin = Clock::now();
    Chunk& c = chunk(i);
    std::uint64_t place = 0;
    for (std::size_t q = 0; q < ranks(); ++q) {
      const Slice& run = plan_.run(i, q);
      bind(c.runs[q], run, i, place);
      place += run.partition.count();
      c.mine[q] = header(i, run.partition.count());
    }
    for (std::size_t q = 0; q < ranks(); ++q)
      add(c.encoding, c.mine[q], c.runs[q], call_.in + c.runs[q].begin(), encoder(),
          leaving_[i % kSendSlots] + plan_.offsets[i][q]);
    start_encode(c.encoding);
    note_encode(c.mine, i, begin);
  }

  void start_headers(std::uint64_t i) {
    Chunk& c = chunk(i);
    if (backend_.asynchronous()) {
      const auto begin = Clock::now();
      finish_encode(c.encoding);
      note_encode(c.mine, i, begin);
    }
    // What ends the call must be seen by all, whoever gets the body.
    std::uint8_t flags = 0;
    for (const auto& h : c.mine) flags |= static_cast<std::uint8_t>(h.flags & ~kFlagCorrupt);
    if (flags)
      for (auto& h : c.mine) h.flags |= flags, h.body_bytes = h.body_hash = 0;
    c.headers = under_way(transport_.start_alltoallv(c.mine.data(), header_bytes_, header_offsets_, c.received.data(),
                                                     header_bytes_, header_offsets_));
    result_.sent_bytes += (ranks() - 1) * sizeof(Header);
    result_.received_bytes += (ranks() - 1) * sizeof(Header);
  }

  void accept_headers(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(c.headers, i);
    const bool first = !committed();
    if (!accept(c.received)) return end();
    if (first)
      for (std::uint64_t early = 0; early < std::min<std::uint64_t>(2, chunks()); ++early)
        commit(chunk(early).runs, chunk(early).mine);
    // What ranks announced, within what it can have.
    for (std::size_t r = 0; r < ranks(); ++r) {
      send_[r] = std::min(c.mine[r].body_bytes, largest_);
      receive_[r] = std::min(c.received[r].body_bytes, largest_);
      if (r == rank()) continue;
      result_.sent_bytes += send_[r];
      result_.received_bytes += receive_[r];
    }
    place(receive_, body_offsets_, c.offsets);
    c.bodies = under_way(transport_.start_alltoallv(leaving_[i % kSendSlots], send_,
                                                    std::span(plan_.offsets[i]).first(ranks()),
                                                    arriving_[i % kReceiveSlots], receive_, c.offsets));
  }

  void sum(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(c.bodies, i);
    const auto begin = Clock::now();
    std::uint8_t* const bodies = arriving_[i % kReceiveSlots];
    const BoundSlice& own = c.runs[rank()];
    const bool good =
        open_all(views_, c.received, own, i, largest_, [&](std::size_t r) { return bodies + c.offsets[r]; });
    if (good && own.partition().count() > 0) {
      add(decoding_, own, views_, i, out(own));
      start_decode(decoding_);
      finish_decode(decoding_);
    }
    result_.decode_s += span("sum", i, begin);
  }

  const ReduceScatterRoute& plan_;
  const std::uint64_t largest_;  // bound of a body
  std::vector<std::uint64_t> header_bytes_, header_offsets_, body_offsets_, send_, receive_;
  Chunk chunk_[kChunkSlots];
  std::uint8_t *leaving_[kSendSlots] = {}, *arriving_[kReceiveSlots] = {};
  std::vector<BodyView> views_;
  Decoding decoding_;
};

constexpr ReduceScatter::Step ReduceScatter::kSteps[] = {
    {0, &ReduceScatter::encode},
    {1, &ReduceScatter::accept_headers, &ReduceScatter::headers_of},
    {0, &ReduceScatter::start_headers},
    {2, &ReduceScatter::sum, &ReduceScatter::bodies_of},
};

std::unique_ptr<Exchange> ReduceScatterRoute::exchange(Transport& transport, const CallBuffers& call, Workers& workers,
                                                       Trace* trace) const {
  return std::make_unique<ReduceScatter>(transport, *this, call, workers, trace);
}

}  // namespace

AlgorithmEntry reduce_scatter_algorithm() {
  return {
      .algorithm = Algorithm::reduce_scatter,
      .name = "reduce_scatter",
      .summary = "alltoall of payloads of shares, sums by who receives them",
      .chunk_elements =
          [](std::uint64_t setting, const Codec&, int ranks) {
            const auto n = static_cast<std::uint64_t>(ranks);
            return round_up(std::max<std::uint64_t>(1, setting / kPieceElements), n) * kPieceElements;
          },
      .plan = [](const PartPlan& part, std::uint64_t chunk, int ranks) -> std::unique_ptr<RoutePlan> {
        return std::make_unique<ReduceScatterRoute>(part, chunk, ranks);
      },
      .cost =
          [](const CostQuery& q) {
            const double n = q.network.ranks, m = q.per_chunk(), share = q.share * m;
            const double wire = q.network.alltoall.at((n - 1) * sizeof(Header)) +
                                q.network.alltoall.at((n - 1) * share * q.codec.payload_bytes);
            return pipelined(q.chunks(), m * q.codec.encode_s + share * q.codec.sum_s(n) + 2 * q.codec.launch_s, wire);
          },
      .any_backend = true,
      .converts = true,
  };
}

}  // namespace crimp
