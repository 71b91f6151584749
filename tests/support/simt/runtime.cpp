// The CUDA runtime's memory, streams, events and errors, on the host. Every stream is a queue that runs when somebody
// waits for it.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "cuda_runtime.h"
#include "driver.hpp"
#include "pages.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace {

struct Context;
// A capture into a graph that is under way; what it holds is counted and never run.
struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  bool invalidated = false;
  std::size_t nodes = 0;
};

struct Ticket {
  CUstream_st* stream;
  bool done = false;
};
using Reach = std::pair<const unsigned char*, const unsigned char*>;
struct Operation {
  std::function<void()> run;           // null: a wait or a record
  std::shared_ptr<Ticket> wait, mark;  // done before, done by it
  std::vector<Reach> reads, writes;    // of host memory
};

}  // namespace

struct CUstream_st {
  std::deque<Operation> queue;
  int priority = 0;
  bool blocking = true;    // waits for the legacy stream, and that one for it
  bool destroyed = false;  // its handle; what is enqueued still runs
  Context* context = nullptr;
  std::shared_ptr<Capture> capture;
};
struct CUevent_st {
  std::shared_ptr<Ticket> ticket;
  std::shared_ptr<Capture> capture;  // in which it was recorded last
  bool timing = true;
  Context* context = nullptr;
};
struct CUgraph_st {
  std::size_t nodes;
};

namespace {

struct Context {
  int device;
  bool primary, active = false;
  CUstream_st legacy{};
};

}  // namespace

