// Alltoall of encoded shards; the owner of a shard decodes all ranks' in rank order, encodes the sum once more, with a residual of its
// own for what that loses, and an allgather takes it to all ranks. Received per rank: 2 (n-1)/n of a payload, whatever the ranks.
#include <algorithm>

#include "collective/algorithms.hpp"
#include "collective/frame.hpp"
#include "collective/pipeline.hpp"

namespace crimp {
namespace {

// In step t: chunk t+1 is encoded, t's shards leave, t-1's are summed, t-2's sums leave, t-3's are decoded.
constexpr std::size_t kChunkSlots = 5, kSendSlots = 3, kReceiveSlots = 2;

// Where a chunk's shards end, in elements from its start: runs of whole pieces, as equal as pieces allow.
std::vector<std::uint64_t> shard_borders(const Shape& shape, std::size_t ranks) {
  const auto pieces = shape.pieces();
  std::vector<std::uint64_t> borders(ranks + 1);
  for (std::size_t q = 1; q < ranks; ++q) {
    const std::size_t first = pieces.size() * q / ranks;
    borders[q] = first == 0 ? 0 : first == pieces.size() ? shape.count() : pieces[first].offset;
  }
  borders[ranks] = shape.count();
  return borders;
}

// Bounds of the shards' bodies, as offsets behind one another: ranks + 1 of them.
std::vector<std::uint64_t> body_offsets(const Codec& codec, const std::vector<Cut>& shards) {
  std::vector<std::uint64_t> offsets{0};
  for (const Cut& shard : shards) offsets.push_back(offsets.back() + shard.shape.body_bound(codec));
  return offsets;
}

struct Bounds {
  std::uint64_t all = 0, largest = 0;  // bodies of all shards of a chunk; of one shard
};
Bounds bounds_of(const CollectiveCall& call, std::size_t ranks) {
  Bounds bounds;
  bounds.all = Pipeline::largest(call, [&](const Cut& chunk) {
    const auto borders = shard_borders(chunk.shape, ranks);
    Cut shard;
    std::uint64_t all = 0;
    for (std::size_t q = 0; q < ranks; ++q) {
      shard.make(call, {}, 0, chunk.begin + borders[q], chunk.begin + borders[q + 1]);
      const std::uint64_t body = shard.shape.body_bound(*call.codec);
      bounds.largest = std::max(bounds.largest, body);
      all += body;
    }
    return all;
  });
  return bounds;
}

class TwoShot : Pipeline {
 public:
  TwoShot(Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace)
      : Pipeline(transport, workers, call, trace), header_bytes_(ranks(), sizeof(Header)), header_offsets_(ranks()) {
    for (std::size_t r = 0; r < ranks(); ++r) header_offsets_[r] = r * sizeof(Header);
    for (auto& chunk : chunk_) {
      chunk.shards.resize(ranks());
      chunk.encodings.resize(ranks());
      chunk.decodings.resize(ranks());
      for (auto* headers : {&chunk.mine, &chunk.scattered, &chunk.gathered}) headers->resize(ranks());
    }
    if (!arena) return;
    const Bounds bounds = bounds_of(call, ranks());
    largest_ = bounds.largest;
    const auto take = [&](auto& slots, std::uint64_t bytes) {
      for (auto& slot : slots) slot = reinterpret_cast<std::uint8_t*>(arena->take(bytes));
    };
    take(scatter_, bounds.all);
    take(scattered_, ranks() * bounds.largest);
    take(sum_, bounds.largest);
    take(gathered_, bounds.all);
    begin(*arena);
  }

  static std::uint64_t arena_bytes(const CollectiveCall& call, std::size_t ranks) {
    const Bounds bounds = bounds_of(call, ranks);
    return (kSendSlots + kReceiveSlots) * Arena::padded(bounds.all) + kReceiveSlots * Arena::padded(ranks * bounds.largest) +
           kSendSlots * Arena::padded(bounds.largest) + own_bytes_of_arena(call);
  }

  CollectiveResult run() {
    encode_shards(0);
    finish_shards(0);
    start_headers(0);
    for (std::uint64_t t = 0; t < chunks() + 3; ++t) {
      if (t + 1 < chunks()) encode_shards(t + 1);
      if (t < chunks()) {
        if (!accept_headers(t)) return result_;
        start_shards(t);
        if (t + 1 < chunks()) finish_shards(t + 1), start_headers(t + 1);
      }
      if (t >= 1 && t - 1 < chunks()) sum(t - 1);
      if (t >= 4) finish(t - 4);
      if (t >= 2 && t - 2 < chunks()) start_sums(t - 2);
      if (t >= 3) decode(t - 3);
    }
    finish(chunks() - 1);
    return result_;
  }

