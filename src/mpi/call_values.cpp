#include "mpi/call_values.hpp"

#include <algorithm>
#include <cmath>

#include "core/convert.hpp"
#include "core/error.hpp"

namespace crimp {
namespace {

constexpr char kNoRoom[] = "there is no room on the device";

// What `make` makes of values, given how many runs they may be read in and how. everything: DeviceAccess::synchronize.
template <class Make>
auto read_in_runs(const PointerAttributes& where, const void* values, Dtype type, bool everything, Make make) {
  const std::size_t element = size_of(type);
  const char* const from = static_cast<const char*>(values);
  if (!where.on_device())
    return make(Sample::kClusters, [&](std::uint64_t first, std::uint64_t count, float* to) {
      widen(type, from + first * element, to, count);
    });
  const DeviceAccess at(where);
  at.synchronize(everything);
  char here[Sample::kElements * sizeof(double)];
  return make(8, [&](std::uint64_t first, std::uint64_t count, float* to) {
    at.read(here, from + first * element, count * element);
    widen(type, here, to, count);
  });
}

// Where it is not, kernels fault, and copies do not.
bool aligned(const void* values, Dtype type) { return reinterpret_cast<std::uintptr_t>(values) % size_of(type) == 0; }

}  // namespace

SessionBuffers::Device::Device(const DevicePlugin& plugin, int at, bool device_bodies)
    : index(at), backend(plugin.make_backend(at, device_bodies)), bodies(backend->staging()), values(backend->memory()),
      packed(plugin.pinned()) {}

SessionBuffers::Device& SessionBuffers::device_at(int index) {
  const DevicePlugin* plugin = device_plugin();
  if (!plugin) throw Error(ErrorCode::device_failed, "the buffers are in device memory, which needs the CUDA plugin");
  auto& device = devices[index];
  if (!device) device = std::make_unique<Device>(*plugin, index, device_bodies);
  return *device;
}

void SessionBuffers::give_up(int index) noexcept {
  constexpr int kMost = 4096;
  try {
    devices.erase(index);
    Full& f = full[index];
    f.calls = f.next;
    f.next = std::min(2 * f.next, kMost);
  } catch (const std::bad_alloc&) {
  }
}

bool SessionBuffers::gives_up(int index) noexcept {
  const auto f = full.find(index);
  return f != full.end() && f->second.calls > 0 && f->second.calls-- > 0;
}

bool SessionBuffers::given_up(int index) const noexcept {
  const auto f = full.find(index);
  return f != full.end() && f->second.calls > 0;
}

Arena& SessionBuffers::staged(MemoryResource& resource, std::size_t bytes) {
  if (&resource != &host_memory()) try {
      if (!pinned) pinned.emplace(resource);
      pinned->reserve(bytes);
      return *pinned;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::out_of_memory) throw;
    }
  if (!pageable) pageable.emplace();
  pageable->reserve(bytes);
  return *pageable;
}

void SessionBuffers::release() {
  arena = Arena();
  devices.clear();
  pinned.reset();
  pageable.reset();
}

Sample sample_of(const void* values, std::uint64_t count, Dtype type) {
  return read_in_runs(pointer_attributes(values), values, type, false,
                      [count](std::uint64_t runs, const Sample::Read& read) { return Sample(count, runs, read); });
}

CallValues::CallValues(const AllreduceRequest& request, SessionBuffers& scratch)
    : request_(request), scratch_(scratch), from_(pointer_attributes(request.send)),
      to_(pointer_attributes(request.receive ? request.receive : request.send)), backend_(&scratch.host),
      send_(request.send), receive_(request.receive) {}

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
  std::vector<char> here;
  if (from_.on_device()) {
    const DeviceAccess at(from_);
    at.synchronize(request_.synchronize_all);
    here.resize(values.size() * element);
    at.read(here.data(), from, here.size());
    from = here.data();
  }
  widen(request_.dtype, from, values.data(), values.size());
  try {
    Backend* const there = kernels();
    if (there && there->runs(*part.codec)) return time_codec(*part.codec, values, elements, *there);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::out_of_memory) throw;
    scratch_.give_up(from_.device_index);
  }
  return time_codec(*part.codec, values, elements, scratch_.host);
}

Backend* CallValues::kernels() noexcept {
  if (!from_.on_device()) return nullptr;
  try {
    const DeviceAccess at(from_);
    if (!at.why_no_kernels().empty() || scratch_.given_up(from_.device_index)) return nullptr;
    return scratch_.device_at(from_.device_index).backend.get();
  } catch (const std::exception&) {  // known where it matters
    scratch_.give_up(from_.device_index);
    return nullptr;
  }
}

Sketch CallValues::sketch() const {
  return read_in_runs(from_, request_.send, request_.dtype, request_.synchronize_all,
                      [this](std::uint64_t runs, const Sample::Read& read) {
                        return Sketch(request_.count, request_.dtype, runs, read);
                      });
}