namespace simt {
namespace {

constexpr unsigned char kCanary = 0xcb;

struct Allocation {
  unsigned char *begin, *pages;  // the user's bytes end within 16 of the last page's end
  std::size_t bytes, page_bytes;
  Context* context;
  int descriptor = -1;                    // where it is shared with other processes
  bool imported = false;                  // it is another process's
  std::atomic<int>* importers = nullptr;  // in a page behind it
};
struct HostRange {
  std::size_t bytes;
  bool registered, managed;
};

std::recursive_mutex mutex;
std::map<const unsigned char*, Allocation> device_memory;  // by begin
std::map<const unsigned char*, HostRange> host_memory;
std::set<CUstream_st*> streams;  // but legacy ones
std::set<CUevent_st*> events;
std::deque<Context> contexts;  // the primary ones first; their addresses are the handles
thread_local std::vector<Context*> current_contexts;
thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
std::map<std::pair<const Context*, const void*>, int> kernels;  // that are loaded: their most dynamic shared memory
constexpr std::size_t kAnyLoads = ~std::size_t{0};
std::size_t loads_left = kAnyLoads;
std::map<std::string, std::uint64_t> call_counts;
struct Planned {
  int calls, error;  // left until the failing one
  bool sticks;
};
std::map<std::string, Planned> planned;
std::deque<float> elapsed_planned;
std::size_t device_limit = std::size_t{8} << 30, device_used = 0;
std::uint64_t launch_count = 0;
int device_count = 1, driver_version = 13000, capability = 90;
thread_local int device_now = 0;
thread_local cudaError_t last_error = cudaSuccess;
cudaError_t sticky_error = cudaSuccess;

constexpr int kMostDevices = 16;
Context* primary(int device) {
  for (int d = 0; contexts.size() < kMostDevices; ++d) {
    contexts.push_back({d, true});
    contexts.back().legacy.context = &contexts.back();
  }
  return &contexts[static_cast<std::size_t>(device)];
}
// What a call of the runtime works in: it makes the device's primary context where the thread has none.
Context* here() {
  if (current_contexts.empty()) {
    current_contexts.push_back(primary(device_now));
    current_contexts.back()->active = true;
  }
  return current_contexts.back();
}

// Null: there is no memory for it.
int* load_kernel(const void* kernel) {
  const std::pair key{static_cast<const Context*>(here()), kernel};
  const auto it = kernels.find(key);
  if (it != kernels.end()) return &it->second;
  if (loads_left == 0) return nullptr;
  if (loads_left != kAnyLoads) --loads_left;
  return &(kernels[key] = 48 << 10);
}

cudaError_t result(cudaError_t e) {
  if (e != cudaSuccess) last_error = e;
  return e;
}

// Every entry: counts, fails where that is planned or a kernel has failed before.
#define SIMT_ENTER(name)                  \
  const std::lock_guard simt_lock(mutex); \
  if (const auto simt_error = enter(name); simt_error != cudaSuccess) return result(simt_error)
// What waits, or changes memory that the driver hands out: not while somebody captures a graph.
#define SIMT_UNSAFE(name) \
  SIMT_ENTER(name);       \
  if (const auto simt_error = prohibited(); simt_error != cudaSuccess) return result(simt_error)
cudaError_t enter(const char* name) {
  ++call_counts[name];
  if (driver_version < 13000) return cudaErrorInsufficientDriver;
  if (const auto it = planned.find(name); it != planned.end() && --it->second.calls == 0) {
    const auto error = static_cast<cudaError_t>(it->second.error);
    if (it->second.sticks) sticky_error = error;
    planned.erase(it);
    return error;
  }
  return sticky_error;
}

template <class Visit>
void each_capture(Visit visit) {
  for (CUstream_st* s : streams)
    if (s->capture) visit(*s->capture, *s);
}
cudaError_t invalidate(Capture& capture, cudaError_t e = cudaErrorStreamCaptureUnsupported) {
  capture.invalidated = true;
  return e;
}
cudaError_t prohibited() {
  cudaError_t e = cudaSuccess;
  each_capture([&](Capture& c, CUstream_st&) {
    const bool own = c.thread == std::this_thread::get_id();
    if (capture_mode == cudaStreamCaptureModeRelaxed) return;
    if (own ? c.mode != cudaStreamCaptureModeRelaxed
            : c.mode == cudaStreamCaptureModeGlobal && capture_mode == cudaStreamCaptureModeGlobal)
      e = invalidate(c);
  });
  return e;
}
// The legacy stream would wait for blocking streams that are being captured.
cudaError_t legacy_use(const CUstream_st* s, bool only_asked = false) {
  cudaError_t e = cudaSuccess;
  if (s == &s->context->legacy)
    each_capture([&](Capture& c, const CUstream_st& captured) {
      if (!captured.blocking || captured.context != s->context) return;
      e = cudaErrorStreamCaptureImplicit;
      if (!only_asked) invalidate(c);
    });
  return e;
}

std::string text_of(const Allocation& a, const void* p) {
  char text[160];
  std::snprintf(text, sizeof text, "byte %td of an allocation of %zu bytes on device %d",
                static_cast<const unsigned char*>(p) - a.begin, a.bytes, a.context->device);
  return text;
}

const Allocation* find(const void* p, std::size_t bytes = 1) {
  const auto* at = static_cast<const unsigned char*>(p);
  auto it = device_memory.upper_bound(at);
  if (it == device_memory.begin()) return nullptr;
  const Allocation& a = std::prev(it)->second;
  return at >= a.begin && at + bytes <= a.begin + std::max<std::size_t>(a.bytes, 1) ? &a : nullptr;
}
const HostRange* find_host(const void* p, std::size_t bytes = 1) {
  const auto* at = static_cast<const unsigned char*>(p);
  auto it = host_memory.upper_bound(at);
  if (it == host_memory.begin()) return nullptr;
  --it;
  return at + bytes <= it->first + it->second.bytes ? &it->second : nullptr;
}

void check_canaries(const Allocation& a, unsigned char* from, unsigned char* end) {
  static const std::vector<unsigned char> intact(1 << 16, kCanary);
  for (unsigned char* p = from; p < end; p += intact.size())
    if (std::memcmp(p, intact.data(), std::min<std::size_t>(intact.size(), static_cast<std::size_t>(end - p))) != 0)
      for (unsigned char* q = p; q < std::min(end, p + intact.size()); ++q)
        if (*q != kCanary) {
          report("a write out of bounds of device memory: " + text_of(a, q));
          *q = kCanary;
          sticky_error = cudaErrorIllegalAddress;
        }
}
// Device memory can be reached by this thread; whoever ends looks for writes out of bounds.
struct Open {
  Open() { open_pages(); }
  ~Open() {
    if (last_to_close())
      for (const auto& [begin, a] : device_memory) {
        check_canaries(a, a.pages, a.begin);
        check_canaries(a, a.begin + a.bytes, a.pages + a.page_bytes);
      }
    close_pages();
  }
};

void fill_poison(void* to, std::size_t bytes) {
  const std::uint32_t word = poison_word();
  auto* p = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < bytes; ++i) p[i] = static_cast<unsigned char>(word >> (i % 4 * 8));
}

// This thread's default streams; when it ends they may have work left.
struct PerThread {
  std::vector<CUstream_st*> of_contexts;
  ~PerThread() {
    const std::lock_guard lock(mutex);
    for (CUstream_st* s : of_contexts) s->destroyed = true;
  }
};
thread_local PerThread per_thread;
CUstream_st* per_thread_stream() {
  for (CUstream_st* s : per_thread.of_contexts)
    if (s->context == here()) return s;
  auto* const made = new CUstream_st;
  made->context = here();
  per_thread.of_contexts.push_back(made);
  return *streams.insert(made).first;
}
bool known(cudaStream_t s) {
  return !s || s == cudaStreamLegacy || s == cudaStreamPerThread || (streams.count(s) && !s->destroyed);
}
CUstream_st* real(cudaStream_t s) {
  return s == cudaStreamPerThread ? per_thread_stream() : s && s != cudaStreamLegacy ? s : &here()->legacy;
}
void delete_destroyed() {
  std::erase_if(streams, [](CUstream_st* s) {
    const bool over = s->destroyed && s->queue.empty();
    if (over) delete s;
    return over;
  });
}

void step(CUstream_st* s);
void finish(const std::shared_ptr<Ticket>& t) {
  while (t && !t->done) step(t->stream);
}
void step(CUstream_st* s) {
  if (s->queue.empty()) return;
  Operation op = std::move(s->queue.front());
  s->queue.pop_front();
  finish(op.wait);
  if (op.run && sticky_error == cudaSuccess) op.run();
  if (op.mark) op.mark->done = true;
}
std::vector<CUstream_st*> all_streams() {
  std::vector<CUstream_st*> all;
  for (Context& c : contexts) all.push_back(&c.legacy);
  all.insert(all.end(), streams.begin(), streams.end());
  return all;
}
// Another stream may have come as far as it likes: order 0, nowhere; 1, to its end; else at random.
void others(CUstream_st* self) {
  const std::uint64_t order = seeds().order;
  if (order == 0 || (order > 1 && draw() % 2)) return;
  auto all = all_streams();
  std::erase_if(all, [&](CUstream_st* s) { return s == self || s->queue.empty(); });
  if (all.empty()) return;
  if (order > 1) return step(all[draw() % all.size()]);
  for (CUstream_st* s : all)
    while (!s->queue.empty()) step(s);
}
void drain(CUstream_st* s) {
  while (!s->queue.empty()) {
    others(s);
    step(s);
  }
}
void drain_all(const Context* of = nullptr) {
  for (auto all = all_streams();;) {
    std::erase_if(all, [&](CUstream_st* s) { return s->queue.empty() || (of && s->context != of); });
    if (all.empty()) return;
    step(all[seeds().order < 2 ? (seeds().order == 0 ? 0 : all.size() - 1) : draw() % all.size()]);
  }
}
std::shared_ptr<Ticket> mark(CUstream_st* s) {
  auto ticket = std::make_shared<Ticket>(Ticket{s});
  if (s->queue.empty()) ticket->done = true;
  else s->queue.push_back({nullptr, nullptr, ticket, {}, {}});
  return ticket;
}
// Streams with work for which an action in this one waits, beside what is in it: the legacy one and the blocking ones
// of a context wait for each other.
std::vector<CUstream_st*> awaited(const CUstream_st* s) {
  std::vector<CUstream_st*> all;
  CUstream_st* const legacy = &s->context->legacy;
  for (CUstream_st* other : streams)
    if (s == legacy && other->blocking && other->context == s->context) all.push_back(other);
  if (s != legacy && s->blocking) all.push_back(legacy);
  std::erase_if(all, [](const CUstream_st* other) { return other->queue.empty(); });
  return all;
}
void join(CUstream_st* s) {
  for (CUstream_st* other : awaited(s)) s->queue.push_back({nullptr, mark(other), nullptr, {}, {}});
}
std::shared_ptr<Ticket> record(CUstream_st* s) {
  join(s);
  return mark(s);
}
// The host waits.
void wait_for(CUstream_st* s) {
  join(s);
  drain(s);
}
cudaError_t enqueue(cudaStream_t stream, Operation op) {
  if (!known(stream)) return result(cudaErrorInvalidResourceHandle);
  CUstream_st* s = real(stream);
  if (s->capture) {
    ++s->capture->nodes;
    return cudaSuccess;
  }
  if (const auto e = legacy_use(s); e != cudaSuccess) return result(e);
  join(s);
  s->queue.push_back(std::move(op));
  return cudaSuccess;
}

bool overlap(const Reach& a, const Reach& b) { return a.first < b.second && b.first < a.second; }
// Somebody who has been enqueued has still to read or write it.
bool pending(const Reach& r) {
  for (const CUstream_st* s : all_streams())
    for (const Operation& op : s->queue)
      for (const auto* list : {&op.reads, &op.writes})
        for (const Reach& other : *list)
          if (overlap(other, r)) return true;
  return false;
}

enum class Where { device, pinned, managed, plain, nowhere };
Where where(const void* p, std::size_t bytes) {
  if (in_pages(p)) return find(p, bytes) ? Where::device : Where::nowhere;
  if (const auto* h = find_host(p, bytes)) return h->managed ? Where::managed : Where::pinned;
  return Where::plain;
}

cudaError_t copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                 std::size_t height, cudaMemcpyKind kind, cudaStream_t stream, bool wait) {
  if (!known(stream)) return result(cudaErrorInvalidResourceHandle);
  if (width == 0 || height == 0) return cudaSuccess;
  if (to_pitch < width || from_pitch < width) return result(cudaErrorInvalidValue);
  const std::size_t to_bytes = to_pitch * (height - 1) + width, from_bytes = from_pitch * (height - 1) + width;
  const Where t = where(to, to_bytes), f = where(from, from_bytes);
  const auto fits = [](Where w, bool device) {
    return device ? w == Where::device || w == Where::managed : w != Where::device;
  };
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
             from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (t == Where::nowhere || f == Where::nowhere ||
      (kind != cudaMemcpyDefault && (!fits(t, to_device) || !fits(f, from_device)))) {
    report("a copy of " + std::to_string(width * height) +
           " bytes goes beyond an allocation or in another direction than it says");
    return result(cudaErrorInvalidValue);
  }
  const auto* f8 = static_cast<const unsigned char*>(from);
  auto* t8 = static_cast<unsigned char*>(to);
  // Staged when the stream has come here, and on its way for as long as it likes.
  const bool up_from_plain = f == Where::plain && t == Where::device;
  if (up_from_plain && wait) wait_for(real(stream));
  std::shared_ptr<std::vector<unsigned char>> staged;
  if (up_from_plain) staged = std::make_shared<std::vector<unsigned char>>(f8, f8 + from_bytes);
  Operation op{[=] {
                 const Open opened_now;
                 const unsigned char* const source = staged ? staged->data() : f8;
                 for (std::size_t row = 0; row < height; ++row)
                   std::memmove(t8 + row * to_pitch, source + row * from_pitch, width);
               },
               nullptr,
               nullptr,
               {},
               {}};
  // What the copy will have written must not be read before; what somebody enqueued has still to read or write is left
  // alone.
  if (t == Where::pinned && !pending({t8, t8 + to_bytes}))
    for (std::size_t row = 0; row < height; ++row) fill_poison(t8 + row * to_pitch, width);
  if (f != Where::device && !staged) op.reads.push_back({f8, f8 + from_bytes});
  if (t != Where::device) op.writes.push_back({t8, t8 + to_bytes});
  const bool captured = real(stream)->capture != nullptr;
  if (const auto e = enqueue(stream, std::move(op)); e != cudaSuccess) return e;
  // From pageable memory the caller goes on when the bytes have been looked at; within the device nobody waits.
  const bool early = up_from_plain || (t == Where::device && f == Where::device);
  if (!captured && !early && (wait || t == Where::plain || f == Where::plain)) drain(real(stream));
  return result(sticky_error);
}