 private:
  struct Chunk {
    std::uint64_t begin = 0, count = 0;
    std::vector<Cut> shards;
    std::vector<std::uint64_t> offsets;           // of the shards' bodies, within their bounds
    std::vector<Header> mine, scattered, gathered;  // to each rank, from each rank; of the sums
    Header sum;
    std::vector<Encoding> encodings;
    std::vector<Decoding> decodings;
    Transport::Ticket headers = 0, bodies = 0, sum_headers = 0, sum_bodies = 0;
  };
  Chunk& chunk(std::uint64_t i) { return chunk_[i % kChunkSlots]; }

  void encode_shards(std::uint64_t i) {
    const auto begin = Clock::now();
    Chunk& c = chunk(i);
    c.begin = chunk_begin(call_, i);
    whole_.make(call_, {}, 0, c.begin, chunk_end(call_, i));
    c.count = whole_.shape.count();
    const auto borders = shard_borders(whole_.shape, ranks());
    for (std::size_t q = 0; q < ranks(); ++q) cut(c.shards[q], i, c.begin + borders[q], c.begin + borders[q + 1]);
    c.offsets = body_offsets(*call_.codec, c.shards);
    for (std::size_t q = 0; q < ranks(); ++q) {
      c.mine[q] = header(i, c.count);
      start_encode(c.encodings[q], c.mine[q], c.shards[q], call_.in + c.shards[q].begin, static_cast<std::uint32_t>(rank()),
                   scatter_[i % kSendSlots] + c.offsets[q]);
    }
    note_encode(c, i, begin);
  }

  void finish_shards(std::uint64_t i) {
    Chunk& c = chunk(i);
    if (backend_.asynchronous()) {
      const auto begin = Clock::now();
      for (auto& encoding : c.encodings) finish_encode(encoding);
      note_encode(c, i, begin);
    }
    // What ends the call must be seen by all, whoever gets the shard.
    std::uint8_t flags = 0;
    for (const auto& h : c.mine) flags |= static_cast<std::uint8_t>(h.flags & ~kFlagCorrupt);
    if (flags)
      for (auto& h : c.mine) h.flags |= flags, h.body_bytes = h.body_hash = 0;
  }

  void note_encode(Chunk& c, std::uint64_t i, Clock::time_point begin) {
    const double took = span("encode", i, begin);
    for (auto& h : c.mine) h.encode_us += static_cast<std::uint32_t>(1e6 * took);
    result_.encode_s += took;
  }

  void start_headers(std::uint64_t i) {
    Chunk& c = chunk(i);
    c.headers = under_way(transport_.start_alltoallv(c.mine.data(), header_bytes_, header_offsets_, c.scattered.data(), header_bytes_, header_offsets_));
    result_.sent_bytes += (ranks() - 1) * sizeof(Header);
    result_.received_bytes += (ranks() - 1) * sizeof(Header);
  }

  bool accept_headers(std::uint64_t i) {
    wait(chunk(i).headers, i);
    const bool first = !committed();
    if (!accept(chunk(i).scattered)) return false;
    if (first)
      for (std::uint64_t early = 0; early < std::min<std::uint64_t>(2, chunks()); ++early)
        for (const Cut& shard : chunk(early).shards) commit(shard);
    return true;
  }

  // What ranks announced of a body, within what it can have.
  static std::vector<std::uint64_t> announced(const std::vector<Header>& headers, std::uint64_t most) {
    std::vector<std::uint64_t> bytes;
    for (const Header& h : headers) bytes.push_back(std::min(h.body_bytes, most));
    return bytes;
  }
  void count_received(const std::vector<std::uint64_t>& bytes) {
    for (std::size_t r = 0; r < ranks(); ++r) result_.received_bytes += r == rank() ? 0 : bytes[r];
  }

  void start_shards(std::uint64_t i) {
    Chunk& c = chunk(i);
    const auto bytes = announced(c.scattered, largest_), send = announced(c.mine, largest_);
    std::vector<std::uint64_t> offsets(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) offsets[r] = r * largest_;
    c.bodies = under_way(transport_.start_alltoallv(scatter_[i % kSendSlots], send, std::span(c.offsets).first(ranks()), scattered_[i % kReceiveSlots],
                                                    bytes, offsets));
    for (std::size_t r = 0; r < ranks(); ++r) result_.sent_bytes += r == rank() ? 0 : send[r];
    count_received(bytes);
  }

