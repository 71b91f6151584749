#include "local_payload.hpp"

#include "backend/workers.hpp"
#include "crimp/backend.hpp"
#include "crimp/collective.hpp"
#include "crimp/payload.hpp"

namespace crimp::tools {

double payload_bytes(const Codec& codec, const Settings& settings, int ranks, const LocalCalls& local) {
  const bool feeds_back = codec.traits().needs_residual && settings.error_feedback;
  const std::uint64_t count = local.count, chunk = std::min(chunk_elements(settings.chunk, codec, ranks), count);
  const std::uint64_t step = local.named ? chunk : kBlockElements;
  const Memory residual(feeds_back ? count * sizeof(float) : 0);
  auto* const memory = feeds_back ? reinterpret_cast<float*>(residual.data()) : nullptr;
  Workers workers(settings.threads);
  std::vector<std::uint8_t> body;
  std::uint64_t bytes = 0;
  const int before = feeds_back ? local.before : 0, calls = feeds_back ? local.calls : 1;
  for (int call = 0; call < before + calls; ++call) {
    const float scale = local.named && codec.traits().has_scale ? codec.measure(local.values, memory, count) : -1.0f;
    if (call == before) bytes = 0;
    for (std::uint64_t at = 0; at < count; at += chunk) {
      const std::uint64_t end = std::min(count, at + chunk);
      Shape shape;
      std::vector<Feedback> feedback;
      for (std::uint64_t g = at; g < end; g += step) {
        shape.add_group(std::min(step, end - g));
        float* const here = memory ? memory + g : nullptr;
        feedback.push_back({here, here, scale});
      }
      body.resize(shape.body_bound(codec));
      bytes += sizeof(Header) + encode_body(codec, shape, local.values + at, feedback, body.data(), workers);
    }
  }
  return static_cast<double>(bytes) / calls;
}

}  // namespace crimp::tools