bool CallValues::counts(const Segment& segment, bool signs) const {
  if (from_.on_device()) return false;
  constexpr std::uint64_t kPlaces = 4096, kBlock = 16;
  const std::size_t element = size_of(request_.dtype);
  const auto* const from = static_cast<const char*>(request_.send) + segment.offset * element;
  const std::uint64_t stride = std::max(kBlock, segment.count / kPlaces);
  WholeNumbers whole(request_.dtype);
  bool counted = true, differ = false;
  std::uint64_t seen = 0;
  float block[kBlock], first = 0;
  for (std::uint64_t part = 0; part < segment.count; part += stride) {
    const std::uint64_t at = part + ((part + 1) * 0x9e3779b97f4a7c15u >> 32) % (stride - kBlock + 1);
    if (at >= segment.count) break;
    const auto here = static_cast<std::size_t>(std::min(kBlock, segment.count - at));
    widen(request_.dtype, from + at * element, block, here);
    for (std::size_t i = 0; i < here; ++i) {
      const float v = block[i];
      counted = counted && whole.add(v);
      if (v != 0 && seen++ == 0) first = v;
      signs = signs && std::isfinite(v) && (v == 0 || std::signbit(v) == std::signbit(first));
      differ = differ || (v != 0 && v != first);
      if (!counted && !signs) return false;
    }
  }
  return (counted && whole.certain()) || (signs && differ && seen >= Sketch::kOneSign);
}

std::string CallValues::why_through_host(std::span<const std::shared_ptr<const RoutePlan>> routes,
                                         SessionBuffers::Device& device) const {
  for (const auto& route : routes)
    if (!route->any_backend) return std::string("the algorithm ") + route->name + " runs on the host";
    else if (!device.backend->runs(*route->part.codec))
      return "the codec " + route->part.codec->spec() + " has no kernels";
  return {};
}

// False: not there, and through_host_ says why.
bool CallValues::begin_on_device(std::span<const std::shared_ptr<const RoutePlan>> routes, std::uint64_t packed) {
  const int index = to_.on_device() ? to_.device_index : from_.device_index;
  if (from_.on_device() != to_.on_device() || from_.device_index != to_.device_index || from_.foreign != to_.foreign) {
    through_host_ = "its buffers are in different memory";
  } else if (!at_->why_no_kernels().empty()) {
    through_host_ = at_->why_no_kernels();
  } else if (!aligned(request_.send, request_.dtype) || !aligned(request_.receive, request_.dtype)) {
    through_host_ = "its buffers are not aligned to their elements";
  } else if (through_host_.empty() && scratch_.gives_up(index)) {
    through_host_ = kNoRoom;
  }
  if (!through_host_.empty()) return false;
  try {
    SessionBuffers::Device& device = scratch_.device_at(index);
    through_host_ = why_through_host(routes, device);
    if (!through_host_.empty()) return false;
    device.packed.reserve(packed);
    device.backend->begin(request_.synchronize_all);
    device_ = &device;
    backend_ = device.backend.get();
    return true;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::out_of_memory || !leave_device(e.what())) throw;
    return false;
  }
}

void CallValues::begin(std::span<const std::shared_ptr<const RoutePlan>> routes, std::uint64_t packed) {
  if (!on_device()) return;
  at_.emplace(to_.on_device() ? to_ : from_);
  if (begin_on_device(routes, packed)) return;
  const std::size_t bytes = request_.count * size_of(request_.dtype);
  auto* const copy = scratch_.staged(at_->staging(), bytes + kPayloadAlign).take(bytes);
  at_->synchronize(request_.synchronize_all);
  if (from_.on_device()) {
    const DeviceAccess from(from_);
    if (to_.on_device() && request_.send != request_.receive) from.synchronize(request_.synchronize_all);
    from.read(copy, request_.send, bytes);
    send_ = copy;
  }
  if (to_.on_device()) receive_ = copy + request_.own().begin * size_of(request_.dtype);
}

bool CallValues::leave_device(const char* why) noexcept {
  const int index = to_.on_device() ? to_.device_index : from_.device_index;
  if (!on_device() || !through_host_.empty()) return false;
  try {
    backend_->synchronize();
    through_host_ = kNoRoom;
    warn_of_device(kWarnFull, std::string(why) +
                                  ": such calls' values, though in GPU memory, are encoded and decoded "
                                  "on the host until there is room for kernels");
  } catch (const std::exception&) {
    return false;
  }
  backend_ = &scratch_.host;
  device_ = nullptr;
  scratch_.give_up(index);
  return true;
}

void CallValues::prepare(const RoutePlan& route) {
  constexpr std::size_t kMost = 4096;
  std::set<std::uint64_t>& prepared = device_->prepared;
  if (prepared.contains(route.id)) return;
  route.prepare(*backend_);
  if (prepared.size() == kMost) prepared.clear();
  prepared.insert(route.id);
}

void CallValues::write_back(const Layout& layout) {
  if (receive_ == request_.receive) return;
  if (!to_.on_device()) return;
  const DeviceAccess to(to_);
  const std::size_t element = size_of(request_.dtype);
  const Shares::Run own = request_.own();
  SummedRuns(layout).each(own.begin, own.end, [&](std::uint64_t begins, std::uint64_t ends) {
    const std::uint64_t first = (begins - own.begin) * element, last = (ends - own.begin) * element;
    to.write(static_cast<char*>(request_.receive) + first, static_cast<const char*>(receive_) + first, last - first);
  });
}

}  // namespace crimp