cudaError_t set(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const Where t = where(to, bytes);
  if (t != Where::device && t != Where::managed) {
    report("cudaMemset of " + std::to_string(bytes) + " bytes that are not in one allocation of device memory");
    return result(cudaErrorInvalidValue);
  }
  return enqueue(stream, {[=] {
                            const Open opened_now;
                            std::memset(to, value, bytes);
                          },
                          nullptr,
                          nullptr,
                          {},
                          {}});
}

// Programs that can lie anywhere, their heaps and stacks are above it, the sanitizers' shadow and two small numbers
// side by side below.
constexpr std::uint64_t kLowestPointer = std::uint64_t{1} << 45;
bool mapped(std::uint64_t address) {
  unsigned char in_core;
  return mincore(reinterpret_cast<void*>(address / kPage * kPage), 1, &in_core) == 0;
}

}  // namespace

cudaError_t enqueue_kernel(const cudaLaunchConfig_t& c, const void* kernel, std::vector<std::uint64_t> words,
                           std::function<void()> lane) {
  SIMT_ENTER("cudaLaunchKernelEx");
  const int* const most_shared = load_kernel(kernel);
  if (!most_shared) return result(cudaErrorMemoryAllocation);
  const std::uint64_t lane_count = std::uint64_t{c.blockDim.x} * c.blockDim.y * c.blockDim.z;
  const std::string name = kernel_name(kernel);
  if (lane_count == 0 || lane_count > 1024 || c.gridDim.x == 0 || c.gridDim.y == 0 || c.gridDim.z == 0 ||
      c.gridDim.y > 65535 || c.gridDim.z > 65535) {
    report("kernel " + name + " launched with an illegal grid or block");
    return result(cudaErrorInvalidConfiguration);
  }
  if (c.dynamicSmemBytes > static_cast<std::size_t>(*most_shared)) {
    report("kernel " + name + " launched with more shared memory than cudaFuncSetAttribute allowed it");
    return result(cudaErrorInvalidValue);
  }
  if (!known(c.stream) || real(c.stream)->context != here()) {
    report("kernel " + name + " launched on a stream that is destroyed or of another context than the thread's");
    return result(cudaErrorInvalidResourceHandle);
  }
  for (const std::uint64_t w : words) {
    const auto* p = reinterpret_cast<const void*>(w);
    const Allocation* const a = in_pages(p) ? find(p, 0) : nullptr;
    const bool outside = in_pages(p) && !a;
    if (a && a->context != here()) {
      report("kernel " + name + " launched with a pointer to memory of another " +
             (a->context->device != here()->device ? "device" : "context"));
      sticky_error = cudaErrorIllegalAddress;
      return result(sticky_error);
    }
    if (outside ||
        (!in_pages(p) && w >= kLowestPointer && w < (std::uint64_t{1} << 47) && !find_host(p) && mapped(w))) {
      report("kernel " + name + " launched with a pointer to " +
             (outside ? "device memory that is not allocated" : "host memory that is neither pinned nor managed"));
      sticky_error = cudaErrorIllegalAddress;
      return result(sticky_error);
    }
  }
  ++launch_count;
  return enqueue(c.stream, {[l = Launch{kernel,
                                        {c.gridDim.x, c.gridDim.y, c.gridDim.z},
                                        {c.blockDim.x, c.blockDim.y, c.blockDim.z},
                                        c.dynamicSmemBytes,
                                        std::move(lane)}] {
                              const Open opened_now;
                              if (!run(l)) sticky_error = cudaErrorLaunchFailure;
                            },
                            nullptr,
                            nullptr,
                            {},
                            {}});
}

