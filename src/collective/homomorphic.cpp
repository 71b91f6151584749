// Sums of indices instead of values (codec/homomorphic.hpp). Per chunk: the norms of all ranks go to all ranks, who quantise with the largest; the
// indices go to owners, who add up the integers that they stand for; the sums go to all ranks, who decode them once. Integers, so the variant in
// which MPI adds them gives the same bits.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "collective/algorithms.hpp"
#include "collective/pipeline.hpp"
#include "core/fault.hpp"
#include "codec/homomorphic.hpp"

namespace crimp {
namespace {

// A chunk's exchanges follow one another, each hidden behind work on the neighbouring chunks, so there are many small chunks: five are open.
constexpr std::uint64_t kMostChunk = 20 * kPieceElements;
constexpr std::size_t kOpen = 5, kBuffers = 2;
// Coordinates of a chunk are shared out in these units: multiples of 64 bytes as indices of 2, 3 or 4 bits and as sums of any width.
constexpr std::uint64_t kUnit = 512;

const Homomorphic& codec_of(const PartPlan& part) { return *part.codec->homomorphic(); }
int width_of(const Homomorphic& codec, std::size_t ranks) { return std::bit_width(codec.granularity() * static_cast<std::uint32_t>(ranks)); }

std::uint64_t norm_bytes(const Homomorphic& codec, const Shape& shape) {
  std::uint64_t n = 0;
  for (const auto& p : shape.pieces()) n += codec.norm_count(p.count);
  return round_up(n * sizeof(float), kPayloadAlign);
}
std::uint64_t coordinates(const Homomorphic& codec, const Shape& shape) {
  std::uint64_t n = 0;
  for (const auto& p : shape.pieces()) n += codec.coordinates(p.count);
  return round_up(n, kUnit);
}

// Sums of `width` bits, a tile of 128 after the other. The width is cut into parts of 8, 4, 2 and 1 bits, the widest and lowest first; a part of c bits
// fills 16 c bytes, of which byte j holds the elements j, j + 16 c, ..., the first one lowest.
template <class Part>
void for_parts(int width, Part&& part) {
  for (int low = 0; low < width;) {
    const int bits = std::min(8, static_cast<int>(std::bit_floor(static_cast<unsigned>(width - low))));
    if (bits == 8) part(low, std::integral_constant<int, 8>());
    if (bits == 4) part(low, std::integral_constant<int, 4>());
    if (bits == 2) part(low, std::integral_constant<int, 2>());
    if (bits == 1) part(low, std::integral_constant<int, 1>());
    low += bits;
  }
}
void pack(const std::uint16_t* sums, std::uint64_t count, int width, std::uint8_t* to) {
  for (std::uint64_t tile = 0; tile < count; tile += Homomorphic::kTile, sums += Homomorphic::kTile)
    for_parts(width, [&](int low, auto bits) {
      constexpr int kBytes = 16 * decltype(bits)::value;
      for (int j = 0; j < kBytes; ++j) {
        unsigned byte = 0;
        for (int q = 0; q < 8 / bits; ++q) byte |= (sums[j + q * kBytes] >> low & ((1u << bits) - 1)) << (q * bits);
        to[j] = static_cast<std::uint8_t>(byte);
      }
      to += kBytes;
    });
}
// Returns the largest sum.
std::uint16_t unpack(const std::uint8_t* from, std::uint64_t count, int width, std::uint16_t* sums) {
  std::uint16_t most = 0;
  for (std::uint64_t tile = 0; tile < count; tile += Homomorphic::kTile, sums += Homomorphic::kTile) {
    for_parts(width, [&](int low, auto bits) {
      constexpr int kBytes = 16 * decltype(bits)::value;
      for (int q = 0; q < 8 / bits; ++q)
        for (int j = 0; j < kBytes; ++j) {
          const unsigned part = (from[j] >> (q * bits) & ((1u << bits) - 1)) << low;
          std::uint16_t& sum = sums[j + q * kBytes];
          sum = static_cast<std::uint16_t>(low == 0 ? part : sum | part);
        }
      from += kBytes;
    });
    for (std::uint64_t i = 0; i < Homomorphic::kTile; ++i) most = std::max(most, sums[i]);
  }
  return most;
}

// What a call's buffers need, the same on all ranks.
struct Sizes {
  std::uint64_t norms, coordinates, shard, sums;  // shard: indices of the largest part; sums: of it
  std::size_t ranks;
  int width;
  bool whole;  // MPI adds: no shards
  Sizes(const Homomorphic& codec, std::uint64_t norms_of_chunk, std::uint64_t coordinates_of_chunk, std::size_t n, bool mpi_adds)
      : norms(norms_of_chunk), coordinates(coordinates_of_chunk), shard(sizeof(Header) + div_up(coordinates / kUnit, n) * kUnit * codec.index_bits() / 8),
        sums(sizeof(Header) + div_up(coordinates / kUnit, n) * kUnit * static_cast<std::uint64_t>(width_of(codec, n)) / 8), ranks(n), width(width_of(codec, n)),
        whole(mpi_adds) {}
  std::uint64_t indices(const Homomorphic& codec) const { return coordinates * codec.index_bits() / 8; }
  Integer integer() const { return width <= 8 ? Integer::u8 : Integer::u16; }
  // What MPI adds: the values, then a word that counts the ranks that had to send none.
  std::uint64_t whole_bytes(std::uint64_t n) const { return n * (integer() == Integer::u8 ? 1 : 2) + kPayloadAlign; }
};

// Calls take(bytes) for every buffer, in the order in which they are taken.
template <class Take>
void each_buffer(const Sizes& s, const Homomorphic& codec, Take&& take) {
  for (std::size_t i = 0; i < kOpen; ++i) {
    take(s.norms);
    take(s.norms);
    take(s.norms * s.ranks);
  }
  take(s.indices(codec));
  take(s.coordinates * sizeof(std::uint16_t));
  for (std::size_t i = 0; i < kBuffers; ++i) {
    if (s.whole) {
      take(s.whole_bytes(s.coordinates));
      take(s.whole_bytes(s.coordinates));
      continue;
    }
    take(s.shard * s.ranks);
    take(s.shard * s.ranks);
    take(s.sums);
    take(s.sums * s.ranks);
  }
}

class IntegerRoute final : public ChunkedRoute {
 public:
  IntegerRoute(Algorithm carries, const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : ChunkedRoute(carries, of, chunk_elements, transport_ranks),
        sizes(codec_of(part), largest([&](const Shape& shape) { return norm_bytes(codec_of(part), shape); }),
              largest([&](const Shape& shape) { return crimp::coordinates(codec_of(part), shape); }), static_cast<std::size_t>(ranks), carries == Algorithm::integer_sum) {
    each_buffer(sizes, codec_of(part), [&](std::uint64_t bytes) { bytes_.together += Arena::padded(bytes); });
    bytes_.bodies = bytes_.together;
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  const Sizes sizes;
};

class IntegerSums final : public Rounds<IntegerSums> {
 public:
  IntegerSums(Transport& transport, const IntegerRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : Rounds(transport, workers, route, call, trace, route.chunks().size()), slices_(route.chunks()), codec_(codec_of(part_)), sizes_(route.sizes) {
    for (auto& slot : slots_) slot.headers.resize(ranks());
    if (!call.arena) return;
    std::vector<std::uint8_t*> taken;
    each_buffer(sizes_, codec_, [&](std::uint64_t bytes) { taken.push_back(reinterpret_cast<std::uint8_t*>(call.arena->take(bytes))); });
    auto next = taken.begin();
    for (auto& slot : slots_) {
      slot.norms = reinterpret_cast<float*>(*next++);
      slot.shared = reinterpret_cast<float*>(*next++);
      slot.received = *next++;
    }
    indices_ = *next++;
    sums_ = reinterpret_cast<std::uint16_t*>(*next++);
    for (auto& b : buffers_) {
      b.send = *next++;
      b.receive = *next++;
      if (sizes_.whole) continue;
      b.my_sums = *next++;
      b.sums = *next++;
    }
  }

 private:
  struct Slot {
    Header mine;
    std::vector<Header> headers;  // of all ranks
    Cut cut;
    std::vector<std::uint64_t> norm_at, coordinate_at;  // per piece, where its norms and coordinates begin
    std::uint64_t coordinates = 0;
    float *norms = nullptr, *shared = nullptr;
    std::uint8_t* received = nullptr;  // all ranks' norms
    bool good = true;                  // all that has arrived so far
    Transport::Ticket ticket = 0, norm_ticket = 0, index_ticket = 0, sum_ticket = 0;
  };
  struct Buffers {
    std::uint8_t *send = nullptr, *receive = nullptr, *my_sums = nullptr, *sums = nullptr;
  };
  Slot& slot(std::uint64_t chunk) { return slots_[chunk % kOpen]; }
  Buffers& buffers(std::uint64_t chunk) { return buffers_[chunk % kBuffers]; }

  friend class Rounds<IntegerSums>;
  static const Step kSteps[8];
  Transport::Ticket headers_of(std::uint64_t chunk) { return slot(chunk).ticket; }
  Transport::Ticket norms_of(std::uint64_t chunk) { return slot(chunk).norm_ticket; }
  // Where MPI adds there are no owners, who would add, and sums come a round earlier.
  Transport::Ticket indices_of(std::uint64_t chunk) { return sizes_.whole ? kNothing : slot(chunk).index_ticket; }
  Transport::Ticket sums_of_mpi(std::uint64_t chunk) { return sizes_.whole ? slot(chunk).sum_ticket : kNothing; }
  Transport::Ticket sums_of_owners(std::uint64_t chunk) { return sizes_.whole ? kNothing : slot(chunk).sum_ticket; }
  void decode_sums_of_mpi(std::uint64_t chunk) {
    if (sizes_.whole) decode(chunk);
  }
  void decode_sums_of_owners(std::uint64_t chunk) {
    if (!sizes_.whole) decode(chunk);
  }

  // fn(piece) for all of a chunk's pieces, shared out among the threads.
  template <class Fn>
  void each_piece(const Slot& s, Fn&& fn) {
    const std::size_t n = s.cut.shape().pieces().size();
    workers_.run([&](int part, int parts) {
      for (std::size_t p = n * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts);
           p < n * static_cast<std::size_t>(part + 1) / static_cast<std::size_t>(parts); ++p) {
        fn(p);
        if (part == 0) transport_.progress();
      }
    });
  }
  PieceSource source(const Slot& s, std::size_t p) const {
    const Shape::Piece& piece = s.cut.shape().pieces()[p];
    const Feedback& memory = s.cut.feedback[piece.group];
    const std::uint64_t at = piece.offset - s.cut.shape().groups()[piece.group].offset;
    return {call_.in + s.cut.begin() + piece.offset, memory.in ? memory.in + at : nullptr, memory.out ? memory.out + at : nullptr, piece.count,
            {s.cut.begin() + piece.offset, call_.sequence, static_cast<std::uint32_t>(rank())}, {}, at};
  }
  // Where rank r's part of a chunk's coordinates begins.
  std::uint64_t share(const Slot& s, std::size_t r) const { return s.coordinates / kUnit * r / ranks() * kUnit; }
  std::uint64_t index_bytes(std::uint64_t n) const { return n * codec_.index_bits() / 8; }
  std::uint64_t sum_bytes(std::uint64_t n) const { return n * static_cast<std::uint64_t>(sizes_.width) / 8; }
  std::uint64_t hash(const std::uint8_t* bytes, std::uint64_t n) const { return part_.checksum ? XXH3_64bits(bytes, n) : 0; }

  void find_norms(std::uint64_t chunk) {
    const auto begin = Clock::now();
    Slot& s = slot(chunk);
    // Memories need not wait aside: they change in encode(), when all ranks have accepted.
    s.cut.take(slices_[chunk], part_, call_, call_.residuals, codec().memory().planes());
    s.mine = header(chunk, s.cut.shape().count());
    s.good = true;
    s.norm_at.clear();
    s.coordinate_at.clear();
    std::uint64_t norms = 0, coordinates = 0;
    for (const auto& p : s.cut.shape().pieces()) {
      s.norm_at.push_back(norms);
      s.coordinate_at.push_back(coordinates);
      norms += codec_.norm_count(p.count);
      coordinates += codec_.coordinates(p.count);
    }
    s.coordinates = round_up(coordinates, kUnit);
    if (!call_.flags) {
      s.mine.body_bytes = round_up(norms * sizeof(float), kPayloadAlign);
      std::memset(s.norms, 0, s.mine.body_bytes);
      each_piece(s, [&](std::size_t p) { codec_.norms(source(s, p), s.norms + s.norm_at[p]); });
      s.mine.body_hash = hash(reinterpret_cast<const std::uint8_t*>(s.norms), s.mine.body_bytes);
      if (s.mine.body_bytes && fault::fires("corrupt_body")) reinterpret_cast<std::uint8_t*>(s.norms)[s.mine.body_bytes / 2] ^= 0x55;
    }
    if (fault::fires("corrupt_header")) s.mine.count ^= 1;
    result_.encode_s += span("norms", chunk, begin);
  }

  void start_headers(std::uint64_t chunk) {
    Slot& s = slot(chunk);
    s.ticket = under_way(transport_.start_allgather(&s.mine, s.headers.data(), sizeof(Header)));
    count_gathered(sizeof(Header));
  }
  void accept_headers(std::uint64_t chunk) {
    wait(slot(chunk).ticket, chunk);
    if (!accept(slot(chunk).headers)) end();
  }
  void start_norms(std::uint64_t chunk) {
    Slot& s = slot(chunk);
    s.norm_ticket = under_way(transport_.start_allgather(s.norms, s.received, s.mine.body_bytes));
    count_gathered(s.mine.body_bytes);
  }
  void count_gathered(std::uint64_t bytes) {
    result_.sent_bytes += bytes;
    result_.received_bytes += (ranks() - 1) * bytes;
  }

  // Joins the norms of all ranks. False: some are corrupt.
  bool share_norms(Slot& s, std::uint64_t chunk) {
    const std::uint64_t bytes = s.mine.body_bytes, n = bytes / sizeof(float);
    std::memset(s.shared, 0, bytes);
    bool good = true;
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::uint8_t* from = s.received + r * bytes;
      const auto* norms = reinterpret_cast<const float*>(from);
      std::string what;
      if (s.headers[r].body_bytes != bytes) what = "it has " + std::to_string(s.headers[r].body_bytes) + " bytes of norms, " + std::to_string(bytes) + " are due";
      if (what.empty() && s.headers[r].body_hash && XXH3_64bits(from, bytes) != s.headers[r].body_hash) what = "its checksum is wrong";
      if (what.empty() && !std::all_of(norms, norms + n, [&](float x) { return codec_.legal(x); })) what = "a norm of it is negative, not finite or out of range";
      if (!what.empty()) blame(r, chunk, what);
      good = good && what.empty();
      for (std::uint64_t i = 0; good && i < n; ++i) s.shared[i] = std::max(s.shared[i], norms[i]);
    }
    return good;
  }

  void encode(std::uint64_t chunk) {
    Slot& s = slot(chunk);
    Buffers& b = buffers(chunk);
    wait(s.norm_ticket, chunk);
    const auto begin = Clock::now();
    s.good = share_norms(s, chunk);
    if (s.good && !s.norm_at.empty()) {
      each_piece(s, [&](std::size_t p) { codec_.encode(source(s, p), s.shared + s.norm_at[p], indices_ + index_bytes(s.coordinate_at[p])); });
      const std::uint64_t used = index_bytes(s.coordinate_at.back() + codec_.coordinates(s.cut.shape().pieces().back().count));
      std::memset(indices_ + used, 0, index_bytes(s.coordinates) - used);
    }
    if (sizes_.whole) {
      const std::uint64_t bytes = sizes_.whole_bytes(s.coordinates);
      std::memset(sums_, 0, s.coordinates * sizeof *sums_);
      std::memset(b.send + bytes - kPayloadAlign, 0, kPayloadAlign);
      if (s.good) codec_.add(indices_, s.coordinates, sums_);
      b.send[bytes - kPayloadAlign] = !s.good;
      if (sizes_.integer() == Integer::u16)
        std::memcpy(b.send, sums_, s.coordinates * sizeof *sums_);
      else
        std::transform(sums_, sums_ + s.coordinates, b.send, [](std::uint16_t x) { return static_cast<std::uint8_t>(x); });
      s.sum_ticket = under_way(transport_.start_sum(b.send, b.receive, bytes, sizes_.integer()));
      result_.sent_bytes += 2 * bytes * (ranks() - 1) / ranks();
      result_.received_bytes += 2 * bytes * (ranks() - 1) / ranks();
    } else {
      std::vector<std::uint64_t> send(ranks()), receive(ranks(), sizeof(Header) + index_bytes(share(s, rank() + 1) - share(s, rank()))), at(ranks());
      for (std::size_t r = 0; r < ranks(); ++r) {
        at[r] = r * sizes_.shard;
        const std::uint64_t bytes = index_bytes(share(s, r + 1) - share(s, r));
        send[r] = sizeof(Header) + bytes;
        put(b.send + at[r], chunk, 1, s, indices_ + index_bytes(share(s, r)), bytes);
        if (r == rank()) continue;
        result_.sent_bytes += send[r];
        result_.received_bytes += receive[r];
      }
      s.index_ticket = under_way(transport_.start_alltoallv(b.send, send, at, b.receive, receive, at));
    }
    result_.encode_s += span("encode", chunk, begin);
  }

  // A header of a later stage and its body; the header alone counts where what this rank received was corrupt.
  void put(std::uint8_t* to, std::uint64_t chunk, std::uint8_t stage, const Slot& s, const std::uint8_t* body, std::uint64_t bytes) {
    Header h = header(chunk, s.cut.shape().count(), stage);
    if (s.good) {
      h.body_bytes = bytes;
      h.body_hash = hash(body, bytes);
      if (body != to + sizeof h) std::memcpy(to + sizeof h, body, bytes);
    } else {
      h.flags = kFlagCorrupt;
      std::memset(to + sizeof h, 0, bytes);
    }
    std::memcpy(to, &h, sizeof h);
  }
  // Checks what rank r sent; blames it where it is not what it should be.
  bool check(const std::uint8_t* from, std::uint64_t chunk, std::uint8_t stage, const Slot& s, std::uint64_t bytes, std::size_t r) {
    Header got;
    std::memcpy(&got, from, sizeof got);
    std::string what = disagreement(header(chunk, s.cut.shape().count(), stage), got);
    if (what.empty() && (got.flags & kFlagCorrupt)) what = "that rank had itself received something corrupt";
    if (what.empty() && got.body_bytes != bytes) what = "it has " + std::to_string(got.body_bytes) + " bytes, " + std::to_string(bytes) + " are due";
    if (what.empty() && got.body_hash && XXH3_64bits(from + sizeof got, bytes) != got.body_hash) what = "its checksum is wrong";
    if (!what.empty()) blame(r, chunk, what);
    return what.empty();
  }

  void add(std::uint64_t chunk) {
    if (sizes_.whole) return;
    Slot& s = slot(chunk);
    Buffers& b = buffers(chunk);
    wait(s.index_ticket, chunk);
    const auto begin = Clock::now();
    const std::uint64_t n = share(s, rank() + 1) - share(s, rank());
    if (fault::fires("corrupt_wire")) b.receive[sizeof(Header) + index_bytes(n) / 2] ^= 0x55;
    std::memset(sums_, 0, n * sizeof *sums_);
    for (std::size_t r = 0; r < ranks(); ++r) {
      const std::uint8_t* from = b.receive + r * sizes_.shard;
      s.good = check(from, chunk, 1, s, index_bytes(n), r) && s.good;
      if (s.good) codec_.add(from + sizeof(Header), n, sums_);
      transport_.progress();
    }
    pack(sums_, n, sizes_.width, b.my_sums + sizeof(Header));
    put(b.my_sums, chunk, 2, s, b.my_sums + sizeof(Header), sum_bytes(n));
    std::vector<std::uint64_t> bytes(ranks()), at(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) {
      bytes[r] = sizeof(Header) + sum_bytes(share(s, r + 1) - share(s, r));
      at[r] = r * sizes_.sums;
      if (r != rank()) result_.received_bytes += bytes[r];
    }
    result_.sent_bytes += bytes[rank()];
    s.sum_ticket = under_way(transport_.start_allgatherv(b.my_sums, bytes, at, b.sums));
    result_.decode_s += span("add", chunk, begin);
  }

  void decode(std::uint64_t chunk) {
    Slot& s = slot(chunk);
    Buffers& b = buffers(chunk);
    wait(s.sum_ticket, chunk);
    const auto begin = Clock::now();
    const std::uint32_t most = codec_.granularity() * static_cast<std::uint32_t>(ranks());
    if (sizes_.whole) {
      const std::uint64_t bytes = sizes_.whole_bytes(s.coordinates);
      if (b.receive[bytes - kPayloadAlign] != 0) {
        blame(rank(), chunk, "some rank received corrupt norms");
        s.good = false;
      }
      if (sizes_.integer() == Integer::u16)
        std::memcpy(sums_, b.receive, s.coordinates * sizeof *sums_);
      else
        std::copy(b.receive, b.receive + s.coordinates, sums_);
    } else {
      for (std::size_t r = 0; r < ranks(); ++r) {
        const std::uint64_t first = share(s, r), n = share(s, r + 1) - first;
        const std::uint8_t* from = b.sums + r * sizes_.sums;
        s.good = check(from, chunk, 2, s, sum_bytes(n), r) && s.good;
        if (unpack(from + sizeof(Header), n, sizes_.width, sums_ + first) <= most) continue;
        blame(r, chunk, "a sum of it is beyond " + std::to_string(most));
        s.good = false;
      }
    }
    // With a bad payload the exchanges go on, so that no rank waits for this one; the error is raised at the end of the call.
    if (s.good)
      each_piece(s, [&](std::size_t p) {
        const Shape::Piece& piece = s.cut.shape().pieces()[p];
        codec_.decode(sums_ + s.coordinate_at[p], s.shared + s.norm_at[p], static_cast<int>(ranks()), piece.count,
                      {s.cut.begin() + piece.offset, call_.sequence, 0}, call_.out + s.cut.begin() + piece.offset);
      });
    result_.decode_s += span("decode", chunk, begin);
  }

  const std::vector<Slice>& slices_;
  const Homomorphic& codec_;
  const Sizes& sizes_;
  Slot slots_[kOpen];
  Buffers buffers_[kBuffers];
  std::uint8_t* indices_ = nullptr;  // of a whole chunk
  std::uint16_t* sums_ = nullptr;
};

constexpr IntegerSums::Step IntegerSums::kSteps[] = {
    {0, &IntegerSums::find_norms},
    {1, &IntegerSums::accept_headers, &IntegerSums::headers_of},
    {0, &IntegerSums::start_headers},
    {1, &IntegerSums::start_norms},
    {2, &IntegerSums::encode, &IntegerSums::norms_of},
    {3, &IntegerSums::add, &IntegerSums::indices_of},
    {3, &IntegerSums::decode_sums_of_mpi, &IntegerSums::sums_of_mpi},
    {4, &IntegerSums::decode_sums_of_owners, &IntegerSums::sums_of_owners},
};

std::unique_ptr<Exchange> IntegerRoute::exchange(Transport& transport, const CallBuffers& call, Workers& workers, Trace* trace) const {
  return std::make_unique<IntegerSums>(transport, *this, call, workers, trace);
}

template <Algorithm kAlgorithm>
std::unique_ptr<RoutePlan> plan_integers(const PartPlan& part, std::uint64_t chunk, int ranks) {
  return std::make_unique<IntegerRoute>(kAlgorithm, part, chunk, ranks);
}

AlgorithmEntry row(Algorithm algorithm, const char* name, const char* summary, decltype(AlgorithmEntry::plan) plan, double (*cost)(const CostQuery&)) {
  return {
      .algorithm = algorithm,
      .name = name,
      .summary = summary,
      .obstacle = [](const Codec& codec, int ranks) -> std::string {
        if (!codec.homomorphic()) return "it needs a codec whose payloads are summed as integers (thc)";
        if (!codec.memory().fused()) return "it needs memory=none or memory=residual with decay=1 and gamma=1";
        const std::uint32_t g = codec.homomorphic()->granularity();
        if (static_cast<std::uint64_t>(ranks) * g > Homomorphic::kMostSum)
          return "its sums have 16 bits: at most " + std::to_string(Homomorphic::kMostSum / g) + " ranks with g=" + std::to_string(g);
        return {};
      },
      .chunk_elements = [](std::uint64_t setting, const Codec&, int) { return std::max(kPieceElements, std::min(setting, kMostChunk)); },
      .plan = plan,
      .cost = cost,
  };
}

}  // namespace

AlgorithmEntry homomorphic_algorithm() {
  return row(Algorithm::homomorphic, "homomorphic", "indices to owners, who add integers; sums to every rank, which decodes once", plan_integers<Algorithm::homomorphic>, [](const CostQuery& q) {
    // Sums have a bit more than indices (g is about 2^(bits+1)) and one for every doubling of the ranks. Norms cost a sixth of an encoding,
    // looking up and adding a quarter of a decoding, the decoding in floats two of a payload's.
    const double n = q.network.ranks, m = q.per_chunk(), others = n - 1;
    double sum_bytes = q.codec.payload_bytes + 0.125;
    for (double ranks = 1; ranks < n; ranks *= 2) sum_bytes += 0.125;
    const double wire = q.network.allgather.at(others * sizeof(Header)) + q.network.allgather.at(others * m / 256) +
                        q.network.alltoall.at(others * (sizeof(Header) + m / n * q.codec.payload_bytes)) +
                        q.network.allgather.at(others * (sizeof(Header) + m / n * sum_bytes));
    return pipelined(q.chunks(), m * (1.17 * q.codec.encode_s + 2.25 * q.codec.decode_s), wire);
  });
}
AlgorithmEntry integer_sum_algorithm() {
  AlgorithmEntry entry = row(Algorithm::integer_sum, "integer_sum", "the integers of the indices, added by MPI; every rank decodes the sums once", plan_integers<Algorithm::integer_sum>, [](const CostQuery& q) {
    const double m = q.per_chunk(), others = q.network.ranks - 1.0;
    double bits = 8 * q.codec.payload_bytes + 1;
    for (double ranks = 1; ranks < q.network.ranks; ranks *= 2) ++bits;
    const double wire = q.network.allgather.at(others * sizeof(Header)) + q.network.allgather.at(others * m / 256) + q.network.plain.at(m * (bits > 8 ? 2 : 1));
    return pipelined(q.chunks(), m * (1.17 * q.codec.encode_s + 2.25 * q.codec.decode_s), wire);
  });
  entry.mpi_adds = true;
  return entry;
}

}  // namespace crimp
