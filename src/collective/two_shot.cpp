// Alltoall of encoded shards; the owner of a shard decodes all ranks' in rank order, encodes the sum once more, with a
// residual of its own for what that loses, and an allgather takes it to all ranks. Received per rank: 2 (n-1)/n of a
// payload, whatever the ranks. By relays (shard_relays.hpp) the same in fewer messages, with
// more bytes.
#include <algorithm>
#include <optional>

#include "collective/algorithms.hpp"
#include "collective/pipeline.hpp"
#include "collective/shard_relays.hpp"

namespace crimp {
namespace {

// In step t: chunk t+1 is encoded, t's shards leave, t-1's are summed, t-2's sums leave, t-3's are decoded.
constexpr std::size_t kChunkSlots = 5, kSendSlots = 3, kReceiveSlots = 2;

// Where a chunk's shards end, in elements from its start: runs of whole pieces, as equal as pieces allow.
std::vector<std::uint64_t> shard_borders(const ChunkPartition& partition, std::size_t ranks) {
  const auto pieces = partition.pieces();
  std::vector<std::uint64_t> borders(ranks + 1);
  for (std::size_t q = 1; q < ranks; ++q) {
    const std::size_t first = pieces.size() * q / ranks;
    borders[q] = first == 0 ? 0 : first == pieces.size() ? partition.count() : pieces[first].offset;
  }
  borders[ranks] = partition.count();
  return borders;
}

// A chunk's shards, one for each rank, which owns it.
struct Shards {
  std::vector<Slice> slices;
  std::vector<std::uint64_t> offsets;  // of their bodies behind one another, in their bounds; ranks + 1 of them
};

class TwoShotRoute final : public ChunkedRoute {
 public:
  TwoShotRoute(const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks, int relay_radix)
      : ChunkedRoute(Algorithm::two_shot, of, chunk_elements, transport_ranks),
        radix(transport_ranks > 1 ? relay_radix : 1) {
    const auto n = static_cast<std::size_t>(ranks);
    for (const Slice& whole : chunks()) {
      const auto borders = shard_borders(whole.partition, n);
      Shards& all = shards.emplace_back(Shards{{}, {0}});
      for (std::size_t q = 0; q < n; ++q) {
        const std::uint64_t body =
            all.slices.emplace_back(slice(whole.begin + borders[q], whole.begin + borders[q + 1]))
                .partition.body_bound(*part.codec);
        largest_shard = std::max(largest_shard, body);
        most_elements = std::max(most_elements, all.slices.back().partition.count());
        all.offsets.push_back(all.offsets.back() + body);
      }
      all_shards = std::max(all_shards, all.offsets.back());
    }
    set_bytes(
        (kSendSlots + kReceiveSlots) * Arena::padded(all_shards) + kReceiveSlots * Arena::padded(n * largest_shard) +
            (radix > 1 ? ShardRelays::transit_bytes(n, largest_shard) : 0) + kSendSlots * Arena::padded(largest_shard),
        Arena::padded(sums_bytes()));
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  std::vector<Shares::Run> owned(int rank) const override {
    std::vector<Shares::Run> runs;
    for (const Shards& of : shards) {
      const Slice& own = of.slices[static_cast<std::size_t>(rank)];
      runs.push_back({own.begin, own.begin + own.partition.count()});
    }
    return runs;
  }
  std::uint64_t footprint() const override {
    std::uint64_t sum = ChunkedRoute::footprint();
    for (const Shards& of : shards)
      for (const Slice& slice : of.slices) sum += slice.footprint();
    return sum;
  }

  // Of float32, where the values of calls are of another type.
  std::uint64_t sums_bytes() const { return part.dtype == Dtype::f32 ? 0 : most_elements * sizeof(float); }

  const int radix;                                  // of relays; 1: there are none
  std::vector<Shards> shards;                       // of each chunk
  std::uint64_t all_shards = 0, largest_shard = 0;  // bounds of the bodies of a chunk, and of a shard
  std::uint64_t most_elements = 0;                  // of a shard
};

class TwoShot final : public Rounds<TwoShot> {
 public:
  TwoShot(Transport& transport, const TwoShotRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : Rounds(transport, workers, route, call, trace, route.chunks().size()), plan_(route),
        largest_(route.largest_shard), header_bytes_(ranks(), sizeof(Header)), header_offsets_(ranks()),
        shard_offsets_(ranks()), announced_(2 * ranks()), views_(ranks()) {
    for (std::size_t r = 0; r < ranks(); ++r) header_offsets_[r] = r * sizeof(Header), shard_offsets_[r] = r * largest_;
    for (auto& chunk : chunk_) {
      chunk.shards.resize(ranks());
      chunk.encoding.reserve(ranks());
      chunk.decoding.reserve(ranks());
      for (auto* headers : {&chunk.mine, &chunk.scattered, &chunk.gathered}) headers->resize(ranks());
      chunk.offsets.resize(ranks());
      chunk.sum_offsets.resize(ranks());
    }
    encoding_of_sum_.reserve(1);
    decoding_of_sum_.reserve(1);
    decoding_of_sum_.read_again = true;
    if (route.radix > 1)
      relays_.emplace(
          transport, route.radix, largest_, [this](Transport::Ticket t, std::uint64_t i) { wait(t, i); },
          [this](const Relay& step) { relayed(step); });
    if (!call.arena) return;
    const auto take = [&](auto& slots, std::uint64_t bytes) {
      for (auto& slot : slots) slot = reinterpret_cast<std::uint8_t*>(call.arena->take(bytes));
    };
    take(scatter_, route.all_shards);
    take(scattered_, ranks() * largest_);
    take(sum_, largest_);
    take(gathered_, route.all_shards);
    if (relays_) relays_->take(*call.arena);
    begin(route);
    if (call.out.type != Dtype::f32) sums_ = reinterpret_cast<float*>(values().take(route.sums_bytes()));
  }

 private:
  using Kind = ShardRelays::Kind;
  using enum ShardRelays::Kind;
  struct Chunk {
    std::uint64_t count = 0;
    std::vector<BoundSlice> shards;
    std::vector<Header> mine, scattered, gathered;  // to each rank, from each rank; of the sums
    Header sum;
    Encoding encoding;  // of all shards
    Decoding decoding;
    std::vector<std::uint64_t> offsets, sum_offsets;  // of the shards' and the sums' bodies as they arrive
    Transport::Ticket tickets[kKinds] = {};           // of its exchanges, where there are no relays
  };
  Chunk& chunk(std::uint64_t i) { return chunk_[i % kChunkSlots]; }

  friend class Rounds<TwoShot>;
  static const Step kSteps[7];
  Transport::Ticket turn_of(std::uint64_t) { return relays_ ? relays_->turn() : kNothing; }
  Transport::Ticket due(Kind kind, std::uint64_t i) { return relays_ ? relays_->due(kind, i) : chunk(i).tickets[kind]; }
  Transport::Ticket headers_of(std::uint64_t i) { return due(kHeaders, i); }
  Transport::Ticket bodies_of(std::uint64_t i) { return due(kBodies, i); }
  Transport::Ticket sum_headers_of(std::uint64_t i) { return due(kSumHeaders, i); }
  Transport::Ticket sum_bodies_of(std::uint64_t i) {
    const Transport::Ticket last = due(kSumBodies, i);
    return last == kNothing ? turn_of(i) : last;
  }

  // Whether a chunk's exchange has brought all; else the step comes again.
  bool arrived(Kind kind, std::uint64_t i) {
    const bool led_on = relays_ && relays_->lead_on(kind, i);
    if (led_on) again();
    if (!relays_) wait(chunk(i).tickets[kind], i);
    return !led_on;
  }
  // work(first, last) for all shards; where there are relays in parts, between which these are led on.
  template <class Work>
  void in_parts(Work work) {
    if (!relays_) return work(0, ranks());
    if (relays_->in_parts(work)) again();
  }
  void relayed(const Relay& step) {
    under_way(step.ticket());
    result_.sent_bytes += step.sent_bytes();
    result_.received_bytes += step.received_bytes();
  }

  void encode_shards(std::uint64_t i) {
    in_parts([&](std::size_t first, std::size_t last) {
      const auto begin = Clock::now();
      Chunk& c = chunk(i);
      const Shards& shards = plan_.shards[i];
      if (first == 0) {
        c.count = plan_.chunks()[i].partition.count();
        for (std::size_t q = 0; q < ranks(); ++q) bind(c.shards[q], shards.slices[q], i);
        for (auto& h : c.mine) h = header(i, c.count);
      }
      for (std::size_t q = first; q < last; ++q)
        add(c.encoding, c.mine[q], c.shards[q], call_.in + c.shards[q].begin(), encoder(),
            scatter_[i % kSendSlots] + shards.offsets[q]);
      start_encode(c.encoding);
      note_encode(c.mine, i, begin);
    });
  }

  void finish_shards(std::uint64_t i) {
    Chunk& c = chunk(i);
    if (backend_.asynchronous()) {
      const auto begin = Clock::now();
      finish_encode(c.encoding);
      note_encode(c.mine, i, begin);
    }
    // What ends the call must be seen by all, whoever gets the shard.
    std::uint8_t flags = 0;
    for (const auto& h : c.mine) flags |= static_cast<std::uint8_t>(h.flags & ~kFlagCorrupt);
    if (flags)
      for (auto& h : c.mine) h.flags |= flags, h.body_bytes = h.body_hash = 0;
  }

  void start_headers(std::uint64_t i) {
    finish_shards(i);
    Chunk& c = chunk(i);
    if (relays_) return relays_->scatter_headers(i, c.mine, c.scattered);
    c.tickets[kHeaders] = under_way(transport_.start_alltoallv(c.mine.data(), header_bytes_, header_offsets_,
                                                               c.scattered.data(), header_bytes_, header_offsets_));
    result_.sent_bytes += (ranks() - 1) * sizeof(Header);
    result_.received_bytes += (ranks() - 1) * sizeof(Header);
  }

  void accept_headers(std::uint64_t i) {
    if (!arrived(kHeaders, i)) return;
    const bool first = !committed();
    if (!accept(chunk(i).scattered)) return end();
    if (first)
      for (std::uint64_t early = 0; early < std::min<std::uint64_t>(2, chunks()); ++early)
        commit(chunk(early).shards, chunk(early).mine);
    start_shards(i);
  }

  // What ranks announced of a body, within what it can have.
  std::span<const std::uint64_t> announced(const std::vector<Header>& headers, std::uint64_t most,
                                           std::size_t place = 0) {
    const auto bytes = std::span(announced_).subspan(place * ranks(), ranks());
    for (std::size_t r = 0; r < ranks(); ++r) bytes[r] = std::min(headers[r].body_bytes, most);
    return bytes;
  }
  void count_received(std::span<const std::uint64_t> bytes) {
    for (std::size_t r = 0; r < ranks(); ++r) result_.received_bytes += r == rank() ? 0 : bytes[r];
  }

  void start_shards(std::uint64_t i) {
    Chunk& c = chunk(i);
    if (relays_) {
      std::copy(shard_offsets_.begin(), shard_offsets_.end(), c.offsets.begin());
      return relays_->scatter(i, scatter_[i % kSendSlots], shard_offsets(i), scattered_[i % kReceiveSlots]);
    }
    const auto bytes = announced(c.scattered, largest_), send = announced(c.mine, largest_, 1);
    place(bytes, shard_offsets_, c.offsets);
    c.tickets[kBodies] = under_way(transport_.start_alltoallv(scatter_[i % kSendSlots], send, shard_offsets(i),
                                                              scattered_[i % kReceiveSlots], bytes, c.offsets));
    for (std::size_t r = 0; r < ranks(); ++r) result_.sent_bytes += r == rank() ? 0 : send[r];
    count_received(bytes);
  }

  // Where the owner's sums stand until they are encoded: in the result's place, if that holds float32.
  float* sums(const BoundSlice& own) const { return sums_ ? sums_ : out(own).floats(); }
  // The owner's part.
  void sum(std::uint64_t i) {
    if (!arrived(kBodies, i)) return;
    Chunk& c = chunk(i);
    auto begin = Clock::now();
    std::uint8_t* const bodies = scattered_[i % kReceiveSlots];
    BoundSlice& own = c.shards[rank()];
    bool good = open_all(views_, c.scattered, own, i, largest_, [&](std::size_t r) { return bodies + c.offsets[r]; });
    if (good) {
      add(decoding_of_sum_, own, views_, i, sums(own));
      start_decode(decoding_of_sum_);
      good = finish_decode(decoding_of_sum_);
    }
    result_.decode_s += span("sum", i, begin);
    begin = Clock::now();
    c.sum = header(i, c.count, 1);
    if (!good) c.sum.flags = kFlagCorrupt;
    own.take(*own.slice, part_, call_, call_.owner_residuals, 1);
    for (FeedbackView& memory : own.feedback) memory.gain = 1.0f;  // the sum has it already
    leave_idle(own);
    add(encoding_of_sum_, c.sum, own, sums(own), kSums | encoder(), sum_[i % kSendSlots]);
    start_encode(encoding_of_sum_);
    finish_encode(encoding_of_sum_);
    result_.encode_s += span("encode", i, begin);
    if (relays_) return relays_->gather_headers(i, c.sum, c.gathered);
    c.tickets[kSumHeaders] = under_way(transport_.start_allgather(&c.sum, c.gathered.data(), sizeof(Header)));
    result_.sent_bytes += sizeof(Header);
    result_.received_bytes += (ranks() - 1) * sizeof(Header);
  }

  // What a rank left because it had no values, all have left where the sum has none.
  void leave_idle(BoundSlice& own) {
    if (call_.idle.empty()) return;
    const auto idle = [&](std::size_t g) { return call_.idle[own.slice->segments[g]]; };
    try {
      std::vector<Group> groups;
      for (std::size_t g = 0; g < own.feedback.size(); ++g)
        if (idle(g)) groups.push_back(own.partition().groups()[g]);
      const std::vector<bool> zeros = all_zeros(call_.backend, sums(own), groups);
      for (std::size_t g = 0, i = 0; g < own.feedback.size(); ++g)
        if (idle(g) && zeros[i++]) own.feedback[g] = {.turn = own.feedback[g].turn};
    } catch (const std::exception&) {  // what waits comes; a device that has failed cannot encode the sum either
    }
  }

  void start_sums(std::uint64_t i) {
    if (!arrived(kSumHeaders, i)) return;
    Chunk& c = chunk(i);
    accept(c.gathered);
    for (std::size_t q = 0; q < ranks(); ++q) announced_[q] = sum_bytes(i, q);
    const auto bytes = std::span<const std::uint64_t>(announced_).first(ranks());
    if (relays_) return relays_->gather(i, sum_[i % kSendSlots], bytes, gathered_[i % kReceiveSlots], c.sum_offsets);
    place(bytes, shard_offsets(i), c.sum_offsets);
    c.tickets[kSumBodies] = under_way(
        transport_.start_allgatherv(sum_[i % kSendSlots], bytes, c.sum_offsets, gathered_[i % kReceiveSlots]));
    result_.sent_bytes += bytes[rank()];
    count_received(bytes);
  }

  void decode(std::uint64_t i) {
    if (!arrived(kSumBodies, i)) return;
    Chunk& c = chunk(i);
    in_parts([&](std::size_t first, std::size_t last) {
      const auto begin = Clock::now();
      for (std::size_t q = first; q < last; ++q) {
        const BoundSlice& shard = c.shards[q];
        const std::span body(gathered_[i % kReceiveSlots] + c.sum_offsets[q], sum_bytes(i, q));
        if (open(views_[q], c.gathered[q], shard, body, q, i))
          add(c.decoding, shard, std::span(views_).subspan(q, 1), i, out(shard), transport_.size(), q);
        if (!backend_.asynchronous()) finish_decode(c.decoding);
      }
      start_decode(c.decoding);
      result_.decode_s += span("decode", i, begin);
    });
  }
  // What an owner announced of its sum, within what that can have.
  std::uint64_t sum_bytes(std::uint64_t i, std::size_t q) {
    const auto& offsets = plan_.shards[i].offsets;
    return std::min(chunk(i).gathered[q].body_bytes, offsets[q + 1] - offsets[q]);
  }

  void finish_decoding(std::uint64_t i) {
    const auto begin = Clock::now();
    finish_decode(chunk(i).decoding);
    if (backend_.asynchronous()) result_.decode_s += span("decode", i, begin);
  }

  std::span<const std::uint64_t> shard_offsets(std::uint64_t i) const {
    return std::span(plan_.shards[i].offsets).first(ranks());
  }

  const TwoShotRoute& plan_;
  const std::uint64_t largest_;  // bound of a shard's body
  std::vector<std::uint64_t> header_bytes_, header_offsets_, shard_offsets_,
      announced_;  // of shards as they arrive; of two exchanges' bodies
  Chunk chunk_[kChunkSlots];
  std::uint8_t *scatter_[kSendSlots] = {}, *scattered_[kReceiveSlots] = {}, *sum_[kSendSlots] = {},
               *gathered_[kReceiveSlots] = {};
  std::vector<BodyView> views_;
  float* sums_ = nullptr;  // of one shard
  Encoding encoding_of_sum_;
  Decoding decoding_of_sum_;
  std::optional<ShardRelays> relays_;
};

constexpr TwoShot::Step TwoShot::kSteps[] = {
    {0, &TwoShot::encode_shards, &TwoShot::turn_of},
    {1, &TwoShot::accept_headers, &TwoShot::headers_of},
    {0, &TwoShot::start_headers},
    {2, &TwoShot::sum, &TwoShot::bodies_of},
    {5, &TwoShot::finish_decoding},
    {3, &TwoShot::start_sums, &TwoShot::sum_headers_of},
    {4, &TwoShot::decode, &TwoShot::sum_bodies_of},
};

std::unique_ptr<Exchange> TwoShotRoute::exchange(Transport& transport, const CallBuffers& call, Workers& workers,
                                                 Trace* trace) const {
  return std::make_unique<TwoShot>(transport, *this, call, workers, trace);
}

}  // namespace

AlgorithmEntry two_shot_algorithm() {
  return {
      .algorithm = Algorithm::two_shot,
      .name = "two_shot",
      .summary = "alltoall of payload shards, sums by their owners, encoded once more, allgather",
      // A piece or more for every rank, and as many for each: the receive budget does not depend on the ranks here.
      .chunk_elements =
          [](std::uint64_t setting, const Codec& codec, int ranks) {
            const auto n = static_cast<std::uint64_t>(ranks);
            const std::uint64_t most = std::max<std::uint64_t>(
                1, kReceiveBudget / (2 * kReceiveSlots * (codec.piece_bound(kPieceElements) + kPayloadAlign)));
            const std::uint64_t pieces = round_up(std::min(setting / kPieceElements, most), n);
            return std::max<std::uint64_t>(1, std::min(pieces, std::max(n, most))) * kPieceElements;
          },
      .plan = [](const PartPlan& part, std::uint64_t chunk, int ranks) -> std::unique_ptr<RoutePlan> {
        return std::make_unique<TwoShotRoute>(part, chunk, ranks, 1);
      },
      .plan_relayed = [](const PartPlan& part, std::uint64_t chunk, int ranks, int radix)
          -> std::unique_ptr<RoutePlan> { return std::make_unique<TwoShotRoute>(part, chunk, ranks, radix); },
      .relayed_name = "relayed two_shot",
      .cost =
          [](const CostQuery& q) {
            // The largest shard counts: pieces are not cut.
            const double n = q.network.ranks, m = q.per_chunk(), piece = kPieceElements;
            const double shard =
                std::min(m, static_cast<double>(
                                div_up(static_cast<std::uint64_t>(m), kPieceElements * static_cast<std::uint64_t>(n))) *
                                piece);
            const double headers = (n - 1) * sizeof(Header), bytes = (n - 1) * shard * q.codec.payload_bytes;
            const double sums = (n - 1) / n * m * q.codec.payload_bytes;
            const double wire = q.radix > 1 && !q.network.step.empty()
                                    ? shard_relays_s(q, shard)
                                    : q.network.alltoall.at(headers) + q.network.alltoall.at(bytes) +
                                          q.network.allgather.at(headers) + q.network.allgather.at(sums);
            return pipelined(
                q.chunks(),
                (m + shard) * q.codec.encode_s + shard * q.codec.sum_s(n) + m * q.codec.decode_s + 4 * q.codec.launch_s,
                wire);
          },
      .error = [](const Codec& codec, int) { return codec.error_of_two_encodings(); },
      .sums_encoded = true,
      .any_backend = true,
      .converts = true,
      // Also where ranks keep a momentum: what an owner does not send would be lost for good.
      .owner_memory =
          [](const Codec& codec) {
            const FeedbackKind kind = codec.feedback().kind;
            return (kind == FeedbackKind::residual || kind == FeedbackKind::momentum) &&
                   codec.error_of_two_encodings() > 1;
          },
  };
}

}  // namespace crimp