bool in_device_memory(const void* p) { return in_pages(p); }
bool describe_device_address(const void* p, std::string* text) {
  if (!in_pages(p)) return false;
  const auto* at = static_cast<const unsigned char*>(p);
  const Allocation* nearest = nullptr;
  for (const auto& [begin, a] : device_memory)
    if (!nearest || std::abs(at - a.begin) < std::abs(at - nearest->begin)) nearest = &a;
  // A page behind an allocation still belongs to it, for this purpose.
  auto it = device_memory.upper_bound(at);
  if (it != device_memory.begin() && std::prev(it)->second.pages + std::prev(it)->second.page_bytes + kPage > at)
    nearest = &std::prev(it)->second;
  *text = nearest ? text_of(*nearest, p) : "nothing is allocated";
  return true;
}

void reset() {
  const std::lock_guard lock(mutex);
  for (CUstream_st* s : all_streams()) s->queue.clear();
  for (CUstream_st* s : streams) s->capture.reset();
  for (CUevent_st* e : events) e->ticket.reset(), e->capture.reset();
  planned.clear();
  elapsed_planned.clear();
  loads_left = kAnyLoads;
  last_error = sticky_error = cudaSuccess;
  take_reports();
}
void fail(const std::string& function, int n, int error, bool sticks) {
  const std::lock_guard lock(mutex);
  planned[function] = {n, error, sticks};
}
std::uint64_t calls(const std::string& function) {
  const std::lock_guard lock(mutex);
  return call_counts[function];
}
std::uint64_t calls() {
  const std::lock_guard lock(mutex);
  std::uint64_t all = 0;
  for (const auto& [function, times] : call_counts) all += times;
  return all;
}
void set_device_memory(std::size_t bytes) { device_limit = bytes; }
void set_device_count(int n) { device_count = n; }
void set_elapsed(const std::vector<float>& ms) {
  const std::lock_guard lock(mutex);
  elapsed_planned.assign(ms.begin(), ms.end());
}
void set_loads(std::size_t n) {
  const std::lock_guard lock(mutex);
  kernels.clear();
  loads_left = n;
}
void set_driver_version(int version) { driver_version = version; }
void set_compute_capability(int major, int minor) { capability = 10 * major + minor; }
int compute_capability() { return capability; }
std::size_t device_bytes() { return device_used; }
std::size_t pinned_bytes() {
  const std::lock_guard lock(mutex);
  std::size_t all = 0;
  for (const auto& [begin, range] : host_memory) all += range.registered || range.managed ? 0 : range.bytes;
  return all;
}
std::uint64_t launches() { return launch_count; }
struct Reveal::State {
  std::lock_guard<std::recursive_mutex> lock{mutex};
  Open open;
};
Reveal::Reveal() : state_(new State) {}
Reveal::~Reveal() { delete state_; }

}  // namespace simt

