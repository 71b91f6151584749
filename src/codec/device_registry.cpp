// The registry of device codecs: one line per codec, in the order of their wire ids.
#include "codec/device_registry.hpp"

namespace crimp {
namespace {

struct DeviceEntry {
  std::string_view name;
  std::unique_ptr<DeviceCodec> (*make)(const Codec&);
};
constexpr DeviceEntry kEntries[] = {
    {"none", none_device},
    {"fp16", fp16_device},
    {"bf16", bf16_device},
    {"3lc", threelc_device},
    {"qsgd", qsgd_device},
    {"terngrad", terngrad_device},
    {"natural", natural_device},
    {"8bit", eightbit_device},
    {"1bit", onebit_device},
    {"signsgd", signsgd_device},
    {"signum", signum_device},
    {"efsignsgd", efsignsgd_device},
    {"inceptionn", inceptionn_device},
    {"maxmin", maxmin_device},
    {"fp8", fp8_device},
    {"sketchml", sketchml_device},
    {"adaq", adaq_device},
    {"topk", topk_device},
    {"randomk", randomk_device},
    {"threshold", threshold_device},
    {"dgc", dgc_device},
    {"sidco", sidco_device},
    {"thc", thc_device},
};

}  // namespace

std::unique_ptr<DeviceCodec> make_device_codec(const Codec& codec) {
  const MemoryPolicy& memory = codec.memory();
  if (memory.gamma != 1.0f || memory.nesterov || memory.clip > 0.0f) return nullptr;
  for (const DeviceEntry& entry : kEntries)
    if (entry.name == codec.traits().name) return entry.make(codec);
  return nullptr;
}

}  // namespace crimp
