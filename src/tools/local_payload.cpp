#include "local_payload.hpp"

#include "codec/payload.hpp"
#include "collective/algorithms.hpp"
#include "loopback.hpp"
#include "memory/memory_resource.hpp"
#include "memory/workers.hpp"

namespace crimp::tools {

double payload_bytes(const Codec& codec, const Settings& settings, int ranks, const LocalCalls& local) {
  if (codec.traits().whole_tensors) {  // its size does not depend on the values
    const std::uint64_t elements = local.count;
    std::vector<float> out(elements);
    const Algorithm algorithm = first_algorithm(codec, 1);
    const PartPlan part{&codec, Layout::make(Layout::Source::named, {{"tensor", 0, elements}}), elements};
    const auto route = plan_route(algorithm, part, chunk_elements(settings.chunk, codec, 1, algorithm), 1);
    Arena arena;
    arena.reserve(route->bytes({}).together);
    const CallBuffers call{.in = local.values, .out = out.data(), .arena = &arena};
    Loopback loopback;
    Workers workers(settings.threads);
    return static_cast<double>(allreduce_compressed(loopback, *route, call, workers).sent_bytes);
  }
  const bool feeds_back = codec.feedback().kept() && settings.error_feedback;
  const std::uint64_t count = local.count, chunk = std::min(chunk_elements(settings.chunk, codec, ranks), count);
  const Memory kept(feeds_back ? codec.feedback_elements(count) * sizeof(float) : 0);
  auto* const memory = feeds_back ? reinterpret_cast<float*>(kept.data()) : nullptr;
  Workers workers(settings.threads);
  std::vector<std::uint8_t> body;
  std::vector<float> scratch(scratch_elements(codec, chunk, feeds_back));
  std::uint64_t bytes = 0;
  const int before = feeds_back ? local.before : 0, calls = feeds_back ? local.calls : 1;
  for (int call = 0; call < before + calls; ++call) {
    if (call == before) bytes = 0;
    for (std::uint64_t at = 0; at < count; at += chunk) {
      ChunkPartition partition;
      partition.add_group(std::min(chunk, count - at));
      const FeedbackView feedback = feedback_of(codec, memory, codec.feedback().arrays(), count, at);
      body.resize(partition.body_bound(codec));
      bytes +=
          sizeof(Header) + encode_body(codec, partition, local.values + at, std::span(&feedback, 1),
                                       {at, static_cast<std::uint32_t>(call), 0}, body.data(), scratch.data(), workers);
    }
  }
  return static_cast<double>(bytes) / calls;
}

}  // namespace crimp::tools