using namespace simt;

cudaError_t cudaGetLastError() {
  const std::lock_guard lock(mutex);
  const cudaError_t e = last_error;
  last_error = sticky_error;
  return e;
}
cudaError_t cudaPeekAtLastError() {
  const std::lock_guard lock(mutex);
  return last_error;
}
const char* cudaGetErrorName(cudaError_t e) {
  switch (e) {
#define SIMT_NAME(name) \
  case name: return #name;
    SIMT_NAME(cudaSuccess)
    SIMT_NAME(cudaErrorInvalidValue)
    SIMT_NAME(cudaErrorMemoryAllocation)
    SIMT_NAME(cudaErrorInitializationError)
    SIMT_NAME(cudaErrorInvalidConfiguration)
    SIMT_NAME(cudaErrorInsufficientDriver)
    SIMT_NAME(cudaErrorNoDevice)
    SIMT_NAME(cudaErrorInvalidDevice)
    SIMT_NAME(cudaErrorDeviceUninitialized)
    SIMT_NAME(cudaErrorMapBufferObjectFailed)
    SIMT_NAME(cudaErrorInvalidResourceHandle)
    SIMT_NAME(cudaErrorNotReady)
    SIMT_NAME(cudaErrorIllegalAddress)
    SIMT_NAME(cudaErrorHostMemoryAlreadyRegistered)
    SIMT_NAME(cudaErrorHostMemoryNotRegistered)
    SIMT_NAME(cudaErrorLaunchFailure)
    SIMT_NAME(cudaErrorStreamCaptureUnsupported)
    SIMT_NAME(cudaErrorStreamCaptureInvalidated)
    SIMT_NAME(cudaErrorStreamCaptureIsolation)
    SIMT_NAME(cudaErrorStreamCaptureImplicit)
    SIMT_NAME(cudaErrorCapturedEvent)
    SIMT_NAME(cudaErrorStreamCaptureWrongThread)
    SIMT_NAME(cudaErrorUnknown)
#undef SIMT_NAME
  }
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t e) { return cudaGetErrorName(e); }

cudaError_t cudaGetDeviceCount(int* n) {
  SIMT_ENTER("cudaGetDeviceCount");
  *n = device_count;
  return device_count ? cudaSuccess : result(cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int* d) {
  SIMT_ENTER("cudaGetDevice");
  *d = current_contexts.empty() ? device_now : current_contexts.back()->device;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  SIMT_ENTER("cudaSetDevice");
  if (d < 0 || d >= device_count) return result(cudaErrorInvalidDevice);
  device_now = d;
  if (!current_contexts.empty()) current_contexts.pop_back();
  current_contexts.push_back(primary(d));
  primary(d)->active = true;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  SIMT_ENTER("cudaDeviceSynchronize");
  cudaError_t conflict = cudaSuccess;
  each_capture([&](Capture& c, const CUstream_st& s) {
    if (s.context == here()) conflict = invalidate(c);
  });
  if (conflict != cudaSuccess) return result(conflict);
  drain_all(here());
  return result(sticky_error);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr a, int device) {
  SIMT_ENTER("cudaDeviceGetAttribute");
  if (device < 0 || device >= device_count) return result(cudaErrorInvalidDevice);
  switch (a) {
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrComputeCapabilityMajor: *value = capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = capability % 10; break;
  }
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  SIMT_ENTER("cudaDeviceGetStreamPriorityRange");
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = driver_version;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  SIMT_ENTER("cudaMemGetInfo");
  *total = device_limit;
  *free = device_limit - std::min(device_limit, device_used);
  return cudaSuccess;
}

namespace {
std::atomic<int>* map_importers(int descriptor, std::size_t page_bytes) {
  void* p = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, static_cast<off_t>(page_bytes));
  return p == MAP_FAILED ? nullptr : static_cast<std::atomic<int>*>(p);
}
void unmap(const Allocation& a) {
  drop_pages(a.pages);
  if (a.importers) munmap(a.importers, kPage);
  if (a.descriptor >= 0) ::close(a.descriptor);
}
cudaError_t host_free(std::map<const unsigned char*, HostRange>::iterator it) {
  munmap(const_cast<unsigned char*>(it->first), std::max<std::size_t>(it->second.bytes, 1));
  host_memory.erase(it);
  return cudaSuccess;
}
}  // namespace
cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  SIMT_UNSAFE("cudaMalloc");
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > device_limit || device_used > device_limit - bytes) return result(cudaErrorMemoryAllocation);
  const std::size_t page_bytes = (bytes + kPage - 1) / kPage * kPage;
  unsigned char* const pages = take_pages(page_bytes);
  if (!pages) return result(cudaErrorMemoryAllocation);
  catch_faults();
  const Open opened_now;
  unsigned char* begin = pages + page_bytes - (bytes + 15) / 16 * 16;
  std::memset(pages, kCanary, static_cast<std::size_t>(begin - pages));
  fill_poison(begin, bytes);
  std::memset(begin + bytes, kCanary, static_cast<std::size_t>(pages + page_bytes - begin) - bytes);
  device_memory[begin] = {begin, pages, bytes, page_bytes, here()};
  device_used += bytes;
  *p = begin;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  SIMT_UNSAFE("cudaFree");
  here();
  if (!p) return cudaSuccess;
  if (const auto it = host_memory.find(static_cast<unsigned char*>(p)); it != host_memory.end() && it->second.managed) {
    drain_all(here());
    return host_free(it);
  }
  const auto it = device_memory.find(static_cast<unsigned char*>(p));
  if (it == device_memory.end()) {
    report("cudaFree of a pointer that cudaMalloc did not return or that is free already");
    return result(cudaErrorInvalidValue);
  }
  if (it->second.imported) {
    report("cudaFree of memory that cudaIpcOpenMemHandle returned");
    return result(cudaErrorInvalidValue);
  }
  drain_all(it->second.context);
  if (it->second.importers && *it->second.importers > 0)
    report("cudaFree of memory that another process has mapped by its handle: " + text_of(it->second, p));
  unmap(it->second);
  device_used -= it->second.bytes;
  device_memory.erase(it);
  return cudaSuccess;
}