  // The owner's part; the sum stands in the result's place for as long.
  void sum(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(c.bodies, i);
    auto begin = Clock::now();
    std::uint8_t* const bodies = scattered_[i % kReceiveSlots];
    Cut& own = c.shards[rank()];
    if (backend_.readable_bodies()) may_corrupt_wire({bodies, std::min(c.scattered[0].body_bytes, largest_)});
    views_.resize(ranks());
    bool good = true;
    for (std::size_t r = 0; r < ranks(); ++r)
      good = open(views_[r], c.scattered[r], own, std::span(bodies + r * largest_, std::min(c.scattered[r].body_bytes, largest_)), r, i) && good;
    if (good) {
      Decoding decoding;
      start_decode(decoding, own, views_, i);
      good = finish_decode(decoding);
    }
    result_.decode_s += span("sum", i, begin);
    begin = Clock::now();
    c.sum = header(i, c.count, 1);
    if (!good) c.sum.flags = kFlagCorrupt;
    const std::uint64_t end = own.begin + own.shape.count();
    own.make(call_, call_.owner_residuals, 1, own.begin, end);
    for (Feedback& memory : own.feedback) memory.gain = 1.0f;  // the sum has it already
    Encoding encoding;
    start_encode(encoding, c.sum, own, call_.out + own.begin, kSums | static_cast<std::uint32_t>(rank()), sum_[i % kSendSlots]);
    finish_encode(encoding);
    result_.encode_s += span("encode", i, begin);
    c.sum_headers = under_way(transport_.start_allgather(&c.sum, c.gathered.data(), sizeof(Header)));
    result_.sent_bytes += sizeof(Header);
    result_.received_bytes += (ranks() - 1) * sizeof(Header);
  }

  void start_sums(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(c.sum_headers, i);
    accept(c.gathered);
    const auto bytes = announced(c.gathered, largest_);
    c.sum_bodies = under_way(transport_.start_allgatherv(sum_[i % kSendSlots], bytes, std::span(c.offsets).first(ranks()), gathered_[i % kReceiveSlots]));
    result_.sent_bytes += bytes[rank()];
    count_received(bytes);
  }

  void decode(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(c.sum_bodies, i);
    const auto begin = Clock::now();
    for (std::size_t q = 0; q < ranks(); ++q) {
      const Cut& shard = c.shards[q];
      const std::span body(gathered_[i % kReceiveSlots] + c.offsets[q], std::min(c.gathered[q].body_bytes, largest_));
      views_.resize(1);
      if (open(views_[0], c.gathered[q], shard, body, q, i)) start_decode(c.decodings[q], shard, views_, i, transport_.size(), q);
      if (!backend_.asynchronous()) finish_decode(c.decodings[q]);
    }
    result_.decode_s += span("decode", i, begin);
  }

  void finish(std::uint64_t i) {
    const auto begin = Clock::now();
    for (auto& decoding : chunk(i).decodings) finish_decode(decoding);
    if (backend_.asynchronous()) result_.decode_s += span("decode", i, begin);
  }

  std::vector<std::uint64_t> header_bytes_, header_offsets_;
  std::uint64_t largest_ = 0;  // bound of a shard's body
  Cut whole_;
  Chunk chunk_[kChunkSlots];
  std::uint8_t *scatter_[kSendSlots] = {}, *scattered_[kReceiveSlots] = {}, *sum_[kSendSlots] = {}, *gathered_[kReceiveSlots] = {};
  std::vector<BodyView> views_;
};

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
            const std::uint64_t most = std::max<std::uint64_t>(1, kReceiveBudget / (2 * kReceiveSlots * (codec.piece_bound(kPieceElements) + kPayloadAlign)));
            const std::uint64_t pieces = round_up(std::min(setting / kPieceElements, most), n);
            return std::max<std::uint64_t>(1, std::min(pieces, std::max(n, most))) * kPieceElements;
          },
      .arena_bytes = [](const CollectiveCall& call, int ranks) { return TwoShot::arena_bytes(call, static_cast<std::size_t>(ranks)); },
      .run = [](Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call,
                Trace* trace) { return TwoShot(transport, arena, workers, call, trace).run(); },
      .cost =
          [](const CostQuery& q) {
            // The largest shard counts: pieces are not cut.
            const double n = q.network.ranks, m = q.per_chunk(), piece = kPieceElements;
            const double shard = std::min(m, static_cast<double>(div_up(static_cast<std::uint64_t>(m), kPieceElements * static_cast<std::uint64_t>(n))) * piece);
            const double headers = (n - 1) * sizeof(Header), bytes = (n - 1) * shard * q.codec.payload_bytes;
            const double wire = q.network.alltoall.at(headers) + q.network.alltoall.at(bytes) + q.network.allgather.at(headers) + q.network.allgather.at(bytes);
            return pipelined(q.chunks(), (m + shard) * q.codec.encode_s + (n * shard + m) * q.codec.decode_s, wire);
          },
      .error = [](const Codec& codec, int) { return codec.error_of_two_encodings(); },
      .sums_encoded = true,
      .any_backend = true,
      // Also where ranks keep a momentum: what an owner does not send would be lost for good.
      .owner_memory =
          [](const Codec& codec) {
            const MemoryKind kind = codec.memory().kind;
            return (kind == MemoryKind::residual || kind == MemoryKind::momentum) && codec.error_of_two_encodings() > 1;
          },
  };
}

}  // namespace crimp
