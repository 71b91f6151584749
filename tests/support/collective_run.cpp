#include "support/collective_run.hpp"

#include <algorithm>
#include <cstring>

#include "collective/algorithms.hpp"
#include "collective/wire.hpp"
#include "memory/workers.hpp"
#include "support/data.hpp"

namespace crimp::test {

std::shared_ptr<const Layout> named_layout(std::uint64_t count, const std::vector<std::uint64_t>& sizes) {
  std::vector<Segment> segments;
  std::uint64_t at = 0;
  for (std::size_t i = 0; at < count; ++i) {
    const std::uint64_t size = std::min(sizes[i % sizes.size()], count - at);
    segments.push_back({"tensor." + std::to_string(i), at, size});
    at += size;
  }
  if (count == 0) segments.push_back({"tensor.0", 0, 0});
  return Layout::make(Layout::Source::named, std::move(segments));
}

std::shared_ptr<const Layout> changed(const Layout& layout, Layout::Source source,
                                      const std::function<void(std::vector<Segment>&)>& change) {
  std::vector<Segment> segments = layout.segments;
  change(segments);
  return Layout::make(source, std::move(segments));
}

std::vector<Rank> make_ranks(const Setup& setup, int ranks, std::uint64_t seed) {
  std::vector<Rank> all(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].values = make_data(r % 3 == 1 ? Data::sparse : Data::normal, seed + r, setup.count);
    // Tensors of very different scales, as layers have.
    for (std::size_t i = 0; i < setup.count; ++i) all[r].values[i] *= i / 30000 % 2 ? 0x1p-9f : 1.0f;
    if (setup.feedback) all[r].residual.resize(setup.count);
    if (setup.feedback && entry_of(setup.algorithm).owner_memory(*setup.codec))
      all[r].owner_residual.resize(setup.count);
    all[r].out.assign(setup.count, 12345.0f);
  }
  return all;
}

std::string text_of(const Setup& s) {
  return s.codec->spec() + ", " + entry_of(s.algorithm).name + ", " + std::to_string(s.count) +
         " elements in chunks of " + std::to_string(s.chunk) + ", " + std::to_string(s.layout->segments.size()) +
         " segments " + name_of(s.layout->source) + ", " + std::to_string(s.threads) + " threads" +
         (s.radix > 1 ? ", relays of base " + std::to_string(s.radix) : "") + (s.in_place ? ", in place" : "") +
         (s.feedback ? "" : ", no feedback") + (s.checksum ? "" : ", no checksum");
}

std::shared_ptr<const RoutePlan> route_of(const Setup& setup, int ranks) {
  return plan_route(setup.algorithm,
                    {setup.codec.get(), setup.layout, setup.count, Dtype::f32, setup.checksum, setup.feedback},
                    setup.chunk, ranks, setup.radix);
}

CallBuffers buffers_of(const Setup& setup, Rank& rank) {
  if (setup.in_place) rank.out = rank.values;
  CallBuffers c;
  c.in = setup.in_place ? rank.out.data() : rank.values.data();
  c.out = rank.out.data();
  c.flags = rank.flags;
  c.sequence = rank.sequence;
  c.idle = rank.idle;
  c.backend = rank.backend;
  c.delay = rank.delay;
  return c;
}

void call(Transport& transport, const Setup& setup, Rank& rank, Workers& workers) {
  CallBuffers c = buffers_of(setup, rank);
  if (setup.feedback)
    for (const auto& s : setup.layout->segments)
      c.residuals.push_back(!rank.idle.empty() && rank.idle[c.residuals.size()] ? nullptr
                                                                                : rank.residual.data() + s.offset);
  if (!rank.owner_residual.empty())
    for (const auto& s : setup.layout->segments) c.owner_residuals.push_back(rank.owner_residual.data() + s.offset);
  const auto route = route_of(setup, transport.size());
  // An arena of exactly the size that is asked for, so that taking more fails.
  Arena arena;
  if (!rank.no_memory) arena.reserve(route->bytes({}).together);
  c.arena = rank.no_memory ? nullptr : &arena;
  Arena unreserved;
  if (rank.no_memory) c.values = &unreserved;
  rank.result = allreduce_compressed(transport, *route, c, workers);
}

void announce_more(std::span<std::uint8_t> header, std::uint64_t bytes) {
  Header changed;
  std::memcpy(&changed, header.data(), sizeof changed);
  changed.body_bytes += bytes;
  std::memcpy(header.data(), &changed, sizeof changed);
}

void run_all(const Setup& setup, std::vector<Rank>& ranks, const RunOptions& options) {
  run_ranks(
      static_cast<int>(ranks.size()),
      [&](ThreadTransport& transport) {
        Workers workers(setup.threads);
        Rank& rank = ranks[static_cast<std::size_t>(transport.rank())];
        call(transport, setup, rank, workers);
        rank.exchanges = transport.exchanges();
        rank.messages = transport.messages();
      },
      options);
}

std::vector<float> model_all(const Setup& setup, std::vector<Rank>& ranks) {
  const ModelCodec codec(setup.codec->spec());
  std::vector<ModelSegment> segments;
  for (const auto& s : setup.layout->segments) segments.push_back({s.offset, s.count});
  if (setup.algorithm == Algorithm::two_shot) {
    std::vector<ModelRank> of;
    for (auto& r : ranks) of.push_back({r.values, &r.residual, &r.owner_residual});
    return model_two_shot(codec, of, segments, setup.chunk, ranks[0].sequence);
  }
  std::vector<std::vector<float>> contributions;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    contributions.push_back(model_contribution(codec, ranks[r].values, ranks[r].residual, segments, setup.chunk,
                                               ranks[r].sequence, static_cast<std::uint32_t>(r)));
  return model_sum(codec, contributions);
}

}  // namespace crimp::test