namespace {
// What is in a cudaIpcMemHandle_t.
struct SharedPlace {
  pid_t process;
  int descriptor;
  std::size_t bytes, page_bytes;
  std::ptrdiff_t begin;
};
static_assert(sizeof(SharedPlace) <= sizeof(cudaIpcMemHandle_t));
}  // namespace
// From the first time on its pages are those of a file that other processes can map.
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* p) {
  SIMT_UNSAFE("cudaIpcGetMemHandle");
  const auto it = device_memory.find(static_cast<unsigned char*>(p));
  if (it == device_memory.end() || it->second.imported) {
    report("cudaIpcGetMemHandle of a pointer that cudaMalloc did not return");
    return result(cudaErrorInvalidValue);
  }
  Allocation& a = it->second;
  if (a.descriptor < 0) {
    const int descriptor = memfd_create("simt", MFD_CLOEXEC);
    const Open opened_now;
    if (descriptor < 0 || ftruncate(descriptor, static_cast<off_t>(a.page_bytes + kPage)) != 0 ||
        pwrite(descriptor, a.pages, a.page_bytes, 0) != static_cast<ssize_t>(a.page_bytes) ||
        !share_pages(a.pages, descriptor))
      return result(cudaErrorMemoryAllocation);
    a.descriptor = descriptor;
    a.importers = map_importers(descriptor, a.page_bytes);
  }
  const SharedPlace place{getpid(), a.descriptor, a.bytes, a.page_bytes, a.begin - a.pages};
  *handle = {};
  std::memcpy(handle, &place, sizeof place);
  return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void** p, cudaIpcMemHandle_t handle, unsigned flags) {
  SIMT_UNSAFE("cudaIpcOpenMemHandle");
  *p = nullptr;
  SharedPlace place;
  std::memcpy(&place, &handle, sizeof place);
  if (flags != cudaIpcMemLazyEnablePeerAccess) return result(cudaErrorInvalidValue);
  if (place.process == getpid()) return result(cudaErrorDeviceUninitialized);  // as the real one has it
  const std::string path = "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.descriptor);
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return result(cudaErrorMapBufferObjectFailed);
  unsigned char* const pages = take_pages(place.page_bytes);
  catch_faults();
  if (!pages || !share_pages(pages, descriptor)) {
    if (pages) drop_pages(pages);
    ::close(descriptor);
    return result(cudaErrorMapBufferObjectFailed);
  }
  Allocation a{pages + place.begin,
               pages,
               place.bytes,
               place.page_bytes,
               here(),
               descriptor,
               true,
               map_importers(descriptor, place.page_bytes)};
  if (a.importers) ++*a.importers;
  device_memory[a.begin] = a;
  *p = a.begin;
  return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void* p) {
  SIMT_UNSAFE("cudaIpcCloseMemHandle");
  const auto it = device_memory.find(static_cast<unsigned char*>(p));
  if (it == device_memory.end() || !it->second.imported) {
    report("cudaIpcCloseMemHandle of a pointer that cudaIpcOpenMemHandle did not return");
    return result(cudaErrorInvalidValue);
  }
  drain_all();
  if (it->second.importers) --*it->second.importers;
  unmap(it->second);
  device_memory.erase(it);
  return cudaSuccess;
}

