// Every rank encodes its buffer, all payloads go to all ranks, every rank decodes them, its own too, in rank order 0..N-1.
#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/frame.hpp"
#include "collective/pipeline.hpp"

namespace crimp {
namespace {

// While chunk i is on the wire, i+1 is encoded and i-1 decoded; headers travel one step ahead of bodies. Where encoding is asynchronous, i+2 is
// encoded while i+1 is copied to where MPI takes it.
constexpr std::size_t kEncodeSlots = 4, kReceiveSlots = 2;

std::uint64_t body_bound_of(const CollectiveCall& call) {
  return Pipeline::largest(call, [&](const Cut& cut) { return cut.shape.body_bound(*call.codec); });
}

class Allgather : Pipeline {
 public:
  Allgather(Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace)
      : Pipeline(transport, workers, call, trace), body_bound_(body_bound_of(call)) {
    for (auto& slot : send_) slot.headers.resize(ranks());
    if (!arena) return;
    for (auto& slot : send_) slot.body = reinterpret_cast<std::uint8_t*>(arena->take(body_bound_));
    for (auto& slot : receive_) slot.bodies = reinterpret_cast<std::uint8_t*>(arena->take(ranks() * body_bound_));
    begin(*arena);
  }

  CollectiveResult run() {
    encode_until(0);
    start_headers(0);
    for (std::uint64_t i = 0; i < chunks(); ++i) {
      encode_until(i + 1);
      if (!accept_headers(i)) return result_;
      finish(receive(i));
      start_bodies(i);
      if (backend_.asynchronous()) encode_until(i + 2);
      if (i + 1 < chunks()) start_headers(i + 1);
      if (i > 0) decode(i - 1);
    }
    decode(chunks() - 1);
    for (auto& slot : receive_) finish(slot);
    return result_;
  }

 private:
  struct SendSlot {
    Header mine;
    std::vector<Header> headers;  // of all ranks
    Transport::Ticket ticket = 0;
    Cut cut;
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

  void encode_until(std::uint64_t chunk) {
    while (encoded_ <= chunk && encoded_ < chunks()) encode_chunk(encoded_++);
  }

  void encode_chunk(std::uint64_t chunk) {
    const auto begin = Clock::now();
    SendSlot& slot = send(chunk);
    cut(slot.cut, chunk, chunk_begin(call_, chunk), chunk_end(call_, chunk));
    slot.mine = header(chunk, slot.cut.shape.count());
    start_encode(slot.encoding, slot.mine, slot.cut, call_.in + slot.cut.begin, static_cast<std::uint32_t>(rank()), slot.body);
    note_encode(slot, chunk, begin);
  }

  void note_encode(SendSlot& slot, std::uint64_t chunk, Clock::time_point begin) {
    const double took = span("encode", chunk, begin);
    slot.mine.encode_us += static_cast<std::uint32_t>(1e6 * took);
    result_.encode_s += took;
  }

  void start_headers(std::uint64_t chunk) {
    SendSlot& slot = send(chunk);
    if (backend_.asynchronous()) {
      const auto begin = Clock::now();
      finish_encode(slot.encoding);
      note_encode(slot, chunk, begin);
    }
    slot.ticket = under_way(transport_.start_allgather(&slot.mine, slot.headers.data(), sizeof(Header)));
    result_.sent_bytes += sizeof(Header);
    result_.received_bytes += (ranks() - 1) * sizeof(Header);
  }

  bool accept_headers(std::uint64_t chunk) {
    wait(send(chunk).ticket, chunk);
    const bool first = !committed();
    if (!accept(send(chunk).headers)) return false;
    if (first) {
      commit(send(0).cut);
      if (chunks() > 1) commit(send(1).cut);
    }
    return true;
  }

  void start_bodies(std::uint64_t chunk) {
    SendSlot& slot = send(chunk);
    ReceiveSlot& to = receive(chunk);
    to.bytes.resize(ranks());
    to.offsets.resize(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      to.bytes[r] = std::min(slot.headers[r].body_bytes, body_bound_);
      to.offsets[r] = r * body_bound_;
      if (r != rank()) result_.received_bytes += to.bytes[r];
    }
    result_.sent_bytes += slot.mine.body_bytes;
    if (call_.codec->traits().fixed_size) {
      const std::uint64_t bytes = slot.cut.shape.body_bound(*call_.codec);  // also of a rank that has no body
      for (std::size_t r = 0; r < ranks(); ++r) to.offsets[r] = r * bytes;
      to.ticket = under_way(transport_.start_allgather(slot.body, to.bodies, bytes));
    } else {
      to.ticket = under_way(transport_.start_allgatherv(slot.body, to.bytes, to.offsets, to.bodies));
    }
  }

  void decode(std::uint64_t chunk) {
    ReceiveSlot& from = receive(chunk);
    SendSlot& slot = send(chunk);
    wait(from.ticket, chunk);
    const auto begin = Clock::now();
    if (backend_.readable_bodies()) may_corrupt_wire({from.bodies + from.offsets[0], from.bytes[0]});
    from.views.resize(ranks());
    bool good = true;
    for (std::size_t r = 0; r < ranks(); ++r)
      good = open(from.views[r], slot.headers[r], slot.cut, std::span(from.bodies + from.offsets[r], from.bytes[r]), r, chunk) && good;
    // With a bad payload the exchanges go on, so that no rank waits for this one; the error is raised at the end of the call.
    if (good) start_decode(from.decoding, slot.cut, from.views, chunk);
    if (!backend_.asynchronous()) finish_decode(from.decoding);
    result_.decode_s += span("decode", chunk, begin);
  }

  void finish(ReceiveSlot& slot) {
    if (!slot.decoding.ticket) return;
    const auto begin = Clock::now();
    finish_decode(slot.decoding);
    result_.decode_s += span("decode", slot.decoding.chunk, begin);
  }

  std::uint64_t body_bound_, encoded_ = 0;
  SendSlot send_[kEncodeSlots];
  ReceiveSlot receive_[kReceiveSlots];
};

}  // namespace

AlgorithmEntry allgather_algorithm() {
  return {
      .algorithm = Algorithm::allgather,
      .name = "allgather",
      .summary = "every payload to every rank; each decodes all",
      .chunk_elements =
          [](std::uint64_t setting, const Codec& codec, int ranks) {
            const std::uint64_t piece_bytes = 4 * codec.piece_bound(kPieceElements) + kPayloadAlign;
            const std::uint64_t pieces = kReceiveBudget / (kReceiveSlots * static_cast<std::uint64_t>(ranks) * piece_bytes);
            return std::max(kPieceElements, std::min(setting, pieces * kPieceElements));
          },
      .arena_bytes =
          [](const CollectiveCall& call, int ranks) {
            const std::uint64_t bound = body_bound_of(call);
            return kEncodeSlots * Arena::padded(bound) + kReceiveSlots * Arena::padded(static_cast<std::uint64_t>(ranks) * bound) + Pipeline::own_bytes_of_arena(call);
          },
      .run = [](Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call,
                Trace* trace) { return Allgather(transport, arena, workers, call, trace).run(); },
      .cost =
          [](const CostQuery& q) {
            const double n = q.network.ranks, m = q.per_chunk();
            const double wire = q.network.allgather.at((n - 1) * sizeof(Header)) + q.network.allgather.at((n - 1) * m * q.codec.payload_bytes);
            return pipelined(q.chunks(), m * (q.codec.encode_s + n * q.codec.decode_s), wire);
          },
      .any_backend = true,
  };
}

}  // namespace crimp
