#include "support/sum.hpp"

#include "core/convert.hpp"
#include "support/thread_node.hpp"

namespace crimp::test {

std::string text_of(const Way& way) {
  const std::string name = entry_of(way.algorithm).name;
  return way.per_node ? "hierarchical, nodes of " + std::to_string(way.per_node) + ", " + name : name;
}

std::vector<Way> ways_of(const Codec& codec, int ranks) {
  std::vector<Way> ways;
  const bool in_nodes = entry_of(Algorithm::hierarchical).why_unsupported(codec, ranks).empty();
  for (const auto& entry : carriers()) {
    if (entry.why_unsupported(codec, ranks).empty()) ways.push_back({entry.algorithm});
    for (int per_node = 2; per_node <= ranks && in_nodes; ++per_node)
      if (ranks % per_node == 0 && entry.why_unsupported(codec, ranks / per_node).empty())
        ways.push_back({entry.algorithm, per_node});
  }
  return ways;
}

Sum::Sum(Transport& transport, const Codec& codec, Algorithm algorithm, const std::vector<std::size_t>& tensors,
         const Hierarchy* hierarchy)
    : transport_(transport), codec_(codec) {
  const bool encodes = !hierarchy || hierarchy->leaders, owns = encodes && entry_of(algorithm).owner_memory(codec);
  std::vector<Segment> segments;
  std::uint64_t at = 0;
  for (const std::size_t n : tensors) {
    segments.push_back({"tensor." + std::to_string(segments.size()), at, n});
    if (encodes && codec.feedback().kept()) memories_.emplace_back(codec.feedback_elements(n));
    if (owns) owner_memories_.emplace_back(n + codec.state_elements(n));
    at += n;
  }
  layout_ = Layout::make(Layout::Source::named, std::move(segments));
  PartPlan part{&codec, layout_, at};
  part.remembers = codec.feedback().kept();
  route_ = plan_route(algorithm, part, round_up(at, kPieceElements), hierarchy ? hierarchy->nodes : transport.size());
  if (hierarchy) route_ = in_nodes(route_, *hierarchy);
  for (auto& m : memories_) call_.residuals.push_back(m.data());
  for (auto& m : owner_memories_) call_.owner_residuals.push_back(m.data());
  arena_.reserve(route_->bytes({}).together);
  call_.arena = &arena_;
}

bool Sum::operator()(float* values) {
  call_.in = call_.out = values;
  call_.flags = magnitude(Dtype::f32, values, route_->part.count) <= static_cast<double>(codec_.traits().max_magnitude)
                    ? std::uint8_t{0}
                    : std::uint8_t{kFlagExact};
  arena_.reset();
  const CollectiveResult result = allreduce_compressed(transport_, *route_, call_, workers_);
  ++call_.sequence;
  sent_ += result.sent_bytes;
  return !result.flags && !result.error;
}

void Sum::add_held(double* to) const {
  for (const auto* memories : {&memories_, &owner_memories_})
    for (std::size_t s = 0; s < memories->size(); ++s)
      for (std::size_t i = 0; i < layout_->segments[s].count; ++i)
        to[layout_->segments[s].offset + i] += static_cast<double>((*memories)[s][i]);
}

void run_sums(const Way& way, int ranks, const Codec& codec, const std::vector<std::size_t>& tensors,
              const std::function<void(int, Sum&)>& body) {
  if (way.per_node == 0) {
    run_ranks(ranks, [&](ThreadTransport& transport) {
      Sum sum(transport, codec, way.algorithm, tensors);
      body(transport.rank(), sum);
    });
    return;
  }
  const int nodes = ranks / way.per_node;
  run_nodes(nodes, way.per_node, [&](int rank, ThreadNode& node, ThreadTransport* leaders) {
    const Hierarchy hierarchy{&node, leaders, nodes};
    struct Nowhere final : Transport {  // ranks that do not lead send nothing
      [[noreturn]] static Ticket used() { throw std::logic_error("a rank that does not lead sends"); }
      int rank() const override { used(); }
      int size() const override { return 1; }
      Ticket start_allgather(const void*, void*, std::uint64_t) override { used(); }
      Ticket start_allgatherv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>,
                              void*) override {
        used();
      }
      Ticket start_alltoallv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>, void*,
                             std::span<const std::uint64_t>, std::span<const std::uint64_t>) override {
        used();
      }
      Ticket start_sum(const void*, void*, std::uint64_t, Integer) override { used(); }
      void wait(Ticket) override { used(); }
      bool done(Ticket) override { used(); }
      void progress() noexcept override {}
    } nowhere;
    Sum sum(nowhere, codec, way.algorithm, tensors, &hierarchy);
    body(rank, sum);
  });
}

}  // namespace crimp::test