namespace {
cudaError_t host_allocate(void** p, std::size_t bytes, bool managed) {
  *p = mmap(nullptr, std::max<std::size_t>(bytes, 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*p == MAP_FAILED) return result(cudaErrorMemoryAllocation);
  fill_poison(*p, bytes);
  host_memory[static_cast<unsigned char*>(*p)] = {bytes, false, managed};
  return cudaSuccess;
}
}  // namespace
cudaError_t cudaMallocHost(void** p, std::size_t bytes) {
  SIMT_UNSAFE("cudaMallocHost");
  return host_allocate(p, bytes, false);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  SIMT_UNSAFE("cudaHostAlloc");
  return host_allocate(p, bytes, false);
}
cudaError_t cudaMallocManaged(void** p, std::size_t bytes, unsigned) {
  SIMT_UNSAFE("cudaMallocManaged");
  return host_allocate(p, bytes, true);
}
cudaError_t cudaFreeHost(void* p) {
  SIMT_UNSAFE("cudaFreeHost");
  const auto it = host_memory.find(static_cast<unsigned char*>(p));
  if (it == host_memory.end() || it->second.registered || it->second.managed) return result(cudaErrorInvalidValue);
  drain_all();
  return host_free(it);
}
cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  SIMT_UNSAFE("cudaHostRegister");
  if (!p || bytes == 0) return result(cudaErrorInvalidValue);
  if (find_host(p)) return result(cudaErrorHostMemoryAlreadyRegistered);
  host_memory[static_cast<unsigned char*>(p)] = {bytes, true, false};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  SIMT_UNSAFE("cudaHostUnregister");
  const auto it = host_memory.find(static_cast<unsigned char*>(p));
  if (it == host_memory.end() || !it->second.registered) return result(cudaErrorHostMemoryNotRegistered);
  host_memory.erase(it);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  SIMT_ENTER("cudaPointerGetAttributes");
  void* same = const_cast<void*>(p);
  if (const Allocation* d = find(p)) *a = {cudaMemoryTypeDevice, d->context->device, same, nullptr};
  else if (const HostRange* h = find_host(p))
    *a = {h->managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost, device_now, same, same};
  else *a = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, same};
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
  SIMT_UNSAFE("cudaMemcpy");
  return copy(to, n, from, n, n, 1, kind, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t s) {
  SIMT_ENTER("cudaMemcpyAsync");
  return copy(to, n, from, n, n, 1, kind, s, false);
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t s) {
  SIMT_ENTER("cudaMemcpy2DAsync");
  return copy(to, to_pitch, from, from_pitch, width, height, kind, s, false);
}
cudaError_t cudaMemset(void* p, int value, std::size_t n) {
  SIMT_UNSAFE("cudaMemset");
  return set(p, value, n, nullptr);  // asynchronous for device memory, as documented
}
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t n, cudaStream_t s) {
  SIMT_ENTER("cudaMemsetAsync");
  return set(p, value, n, s);
}

