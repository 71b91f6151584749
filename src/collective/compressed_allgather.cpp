// Every rank encodes its buffer, all payloads go to all ranks, every rank decodes them, its own too, in rank order
// 0..N-1.
#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/pipeline.hpp"

namespace crimp {
namespace {

// While chunk i is on the wire, i+1 is encoded and i-1 decoded; headers travel one step ahead of bodies. Where encoding
// is asynchronous, i+2 is encoded while i+1 is copied to where MPI takes it.
constexpr std::size_t kEncodeSlots = 4, kReceiveSlots = 2;

class AllgatherRoute final : public ChunkedRoute {
 public:
  AllgatherRoute(const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : ChunkedRoute(Algorithm::allgather, of, chunk_elements, transport_ranks),
        body_bound(largest([&](const ChunkPartition& partition) { return partition.body_bound(*part.codec); })) {
    set_bytes(kEncodeSlots * Arena::padded(body_bound) +
              kReceiveSlots * Arena::padded(static_cast<std::uint64_t>(ranks) * body_bound));
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  const std::uint64_t body_bound;  // of a chunk
};

class Allgather final : public Rounds<Allgather> {
 public:
  Allgather(Transport& transport, const AllgatherRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : Rounds(transport, workers, route, call, trace, route.chunks().size()), slices_(route.chunks()),
        body_bound_(route.body_bound) {
    for (auto& slot : std::span(send_).first(std::min(kEncodeSlots, route.chunks().size())))
      slot.headers.resize(ranks()), slot.encoding.reserve(1);
    for (auto& slot : std::span(receive_).first(std::min(kReceiveSlots, route.chunks().size())))
      slot.bytes.resize(ranks()), slot.offsets.resize(ranks()), slot.views.resize(ranks()), slot.decoding.reserve(1);
    if (!call.arena) return;
    for (auto& slot : send_) slot.body = reinterpret_cast<std::uint8_t*>(call.arena->take(body_bound_));
    for (auto& slot : receive_) slot.bodies = reinterpret_cast<std::uint8_t*>(call.arena->take(ranks() * body_bound_));
    begin(route);
  }

 private:
  struct SendSlot {
    Header mine;
    std::vector<Header> headers;  // of all ranks
    Transport::Ticket ticket = 0;
    BoundSlice bound;
    std::uint8_t* body = nullptr;
    Encoding encoding;
  };
  struct ReceiveSlot {
    std::uint8_t* bodies = nullptr;
    std::vector<std::uint64_t> bytes, offsets;
    std::vector<BodyView> views;
    Transport::Ticket ticket = 0;
    Decoding decoding;
  };
  SendSlot& send(std::uint64_t chunk) { return send_[chunk % kEncodeSlots]; }
  ReceiveSlot& receive(std::uint64_t chunk) { return receive_[chunk % kReceiveSlots]; }

  friend class Rounds<Allgather>;
  static const Step kSteps[4];
  Transport::Ticket headers_of(std::uint64_t chunk) { return send(chunk).ticket; }
  Transport::Ticket bodies_of(std::uint64_t chunk) { return receive(chunk).ticket; }

  void encode_until(std::uint64_t chunk) {
    while (encoded_ <= chunk && encoded_ < chunks()) encode_chunk(encoded_++);
  }

  void encode_chunk(std::uint64_t chunk) {
    const auto begin = Clock::now();
    SendSlot& slot = send(chunk);
    bind(slot.bound, slices_[chunk], chunk);
    slot.mine = header(chunk, slot.bound.partition().count());
    add(slot.encoding, slot.mine, slot.bound, call_.in + slot.bound.begin(), encoder(), slot.body);
    start_encode(slot.encoding);
    note_encode({&slot.mine, 1}, chunk, begin);
  }

  void start_headers(std::uint64_t chunk) {
    SendSlot& slot = send(chunk);
    if (backend_.asynchronous()) {
      const auto begin = Clock::now();
      finish_encode(slot.encoding);
      note_encode({&slot.mine, 1}, chunk, begin);
    }
    slot.ticket = under_way(transport_.start_allgather(&slot.mine, slot.headers.data(), sizeof(Header)));
    result_.sent_bytes += sizeof(Header);
    result_.received_bytes += (ranks() - 1) * sizeof(Header);
  }

  void accept_headers(std::uint64_t chunk) {
    wait(send(chunk).ticket, chunk);
    const bool first = !committed();
    if (!accept(send(chunk).headers)) return end();
    if (first) {
      commit({&send(0).bound, 1}, {&send(0).mine, 1});
      if (chunks() > 1) commit({&send(1).bound, 1}, {&send(1).mine, 1});
    }
    finish_decoding(receive(chunk));
    start_bodies(chunk);
    if (backend_.asynchronous()) encode_until(chunk + 2);
  }

  void start_bodies(std::uint64_t chunk) {
    SendSlot& slot = send(chunk);
    ReceiveSlot& to = receive(chunk);
    for (std::size_t r = 0; r < ranks(); ++r) {
      to.bytes[r] = std::min(slot.headers[r].body_bytes, body_bound_);
      to.offsets[r] = r * body_bound_;
      if (r != rank()) result_.received_bytes += to.bytes[r];
    }
    result_.sent_bytes += slot.mine.body_bytes;
    if (codec().traits().fixed_size) {
      const std::uint64_t bytes = slot.bound.partition().body_bound(codec());  // also of a rank that has no body
      for (std::size_t r = 0; r < ranks(); ++r) to.offsets[r] = r * bytes;
      to.ticket = under_way(transport_.start_allgather(slot.body, to.bodies, bytes));
    } else {
      place(to.bytes, to.offsets, to.offsets);
      to.ticket = under_way(transport_.start_allgatherv(slot.body, to.bytes, to.offsets, to.bodies));
    }
  }

  void decode(std::uint64_t chunk) {
    ReceiveSlot& from = receive(chunk);
    SendSlot& slot = send(chunk);
    wait(from.ticket, chunk);
    const auto begin = Clock::now();
    const bool good = open_all(from.views, slot.headers, slot.bound, chunk, body_bound_,
                               [&](std::size_t r) { return from.bodies + from.offsets[r]; });
    // With a bad payload the exchanges go on, so that no rank waits for this one; the error is raised at the end of the
    // call.
    if (good) add(from.decoding, slot.bound, from.views, chunk, out(slot.bound));
    start_decode(from.decoding);
    if (!backend_.asynchronous()) finish_decode(from.decoding);
    result_.decode_s += span("decode", chunk, begin);
  }

  void finish_decoding(ReceiveSlot& slot) {
    if (!slot.decoding.ticket) return;
    const auto begin = Clock::now();
    const std::uint64_t chunk = slot.decoding.sums[0].chunk;
    finish_decode(slot.decoding);
    result_.decode_s += span("decode", chunk, begin);
  }

  void after_rounds() {
    for (auto& slot : receive_) finish_decoding(slot);
  }

  const std::vector<Slice>& slices_;
  std::uint64_t body_bound_, encoded_ = 0;
  SendSlot send_[kEncodeSlots];
  ReceiveSlot receive_[kReceiveSlots];
};

constexpr Allgather::Step Allgather::kSteps[] = {
    {0, &Allgather::encode_until},
    {1, &Allgather::accept_headers, &Allgather::headers_of},
    {0, &Allgather::start_headers},
    {2, &Allgather::decode, &Allgather::bodies_of},
};

std::unique_ptr<Exchange> AllgatherRoute::exchange(Transport& transport, const CallBuffers& call, Workers& workers,
                                                   Trace* trace) const {
  return std::make_unique<Allgather>(transport, *this, call, workers, trace);
}

}  // namespace

AlgorithmEntry allgather_algorithm() {
  return {
      .algorithm = Algorithm::allgather,
      .name = "allgather",
      .summary = "every payload to every rank; each decodes all",
      .chunk_elements =
          [](std::uint64_t setting, const Codec& codec, int ranks) {
            const std::uint64_t piece_bytes = codec.piece_bound(kPieceElements) + kPayloadAlign;
            const std::uint64_t pieces =
                kReceiveBudget / (kReceiveSlots * static_cast<std::uint64_t>(ranks) * piece_bytes);
            return std::max(kPieceElements, std::min(setting, pieces * kPieceElements));
          },
      .plan = [](const PartPlan& part, std::uint64_t chunk, int ranks) -> std::unique_ptr<RoutePlan> {
        return std::make_unique<AllgatherRoute>(part, chunk, ranks);
      },
      .cost =
          [](const CostQuery& q) {
            const double n = q.network.ranks, m = q.per_chunk();
            const double wire = q.network.allgather.at((n - 1) * sizeof(Header)) +
                                q.network.allgather.at((n - 1) * m * q.codec.payload_bytes);
            return pipelined(q.chunks(), m * (q.codec.encode_s + q.codec.sum_s(n)) + 2 * q.codec.launch_s, wire);
          },
      .any_backend = true,
      .converts = true,
  };
}

}  // namespace crimp
