// The kernels of the registry's rows. By name, so that the plugin needs no host code of codecs.
#include "codec/device_registry.hpp"

namespace crimp {
namespace {

struct DeviceEntry {
  std::string_view name;
  std::unique_ptr<DeviceCodec> (*make)(const Codec&);  // null: none
};
#define CRIMP_with_kernels(codec) codec##_device
#define CRIMP_host_only(codec) nullptr
#define CRIMP_CODEC(codec, name, kernels) {name, CRIMP_##kernels(codec)},
constexpr DeviceEntry kEntries[] = {
#include "codec/registry.def"
};
#undef CRIMP_CODEC

}  // namespace

std::unique_ptr<DeviceCodec> make_device_codec(const Codec& codec) {
  const FeedbackPolicy& memory = codec.feedback();
  if (memory.gamma != 1.0f || memory.nesterov || memory.clip > 0.0f) return nullptr;
  for (const DeviceEntry& entry : kEntries)
    if (entry.name == codec.traits().name) return entry.make ? entry.make(codec) : nullptr;
  return nullptr;
}

}  // namespace crimp