namespace {
// A stream that is being captured, or the legacy one while a blocking one is: nobody may wait for it.
cudaError_t captured_use(CUstream_st* s) { return s->capture ? invalidate(*s->capture) : legacy_use(s); }
// At once: what is enqueued there may still be waited for by others, or by nobody.
void destroy(CUstream_st* s) {
  s->destroyed = true;
  s->capture.reset();
  delete_destroyed();
}
}  // namespace
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int priority) {
  SIMT_ENTER("cudaStreamCreateWithPriority");
  delete_destroyed();
  *s = new CUstream_st;
  (*s)->blocking = !(flags & cudaStreamNonBlocking);
  (*s)->priority = priority;
  (*s)->context = here();
  streams.insert(*s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithPriority(s, cudaStreamDefault, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  SIMT_ENTER("cudaStreamDestroy");
  if (!streams.count(s) || s->destroyed) return result(cudaErrorInvalidResourceHandle);
  destroy(s);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  SIMT_UNSAFE("cudaStreamSynchronize");
  if (!known(s)) return result(cudaErrorInvalidResourceHandle);
  if (const auto e = captured_use(real(s)); e != cudaSuccess) return result(e);
  wait_for(real(s));
  return result(sticky_error);
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  SIMT_UNSAFE("cudaStreamQuery");
  if (!known(s)) return result(cudaErrorInvalidResourceHandle);
  CUstream_st* const of = real(s);
  if (const auto e = captured_use(of); e != cudaSuccess) return result(e);
  const auto others = awaited(of);
  if (of->queue.empty() && others.empty()) return result(sticky_error);
  step(of->queue.empty() ? others.front() : of);  // somebody polls: a little has happened meanwhile
  return result(cudaErrorNotReady);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  SIMT_ENTER("cudaStreamWaitEvent");
  if (!known(s) || !events.count(e)) return result(cudaErrorInvalidResourceHandle);
  CUstream_st* const waits = real(s);
  if (waits->capture && waits->capture != e->capture)
    return result(invalidate(*waits->capture, cudaErrorStreamCaptureIsolation));
  if (e->capture && !waits->capture) {
    report("a stream waits for an event of a capture; that it joins the capture is not modelled");
    return result(invalidate(*e->capture));
  }
  if (const auto error = legacy_use(waits); error != cudaSuccess) return result(error);
  if (e->ticket && !e->ticket->done) return enqueue(s, {nullptr, e->ticket, nullptr, {}, {}});
  if (e->ticket) join(waits);
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  SIMT_ENTER("cudaEventCreateWithFlags");
  *e = new CUevent_st;
  (*e)->timing = !(flags & cudaEventDisableTiming);
  (*e)->context = here();
  events.insert(*e);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  SIMT_ENTER("cudaEventDestroy");
  if (!events.erase(e)) return result(cudaErrorInvalidResourceHandle);
  delete e;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  SIMT_ENTER("cudaEventRecord");
  if (!known(s) || !events.count(e)) return result(cudaErrorInvalidResourceHandle);
  CUstream_st* const of = real(s);
  if (of->context != e->context) return result(cudaErrorInvalidResourceHandle);
  if (const auto error = legacy_use(of); error != cudaSuccess) return result(error);
  e->capture = of->capture;
  e->ticket = of->capture ? nullptr : record(of);
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  SIMT_UNSAFE("cudaEventSynchronize");
  if (!events.count(e)) return result(cudaErrorInvalidResourceHandle);
  if (e->capture) return result(invalidate(*e->capture, cudaErrorCapturedEvent));
  if (e->ticket) {
    others(nullptr);
    finish(e->ticket);
  }
  return result(sticky_error);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  SIMT_UNSAFE("cudaEventQuery");
  if (!events.count(e)) return result(cudaErrorInvalidResourceHandle);
  if (e->capture) return result(invalidate(*e->capture, cudaErrorCapturedEvent));
  if (!e->ticket || e->ticket->done) return result(sticky_error);
  step(e->ticket->stream);
  return result(cudaErrorNotReady);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  SIMT_ENTER("cudaEventElapsedTime");
  for (const cudaEvent_t e : {a, b})
    if (!events.count(e) || !e->timing || !e->ticket || e->context != a->context)
      return result(cudaErrorInvalidResourceHandle);
  if (!a->ticket->done || !b->ticket->done) return result(cudaErrorNotReady);
  *ms = 0.001f;  // time means nothing here
  if (!elapsed_planned.empty()) {
    *ms = elapsed_planned.front();
    elapsed_planned.pop_front();
  }
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void* data) {
  SIMT_ENTER("cudaLaunchHostFunc");
  return enqueue(s, {[=] { fn(data); }, nullptr, nullptr, {}, {}});
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
  SIMT_ENTER("cudaStreamIsCapturing");
  if (!known(s)) return result(cudaErrorInvalidResourceHandle);
  CUstream_st* const of = real(s);
  *status = !of->capture               ? cudaStreamCaptureStatusNone
            : of->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
  return result(legacy_use(of, true));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
  SIMT_ENTER("cudaStreamBeginCapture");
  if (!known(s)) return result(cudaErrorInvalidResourceHandle);
  CUstream_st* const of = real(s);
  if (of == &of->context->legacy || of->capture) return result(cudaErrorStreamCaptureUnsupported);
  of->capture = std::make_shared<Capture>(Capture{mode, std::this_thread::get_id()});
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
  SIMT_ENTER("cudaStreamEndCapture");
  *graph = nullptr;
  if (!known(s)) return result(cudaErrorInvalidResourceHandle);
  if (!real(s)->capture) return result(cudaErrorInvalidValue);
  const auto ended = std::exchange(real(s)->capture, nullptr);
  if (ended->thread != std::this_thread::get_id() && ended->mode != cudaStreamCaptureModeRelaxed)
    return result(cudaErrorStreamCaptureWrongThread);
  if (ended->invalidated) return result(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{ended->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph->nodes;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute a, int value) {
  SIMT_ENTER("cudaFuncSetAttribute");
  int* const most_shared = load_kernel(kernel);
  if (!most_shared) return result(cudaErrorMemoryAllocation);
  if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value > 227 << 10) return result(cudaErrorInvalidValue);
    *most_shared = value;
  }
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* kernel) {
  SIMT_ENTER("cudaFuncGetAttributes");
  const int* const most_shared = load_kernel(kernel);
  if (!most_shared) return result(cudaErrorMemoryAllocation);
  *a = {*most_shared};
  return cudaSuccess;
}

// ---- what the stand-ins for libcuda.so.1 and libcublas.so.13 ask for

namespace simt {

int enter_call(const char* name) {
  const std::lock_guard lock(mutex);
  return enter(name);
}

int driver_version_now() { return driver_version; }
int devices() { return device_count; }
bool context_active(int device) {
  const std::lock_guard lock(mutex);
  return primary(device)->active;
}
void* primary_context(int device) {
  const std::lock_guard lock(mutex);
  primary(device)->active = true;
  return primary(device);
}
void* make_context(int device) {
  const std::lock_guard lock(mutex);
  primary(0);
  Context& made = contexts.emplace_back(Context{device, false, true});
  made.legacy.context = &made;
  current_contexts.push_back(&made);
  return &made;
}
void push_context(void* context) { current_contexts.push_back(static_cast<Context*>(context)); }
void* pop_context() {
  void* const top = current_context();
  if (top) current_contexts.pop_back();
  return top;
}
void* current_context() { return current_contexts.empty() ? nullptr : current_contexts.back(); }
Address address_of(const void* p) {
  const std::lock_guard lock(mutex);
  if (const Allocation* a = find(p)) return {Address::device, a->context->device, a->context};
  if (const HostRange* h = find_host(p)) return {h->managed ? Address::managed : Address::pinned, 0, nullptr};
  return {};
}
int copy_by_driver(void* to, const void* from, std::size_t bytes, void* stream) {
  const std::lock_guard lock(mutex);
  for (const void* p : {static_cast<const void*>(to), from})
    if (const Allocation* a = find(p); a && a->context != here()) return cudaErrorInvalidValue;
  return copy(to, bytes, from, bytes, bytes, 1, cudaMemcpyDefault, static_cast<cudaStream_t>(stream), false);
}
void* stream_by_driver(unsigned flags) {
  const std::lock_guard lock(mutex);
  delete_destroyed();
  auto* const s = new CUstream_st;
  s->blocking = !(flags & cudaStreamNonBlocking);
  s->context = here();
  return *streams.insert(s).first;
}
int wait_by_driver(void* stream) {
  const std::lock_guard lock(mutex);
  if (const auto e = prohibited(); e != cudaSuccess) return e;
  CUstream_st* const s = real(static_cast<cudaStream_t>(stream));
  if (const auto e = legacy_use(s); e != cudaSuccess) return e;
  wait_for(s);
  return sticky_error;
}
int wait_for_context_by_driver() {
  const std::lock_guard lock(mutex);
  each_capture([](Capture& c, CUstream_st&) { invalidate(c); });
  drain_all(here());
  return sticky_error;
}
int capture_of_legacy() {
  const std::lock_guard lock(mutex);
  return legacy_use(&here()->legacy, true);
}
void destroy_by_driver(void* stream) {
  const std::lock_guard lock(mutex);
  destroy(static_cast<cudaStream_t>(stream));
}
int exchange_capture_mode(int* mode) {
  auto of = static_cast<cudaStreamCaptureMode>(*mode);
  cudaThreadExchangeStreamCaptureMode(&of);
  *mode = of;
  return 0;
}

void count_call(const char* name) {
  const std::lock_guard lock(mutex);
  ++call_counts[name];
}

}  // namespace simt
