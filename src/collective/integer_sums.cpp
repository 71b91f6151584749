#include "collective/integer_sums.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "collective/frame.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

std::uint64_t norms_of(const Homomorphic& codec, const ChunkPartition& partition) {
  std::uint64_t n = 0;
  for (const auto& p : partition.pieces()) n += codec.norm_count(p.count);
  return round_up(n * sizeof(float), kPayloadAlign) / sizeof(float);
}

std::uint64_t coordinates_of(const Homomorphic& codec, const ChunkPartition& partition) {
  std::uint64_t n = 0;
  for (const auto& p : partition.pieces()) n += codec.coordinates(p.count);
  return round_up(n, IntegerRoute::kUnit);
}

}  // namespace

IntegerRoute::IntegerRoute(Algorithm carries, const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
    : ChunkedRoute(carries, of, chunk_elements, transport_ranks),
      norms(largest([&](const ChunkPartition& partition) { return norms_of(codec(), partition); })),
      coordinates(largest([&](const ChunkPartition& partition) { return coordinates_of(codec(), partition); })),
      width(std::bit_width(codec().granularity() * static_cast<std::uint32_t>(ranks))) {}

IntegerSums::Scratch::Scratch(const IntegerRoute& route, ArenaParts& parts) {
  const auto ranks = static_cast<std::uint64_t>(route.ranks);
  for (Norms& n : norms) {
    n.mine = parts.take<float>(route.norms);
    n.shared = parts.take<float>(route.norms);
    n.received = parts.take<std::uint8_t>(ranks * route.norms * sizeof(float));
  }
  indices = parts.take<std::uint8_t>(route.coordinates * route.codec().index_bits() / 8);
  sums = parts.take<std::uint16_t>(route.coordinates);
}

IntegerSums::IntegerSums(Transport& transport, Workers& workers, const IntegerRoute& route, const CallBuffers& call,
                         Trace* trace)
    : Pipeline(transport, workers, route, call, trace), codec_(route.codec()), parts_(call.arena),
      slices_(route.chunks()), integers_(route, parts_) {
  for (Chunk& c : open_) c.headers.resize(ranks());
}

// fn(piece) for all of a chunk's pieces, shared out among the threads.
template <class Fn>
void IntegerSums::each_piece(const Chunk& c, Fn&& fn) {
  const std::size_t n = c.bound.partition().pieces().size();
  const auto work = [&](int part, int parts) {
    for (std::size_t p = n * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts);
         p < n * static_cast<std::size_t>(part + 1) / static_cast<std::size_t>(parts); ++p) {
      fn(p);
      if (part == 0) transport_.progress();
    }
  };
  workers_.run(std::ref(work));  // no copy, which would be an allocation
}

PieceSource IntegerSums::source(const Chunk& c, std::size_t p) const {
  const ChunkPartition::Piece& piece = c.bound.partition().pieces()[p];
  const FeedbackView& memory = c.bound.feedback[piece.group];
  const std::uint64_t at = piece.offset - c.bound.partition().groups()[piece.group].offset;
  return {call_.in + c.bound.begin() + piece.offset,
          memory.in ? memory.in + at : nullptr,
          memory.out ? memory.out + at : nullptr,
          piece.count,
          {c.bound.begin() + piece.offset, call_.sequence, static_cast<std::uint32_t>(rank())},
          {},
          at};
}

void IntegerSums::find_norms(std::uint64_t i) {
  const auto begin = Clock::now();
  Chunk& c = chunk(i);
  // Memories need not wait aside: they change in quantise(), when all ranks have accepted.
  c.bound.take(slices_[i], part_, call_, call_.residuals, codec().feedback().arrays());
  c.mine = header(i, c.bound.partition().count());
  c.good = true;
  c.norm_at.clear();
  c.coordinate_at.clear();
  insist([&] {
    c.norm_at.reserve(c.bound.partition().pieces().size()),
        c.coordinate_at.reserve(c.bound.partition().pieces().size());
  });
  std::uint64_t norm_count = 0, coordinates = 0;
  for (const auto& p : c.bound.partition().pieces()) {
    c.norm_at.push_back(norm_count);
    c.coordinate_at.push_back(coordinates);
    norm_count += codec_.norm_count(p.count);
    coordinates += codec_.coordinates(p.count);
  }
  c.coordinates = round_up(coordinates, kUnit);
  if (!call_.flags) {
    float* const mine = norms(i).mine;
    const std::span body(reinterpret_cast<std::uint8_t*>(mine), round_up(norm_count * sizeof(float), kPayloadAlign));
    std::memset(body.data(), 0, body.size());
    each_piece(c, [&](std::size_t p) { codec_.norms(source(c, p), mine + c.norm_at[p]); });
    seal(c.mine, body, part_.checksum);
  }
  may_corrupt_header(c.mine);
  result_.encode_s += span("norms", i, begin);
}

