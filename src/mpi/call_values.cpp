#include "mpi/call_values.hpp"

#include <algorithm>

#include "core/convert.hpp"
#include "core/error.hpp"

namespace crimp {
namespace {

const DevicePlugin& plugin_now() {
  const DevicePlugin* plugin = device_plugin();
  if (!plugin) throw Error(ErrorCode::device_failed, "the buffers are in device memory, which needs the CUDA plugin");
  return *plugin;
}

}  // namespace

SessionBuffers::Device::Device(const DevicePlugin& plugin, int at, bool device_bodies)
    : index(at), backend(plugin.make_backend(at, device_bodies)), bodies(backend->staging()), values(backend->memory()),
      packed(plugin.pinned()) {}

SessionBuffers::Device& SessionBuffers::device_at(int index) {
  if (!device || device->index != index) device = std::make_unique<Device>(plugin_now(), index, device_bodies);
  return *device;
}

void SessionBuffers::release() {
  arena = Arena();
  device.reset();
}

CallValues::CallValues(const AllreduceRequest& request, SessionBuffers& scratch)
    : request_(request), scratch_(scratch), from_(pointer_attributes(request.send)),
      to_(pointer_attributes(request.receive)), backend_(&scratch.host), send_(request.send),
      receive_(request.receive) {}

CallValues::~CallValues() {
  try {
    backend_->synchronize();
  } catch (const std::exception&) {  // known where it matters
  }
}

CodecCost CallValues::time(const PartPlan& part, std::uint64_t elements) {
  const auto& segments = part.layout->segments;
  const auto longest = std::max_element(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
    return (a.summed() ? a.count : 0) < (b.summed() ? b.count : 0);
  });
  std::vector<float> values(std::min(longest->count, kSampleElements));
  const std::size_t element = size_of(request_.dtype);
  const char* from = static_cast<const char*>(request_.send) + longest->offset * element;
  Backend* backend = &scratch_.host;
  std::vector<char> here;
  if (from_.on_device()) {
    const DevicePlugin& plugin = plugin_now();
    plugin.synchronize(from_.device_index, request_.synchronize_all);
    here.resize(values.size() * element);
    plugin.memory(from_.device_index).read(here.data(), from, here.size());
    from = here.data();
    if (Backend& there = *scratch_.device_at(from_.device_index).backend; there.runs(*part.codec)) backend = &there;
  }
  widen(request_.dtype, from, values.data(), values.size());
  return time_codec(*part.codec, values, elements, *backend);
}

Sketch CallValues::sketch() const {
  const std::size_t element = size_of(request_.dtype);
  const char* const send = static_cast<const char*>(request_.send);
  if (!from_.on_device())
    return Sketch(request_.count, Sketch::kClusters, [&](std::uint64_t first, std::uint64_t count, float* to) {
      widen(request_.dtype, send + first * element, to, count);
    });
  const DevicePlugin& plugin = plugin_now();
  plugin.synchronize(from_.device_index, request_.synchronize_all);
  char here[Sketch::kElements * sizeof(double)];
  return Sketch(request_.count, 8, [&](std::uint64_t first, std::uint64_t count, float* to) {
    plugin.memory(from_.device_index).read(here, send + first * element, count * element);
    widen(request_.dtype, here, to, count);
  });
}

void CallValues::begin(std::span<const std::shared_ptr<const RoutePlan>> routes, std::uint64_t packed) {
  if (!on_device()) return;
  const DevicePlugin& plugin = plugin_now();
  const int index = from_.on_device() ? from_.device_index : to_.device_index;
  const std::size_t bytes = request_.count * size_of(request_.dtype);
  SessionBuffers::Device& device = scratch_.device_at(index);
  device.packed.reserve(packed + bytes + kPayloadAlign);
  if (from_.on_device() != to_.on_device() || (to_.on_device() && from_.device_index != to_.device_index))
    through_host_ = "its buffers are in different memory";
  for (const auto& route : routes)
    if (!route->any_backend) through_host_ = std::string("the algorithm ") + route->name + " runs on the host";
    else if (!device.backend->runs(*route->part.codec))
      through_host_ = "the codec " + route->part.codec->spec() + " has no kernels";
  if (through_host_.empty()) {
    backend_ = device.backend.get();
    backend_->begin(request_.synchronize_all);
    return;
  }
  plugin.synchronize(index, request_.synchronize_all);
  auto* const copy = device.packed.take(bytes);
  if (from_.on_device()) plugin.memory(from_.device_index).read(copy, request_.send, bytes), send_ = copy;
  if (to_.on_device()) receive_ = copy;
}

void CallValues::prepare(const RoutePlan& route) {
  constexpr std::size_t kMost = 4096;
  std::set<std::uint64_t>& prepared = scratch_.device->prepared;
  if (prepared.contains(route.id)) return;
  route.prepare(*backend_);
  if (prepared.size() == kMost) prepared.clear();
  prepared.insert(route.id);
}

void CallValues::write_back(const Layout& layout) {
  if (receive_ == request_.receive) return;
  MemoryResource& memory = plugin_now().memory(to_.device_index);
  const std::size_t element = size_of(request_.dtype);
  for (std::size_t s = 0, end = 0; s < layout.segments.size(); s = std::max(end, s + 1)) {
    // Neighbours in one copy.
    for (end = s; end < layout.segments.size() && layout.segments[end].summed();) ++end;
    if (end == s) continue;
    const std::uint64_t first = layout.segments[s].offset * element;
    const std::uint64_t last = (layout.segments[end - 1].offset + layout.segments[end - 1].count) * element;
    memory.write(static_cast<char*>(request_.receive) + first, static_cast<const char*>(receive_) + first,
                 last - first);
  }
}

}  // namespace crimp
