#include "collective/partition.hpp"

#include <new>
#include <string>

#include "core/error.hpp"
#include "core/fault.hpp"

namespace crimp {

namespace {

// What of each segment lies in [begin, end).
template <class Part>
void each_part(const Layout& layout, std::uint64_t begin, std::uint64_t end, Part part) {
  const auto& all = layout.segments;
  auto s = static_cast<std::size_t>(std::upper_bound(all.begin(), all.end(), begin,
                                                     [](std::uint64_t at, const Segment& x) { return at < x.offset; }) -
                                    all.begin());
  for (s -= s > 0; s < all.size() && all[s].offset < end; ++s) {
    const std::uint64_t first = std::max(begin, all[s].offset), last = std::min(end, all[s].offset + all[s].count);
    if (first < last) part(s, last - first);
  }
}

}  // namespace

Slice::Slice(const Layout& layout, std::uint64_t from, std::uint64_t end) : begin(from) {
  each_part(layout, from, end, [&](std::size_t s, std::uint64_t count) {
    if (!layout.segments[s].summed()) return partition.add_gap(count);
    partition.add_group(count);
    segments.push_back(static_cast<std::uint32_t>(s));
  });
}

std::uint64_t body_bound(const Codec& codec, const Layout& layout, std::uint64_t begin, std::uint64_t end) {
  std::uint64_t pieces = 0, bytes = 0;
  const std::uint64_t whole = codec.piece_bound(kPieceElements);
  each_part(layout, begin, end, [&](std::size_t s, std::uint64_t count) {
    if (!layout.segments[s].summed()) return;
    const std::uint64_t rest = count % kPieceElements;
    pieces += div_up(count, kPieceElements);
    bytes += count / kPieceElements * whole + (rest ? codec.piece_bound(rest) : 0);
  });
  const std::uint64_t lengths = codec.traits().fixed_size ? 0 : pieces * sizeof(std::uint16_t);
  return round_up(lengths, kPayloadAlign) + round_up(bytes, kPayloadAlign);
}

ChunkedRoute::ChunkedRoute(Algorithm carries, const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
    : RoutePlan(carries, of, chunk_elements, transport_ranks) {
  if (!part.declined && fault::fires("plan")) throw std::bad_alloc();
  const std::uint64_t chunks = part.declined ? 1 : std::max<std::uint64_t>(1, div_up(part.count, chunk));
  chunks_.reserve(chunks);
  for (std::uint64_t i = 0; i < chunks; ++i) chunks_.push_back(slice(i * chunk, std::min(part.count, (i + 1) * chunk)));
}

ChunkedRoute::ChunkedRoute(Algorithm carries, const PartPlan& of, const Runs& cut, int transport_ranks)
    : RoutePlan(carries, of, cut.elements, transport_ranks), at_once_(cut.at_once) {
  if (!part.declined && fault::fires("plan")) throw std::bad_alloc();
  const std::size_t runs = part.declined ? cut.at_once : cut.runs.size();
  chunks_.reserve(runs);
  for (std::size_t i = 0; i < runs; ++i) chunks_.push_back(slice(cut.runs[i].begin, cut.runs[i].end));
}

RouteBytes ChunkedRoute::bytes(const std::vector<powersgd::Extents*>&) const {
  if (part.declined)
    throw Error(ErrorCode::out_of_memory, "no memory to plan a call of " + std::to_string(part.count) + " elements");
  return bytes_;
}

void ChunkedRoute::prepare(Backend& backend) const {
  for (const Slice& slice : chunks_) backend.prepare(*part.codec, slice.partition, ranks);
}

std::uint64_t ChunkedRoute::footprint() const {
  std::uint64_t sum = sizeof *this;
  for (const Slice& slice : chunks_) sum += slice.footprint();
  return sum;
}

std::uint64_t ChunkedRoute::spare_bytes() const {
  const std::uint64_t states = part.codec->keeps_state()
                                   ? at_once_ * largest([](const ChunkPartition& p) { return p.groups().size(); }) +
                                         static_cast<std::uint64_t>(ranks)
                                   : 0;  // shards cut groups
  return sizeof(float) * (spare_states() + Codec::kStateFloats * states);
}

std::uint64_t ChunkedRoute::spare_states() const {
  return std::min(part.count, chunk) * static_cast<std::uint64_t>(std::max(1, part.codec->feedback().arrays()));
}

std::uint64_t ChunkedRoute::scratch_bytes() const {
  return scratch_elements(*part.codec, std::min(part.count, chunk), part.remembers) * sizeof(float);
}

void ChunkedRoute::set_bytes(std::uint64_t bodies, std::uint64_t besides) {
  const std::uint64_t values =
      (part.remembers ? 2 * Arena::padded(spare_bytes()) : 0) + Arena::padded(scratch_bytes()) + besides;
  bytes_ = {bodies + values, bodies, values};
}

}  // namespace crimp
