#include "collective/integer_sums.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

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
  return round_up(n, kSumUnit);
}

}  // namespace

IntegerRoute::IntegerRoute(Algorithm carries, const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
    : ChunkedRoute(carries, of, chunk_elements, transport_ranks),
      pieces(largest([](const ChunkPartition& partition) { return partition.pieces().size(); })),
      norms(largest([&](const ChunkPartition& partition) { return norms_of(codec(), partition); })),
      coordinates(largest([&](const ChunkPartition& partition) { return coordinates_of(codec(), partition); })),
      width(std::bit_width(codec().granularity() * static_cast<std::uint32_t>(ranks))) {}

IntegerSums::Scratch::Scratch(const IntegerRoute& route, ArenaParts& parts) {
  const auto ranks = static_cast<std::uint64_t>(route.ranks);
  for (Of& c : chunk) {
    c.pieces = parts.host<SumPiece>(route.pieces);
    c.pieces_there = parts.mirror(c.pieces, route.pieces);
    c.mine = parts.host<float>(route.norms);
    c.mine_there = parts.mirror(c.mine, route.norms);
    c.shared = parts.host<float>(route.norms);
    c.shared_there = parts.mirror(c.shared, route.norms);
    c.received = parts.host<std::uint8_t>(ranks * route.norms * sizeof(float));
  }
  indices = parts.backend<std::uint8_t>(route.coordinates * route.codec().index_bits() / 8);
  sums = parts.backend<std::uint16_t>(route.coordinates);
}

IntegerSums::IntegerSums(Transport& transport, Workers& workers, const IntegerRoute& route, const CallBuffers& call,
                         Trace* trace)
    : Pipeline(transport, workers, route, call, trace), codec_(route.codec()),
      parts_(call.arena, call.arena ? call.values : nullptr),  // neither: this rank has no room

      steps_(backend_.sum_steps(codec())), slices_(route.chunks()), integers_(route, parts_) {
  for (Chunk& c : open_) c.headers.resize(ranks());
}

void IntegerSums::place_pieces(std::uint64_t i) {
  Chunk& c = chunk(i);
  const auto& pieces = c.bound.partition().pieces();
  std::uint64_t norm_count = 0, coordinates = 0;
  SumPiece* const to = scratch(i).pieces;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const ChunkPartition::Piece& piece = pieces[p];
    const FeedbackView& memory = c.bound.feedback[piece.group];
    const std::uint64_t in_group = piece.offset - c.bound.partition().groups()[piece.group].offset;
    if (to)
      to[p] = {piece.offset,
               memory.in ? memory.in + in_group : nullptr,
               memory.out ? memory.out + in_group : nullptr,
               coordinates,
               piece.count,
               static_cast<std::uint32_t>(norm_count)};
    norm_count += codec_.norm_count(piece.count);
    coordinates += codec_.coordinates(piece.count);
  }
  c.norm_bytes = round_up(norm_count * sizeof(float), kPayloadAlign);
  c.coordinates = round_up(coordinates, kSumUnit);
  c.pieces = {{scratch(i).pieces_there, to ? pieces.size() : 0},
              call_.in + c.bound.begin(),
              call_.out + c.bound.begin(),
              {c.bound.begin(), call_.sequence, encoder()},
              streamed_};
}

void IntegerSums::find_norms(std::uint64_t i) {
  const auto begin = Clock::now();
  Chunk& c = chunk(i);
  // Memories need not wait aside: they change in quantise(), when all ranks have accepted.
  c.bound.take(slices_[i], part_, call_, call_.residuals, codec().feedback().arrays());
  c.mine = header(i, c.bound.partition().count());
  c.good = true;
  place_pieces(i);
  if (!call_.flags) {
    const Scratch::Of& to = scratch(i);
    if (c.norm_bytes) std::memset(to.mine, 0, c.norm_bytes);
    try {
      if (!steps_) throw Error(ErrorCode::device_failed, "there are no kernels for sums of " + codec().spec());
      bring(to.mine_there, to.mine, c.norm_bytes);
      bring(to.pieces_there, to.pieces, c.pieces.pieces.size() * sizeof(SumPiece));
      steps_->norms(c.pieces, to.mine_there, mover());
      fetch(to.mine, to.mine_there, c.norm_bytes);
    } catch (const std::exception& e) {
      failed(c.mine, e);
    }
  }
  result_.encode_s += span("norms", i, begin);
}

void IntegerSums::start_headers(std::uint64_t i) {
  Chunk& c = chunk(i);
  if (!c.mine.flags) try {
      steps_->finish(mover());
      seal(c.mine, {reinterpret_cast<std::uint8_t*>(scratch(i).mine), c.norm_bytes}, part_.checksum);
    } catch (const std::exception& e) {
      failed(c.mine, e);
    }
  may_corrupt_header(c.mine);
  c.headers_under_way = under_way(transport_.start_allgather(&c.mine, c.headers.data(), sizeof(Header)));
  count_gathered(sizeof(Header));
}

void IntegerSums::accept_headers(std::uint64_t i) {
  wait(chunk(i).headers_under_way, i);
  if (!accept(chunk(i).headers)) end();
}

void IntegerSums::start_norms(std::uint64_t i) {
  Chunk& c = chunk(i);
  c.norms_under_way = under_way(transport_.start_allgather(scratch(i).mine, scratch(i).received, c.norm_bytes));
  count_gathered(c.norm_bytes);
}

void IntegerSums::count_gathered(std::uint64_t bytes) {
  result_.sent_bytes += bytes;
  result_.received_bytes += (ranks() - 1) * bytes;
}

bool IntegerSums::share_norms(std::uint64_t i) {
  const Chunk& c = chunk(i);
  const std::uint64_t bytes = c.norm_bytes, n = bytes / sizeof(float);
  float* const shared = scratch(i).shared;
  std::memset(shared, 0, bytes);
  bool good = true;
  for (std::size_t r = 0; r < ranks(); ++r) {
    const std::uint8_t* from = scratch(i).received + r * bytes;
    const auto* theirs = reinterpret_cast<const float*>(from);
    std::string what = defect(c.headers[r], {from, bytes});
    if (what.empty() && !std::all_of(theirs, theirs + n, [&](float x) { return codec_.legal(x); }))
      what = "a norm of it is negative, not finite or out of range";
    good = usable(what, r, i) && good;
    for (std::uint64_t k = 0; good && k < n; ++k) shared[k] = std::max(shared[k], theirs[k]);
  }
  return good;
}

void IntegerSums::start_quantise(std::uint64_t i) {
  const Chunk& c = chunk(i);
  bring(scratch(i).shared_there, scratch(i).shared, c.norm_bytes);
  steps_->encode(c.pieces, scratch(i).shared_there, c.coordinates, indices(), mover());
}

void IntegerSums::decode_sums(std::uint64_t i) {
  const Chunk& c = chunk(i);
  if (!c.good) return;
  // Not waited for: what it reads is overwritten behind it alone, by steps or once one of a later chunk was waited for.
  attempt([&] { steps_->decode(c.pieces, sums(), scratch(i).shared_there, static_cast<int>(ranks()), mover()); });
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
    const std::uint64_t most = setting < kDeviceChunk ? IntegerRoute::kMostChunk : kDeviceChunk;
    return std::max(kPieceElements, std::min(setting, most));
  };
  entry.any_backend = entry.converts = true;
  entry.host_bodies = true;  // indices and sums are looked at, and MPI adds integers
  return entry;
}

}  // namespace crimp