void IntegerSums::start_headers(std::uint64_t i) {
  Chunk& c = chunk(i);
  c.headers_under_way = under_way(transport_.start_allgather(&c.mine, c.headers.data(), sizeof(Header)));
  count_gathered(sizeof(Header));
}

void IntegerSums::accept_headers(std::uint64_t i) {
  wait(chunk(i).headers_under_way, i);
  if (!accept(chunk(i).headers)) end();
}

void IntegerSums::start_norms(std::uint64_t i) {
  Chunk& c = chunk(i);
  c.norms_under_way = under_way(transport_.start_allgather(norms(i).mine, norms(i).received, c.mine.body_bytes));
  count_gathered(c.mine.body_bytes);
}

void IntegerSums::count_gathered(std::uint64_t bytes) {
  result_.sent_bytes += bytes;
  result_.received_bytes += (ranks() - 1) * bytes;
}

bool IntegerSums::share_norms(std::uint64_t i) {
  const Chunk& c = chunk(i);
  const std::uint64_t bytes = c.mine.body_bytes, n = bytes / sizeof(float);
  float* const shared = norms(i).shared;
  std::memset(shared, 0, bytes);
  bool good = true;
  for (std::size_t r = 0; r < ranks(); ++r) {
    const std::uint8_t* from = norms(i).received + r * bytes;
    const auto* theirs = reinterpret_cast<const float*>(from);
    std::string what = defect(c.headers[r], {from, bytes});
    if (what.empty() && !std::all_of(theirs, theirs + n, [&](float x) { return codec_.legal(x); }))
      what = "a norm of it is negative, not finite or out of range";
    good = usable(what, r, i) && good;
    for (std::uint64_t k = 0; good && k < n; ++k) shared[k] = std::max(shared[k], theirs[k]);
  }
  return good;
}

void IntegerSums::quantise(std::uint64_t i) {
  Chunk& c = chunk(i);
  c.good = share_norms(i);
  if (c.good && !c.norm_at.empty()) {
    each_piece(c, [&](std::size_t p) {
      codec_.encode(source(c, p), norms(i).shared + c.norm_at[p], indices() + index_bytes(c.coordinate_at[p]));
    });
    const std::uint64_t used =
        index_bytes(c.coordinate_at.back() + codec_.coordinates(c.bound.partition().pieces().back().count));
    std::memset(indices() + used, 0, index_bytes(c.coordinates) - used);
  }
}

void IntegerSums::decode_sums(std::uint64_t i) {
  const Chunk& c = chunk(i);
  if (!c.good) return;
  each_piece(c, [&](std::size_t p) {
    const ChunkPartition::Piece& piece = c.bound.partition().pieces()[p];
    codec_.decode(sums() + c.coordinate_at[p], norms(i).shared + c.norm_at[p], static_cast<int>(ranks()), piece.count,
                  {c.bound.begin() + piece.offset, call_.sequence, 0}, call_.out + c.bound.begin() + piece.offset);
  });
}

AlgorithmEntry integer_sums_entry() {
  AlgorithmEntry entry{};
  entry.needs = [](const Codec& codec, int ranks) -> std::string {
    if (!codec.homomorphic()) return "it needs a codec whose payloads are summed as integers (thc)";
    if (!codec.feedback().fused()) return "it needs memory=none or memory=residual with decay=1 and gamma=1";
    const std::uint32_t g = codec.homomorphic()->granularity();
    if (static_cast<std::uint64_t>(ranks) * g > Homomorphic::kMostSum)
      return "its sums have 16 bits: at most " + std::to_string(Homomorphic::kMostSum / g) +
             " ranks with g=" + std::to_string(g);
    return {};
  };
  entry.chunk_elements = [](std::uint64_t setting, const Codec&, int) {
    return std::max(kPieceElements, std::min(setting, IntegerRoute::kMostChunk));
  };
  return entry;
}

}  // namespace crimp
