// The CUDA runtime's memory, streams, events and errors, on the host. Every stream is a queue that runs when somebody
// waits for it.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "cuda_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace {

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
  bool blocking = true;  // waits for the default stream, and that one for it
  int running = 0;
};
struct CUevent_st {
  std::shared_ptr<Ticket> ticket;
  bool timing = true;
};

namespace simt {
namespace {

constexpr std::size_t kPage = 4096, kReserve = std::size_t{1} << 37;
constexpr unsigned char kCanary = 0xcb;

struct Allocation {
  unsigned char *begin, *pages;  // the user's bytes end within 16 of the last page's end
  std::size_t bytes, page_bytes;
  int device;
};
struct HostRange {
  std::size_t bytes;
  bool registered, managed;
};

std::recursive_mutex mutex;
unsigned char *arena = nullptr, *arena_next = nullptr;
std::map<const unsigned char*, Allocation> device_memory;  // by begin
std::map<const unsigned char*, HostRange> host_memory;
std::set<CUstream_st*> streams;
std::set<CUevent_st*> events;
CUstream_st default_stream;
std::map<const void*, int> shared_limits;
std::map<std::string, std::uint64_t> call_counts;
std::map<std::string, std::pair<int, int>> planned;  // calls left until the failing one, its error
std::size_t device_limit = std::size_t{8} << 30, device_used = 0;
std::uint64_t launch_count = 0;
int device_count = 1, opened = 0;
thread_local int device_now = 0;
cudaError_t last_error = cudaSuccess, sticky_error = cudaSuccess;

cudaError_t result(cudaError_t e) {
  if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
  return e;
}

// Every entry: counts, fails where that is planned or a kernel has failed before.
#define SIMT_ENTER(name)                  \
  const std::lock_guard simt_lock(mutex); \
  if (const auto simt_error = enter(name); simt_error != cudaSuccess) return result(simt_error)
cudaError_t enter(const char* name) {
  ++call_counts[name];
  if (const auto it = planned.find(name); it != planned.end() && --it->second.first == 0) {
    const auto error = static_cast<cudaError_t>(it->second.second);
    planned.erase(it);
    return error;
  }
  return sticky_error;
}

std::string text_of(const Allocation& a, const void* p) {
  char text[160];
  std::snprintf(text, sizeof text, "byte %td of an allocation of %zu bytes on device %d",
                static_cast<const unsigned char*>(p) - a.begin, a.bytes, a.device);
  return text;
}

const Allocation* find(const void* p, std::size_t bytes = 1) {
  const auto* at = static_cast<const unsigned char*>(p);
  auto it = device_memory.upper_bound(at);
  if (it == device_memory.begin()) return nullptr;
  const Allocation& a = std::prev(it)->second;
  return at >= a.begin && at + bytes <= a.begin + std::max<std::size_t>(a.bytes, 1) ? &a : nullptr;
}
bool in_arena(const void* p) { return arena && p >= arena && p < arena + kReserve; }
const HostRange* find_host(const void* p, std::size_t bytes = 1) {
  const auto* at = static_cast<const unsigned char*>(p);
  auto it = host_memory.upper_bound(at);
  if (it == host_memory.begin()) return nullptr;
  --it;
  return at + bytes <= it->first + it->second.bytes ? &it->second : nullptr;
}

void protect(int how) {
  for (const auto& [begin, a] : device_memory) mprotect(a.pages, a.page_bytes, how);
}
void open() {
  if (opened++ == 0) protect(PROT_READ | PROT_WRITE);
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
void close() {
  if (--opened) return;
  for (const auto& [begin, a] : device_memory) {
    check_canaries(a, a.pages, a.begin);
    check_canaries(a, a.begin + a.bytes, a.pages + a.page_bytes);
  }
  protect(PROT_NONE);
}
struct Open {
  Open() { open(); }
  ~Open() { close(); }
};

void fill_poison(void* to, std::size_t bytes) {
  const std::uint32_t word = poison_word();
  auto* p = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < bytes; ++i) p[i] = static_cast<unsigned char>(word >> (i % 4 * 8));
}

CUstream_st* real(cudaStream_t s) { return s ? s : &default_stream; }

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
  std::vector<CUstream_st*> all{&default_stream};
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
void drain_all() {
  for (auto all = all_streams();;) {
    std::erase_if(all, [](CUstream_st* s) { return s->queue.empty(); });
    if (all.empty()) return;
    step(all[seeds().order < 2 ? (seeds().order == 0 ? 0 : all.size() - 1) : draw() % all.size()]);
  }
}
std::shared_ptr<Ticket> record(CUstream_st* s) {
  auto ticket = std::make_shared<Ticket>(Ticket{s});
  if (s->queue.empty()) ticket->done = true;
  else s->queue.push_back({nullptr, nullptr, ticket, {}, {}});
  return ticket;
}
void enqueue(cudaStream_t stream, Operation op) {
  CUstream_st* s = real(stream);
  // The default stream and the blocking ones wait for each other.
  if (s == &default_stream) {
    for (CUstream_st* other : streams)
      if (other->blocking && !other->queue.empty()) s->queue.push_back({nullptr, record(other), nullptr, {}, {}});
  } else if (s->blocking && !default_stream.queue.empty()) {
    s->queue.push_back({nullptr, record(&default_stream), nullptr, {}, {}});
  }
  s->queue.push_back(std::move(op));
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
  if (in_arena(p)) return find(p, bytes) ? Where::device : Where::nowhere;
  if (const auto* h = find_host(p, bytes)) return h->managed ? Where::managed : Where::pinned;
  return Where::plain;
}

cudaError_t copy(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
                 std::size_t height, cudaMemcpyKind kind, cudaStream_t stream, bool wait) {
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
  Operation op{[=] {
                 const Open opened_now;
                 for (std::size_t row = 0; row < height; ++row)
                   std::memmove(t8 + row * to_pitch, f8 + row * from_pitch, width);
               },
               nullptr,
               nullptr,
               {},
               {}};
  // What the copy will have written must not be read before; what somebody enqueued has still to read or write is left
  // alone.
  if (t == Where::pinned && !pending({t8, t8 + to_bytes}))
    for (std::size_t row = 0; row < height; ++row) fill_poison(t8 + row * to_pitch, width);
  if (f != Where::device) op.reads.push_back({f8, f8 + from_bytes});
  if (t != Where::device) op.writes.push_back({t8, t8 + to_bytes});
  enqueue(stream, std::move(op));
  if (wait || t == Where::plain || f == Where::plain)
    drain(real(stream));  // copies of pageable memory do not overlap with anything
  return result(sticky_error);
}

cudaError_t set(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const Where t = where(to, bytes);
  if (t != Where::device && t != Where::managed) {
    report("cudaMemset of " + std::to_string(bytes) + " bytes that are not in one allocation of device memory");
    return result(cudaErrorInvalidValue);
  }
  enqueue(stream, {[=] {
                     const Open opened_now;
                     std::memset(to, value, bytes);
                   },
                   nullptr,
                   nullptr,
                   {},
                   {}});
  return cudaSuccess;
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
  const auto limit = shared_limits.find(kernel);
  const std::uint64_t lane_count = std::uint64_t{c.blockDim.x} * c.blockDim.y * c.blockDim.z;
  const std::string name = kernel_name(kernel);
  if (lane_count == 0 || lane_count > 1024 || c.gridDim.x == 0 || c.gridDim.y == 0 || c.gridDim.z == 0 ||
      c.gridDim.y > 65535 || c.gridDim.z > 65535) {
    report("kernel " + name + " launched with an illegal grid or block");
    return result(cudaErrorInvalidConfiguration);
  }
  if (c.dynamicSmemBytes > static_cast<std::size_t>(limit == shared_limits.end() ? 48 << 10 : limit->second)) {
    report("kernel " + name + " launched with more shared memory than cudaFuncSetAttribute allowed it");
    return result(cudaErrorInvalidValue);
  }
  for (const std::uint64_t w : words) {
    const auto* p = reinterpret_cast<const void*>(w);
    const bool outside = in_arena(p) && !find(p, 0);
    if (outside ||
        (!in_arena(p) && w >= kLowestPointer && w < (std::uint64_t{1} << 47) && !find_host(p) && mapped(w))) {
      report("kernel " + name + " launched with a pointer to " +
             (outside ? "device memory that is not allocated" : "host memory that is neither pinned nor managed"));
      sticky_error = cudaErrorIllegalAddress;
      return result(sticky_error);
    }
  }
  ++launch_count;
  enqueue(c.stream, {[l = Launch{kernel,
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
  return cudaSuccess;
}

bool describe_device_address(const void* p, std::string* text) {
  if (!in_arena(p)) return false;
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
  for (CUevent_st* e : events) e->ticket.reset();
  planned.clear();
  last_error = sticky_error = cudaSuccess;
  take_reports();
}
void fail(const std::string& function, int n, int error) {
  const std::lock_guard lock(mutex);
  planned[function] = {n, error};
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
std::size_t device_bytes() { return device_used; }
std::uint64_t launches() { return launch_count; }
Reveal::Reveal() {
  mutex.lock();
  open();
}
Reveal::~Reveal() {
  close();
  mutex.unlock();
}

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
    SIMT_NAME(cudaErrorInvalidResourceHandle)
    SIMT_NAME(cudaErrorNotReady)
    SIMT_NAME(cudaErrorIllegalAddress)
    SIMT_NAME(cudaErrorHostMemoryAlreadyRegistered)
    SIMT_NAME(cudaErrorHostMemoryNotRegistered)
    SIMT_NAME(cudaErrorLaunchFailure)
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
  *d = device_now;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  SIMT_ENTER("cudaSetDevice");
  if (d < 0 || d >= device_count) return result(cudaErrorInvalidDevice);
  device_now = d;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  SIMT_ENTER("cudaDeviceSynchronize");
  drain_all();
  return result(sticky_error);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr a, int device) {
  SIMT_ENTER("cudaDeviceGetAttribute");
  if (device < 0 || device >= device_count) return result(cudaErrorInvalidDevice);
  switch (a) {
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
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
  SIMT_ENTER("cudaDriverGetVersion");
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  SIMT_ENTER("cudaRuntimeGetVersion");
  *v = 13000;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  SIMT_ENTER("cudaMemGetInfo");
  *total = device_limit;
  *free = device_limit - std::min(device_limit, device_used);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  SIMT_ENTER("cudaMalloc");
  *p = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > device_limit || device_used > device_limit - bytes) return result(cudaErrorMemoryAllocation);
  if (!arena) {
    void* reserved = mmap(nullptr, kReserve, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return result(cudaErrorMemoryAllocation);
    arena = arena_next = static_cast<unsigned char*>(reserved);
  }
  catch_faults();
  // Addresses are not used again, so that what is freed stays out of reach. An untouched page before and behind.
  const std::size_t page_bytes = (bytes + kPage - 1) / kPage * kPage;
  if (static_cast<std::size_t>(arena + kReserve - arena_next) < page_bytes + 2 * kPage)
    return result(cudaErrorMemoryAllocation);
  unsigned char* pages = arena_next + kPage;
  arena_next = pages + page_bytes;
  mprotect(pages, page_bytes, PROT_READ | PROT_WRITE);
  unsigned char* begin = pages + page_bytes - (bytes + 15) / 16 * 16;
  std::memset(pages, kCanary, static_cast<std::size_t>(begin - pages));
  fill_poison(begin, bytes);
  std::memset(begin + bytes, kCanary, static_cast<std::size_t>(pages + page_bytes - begin) - bytes);
  if (!opened) mprotect(pages, page_bytes, PROT_NONE);
  device_memory[begin] = {begin, pages, bytes, page_bytes, device_now};
  device_used += bytes;
  *p = begin;
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  SIMT_ENTER("cudaFree");
  if (!p) return cudaSuccess;
  const auto it = device_memory.find(static_cast<unsigned char*>(p));
  if (it == device_memory.end()) {
    report("cudaFree of a pointer that cudaMalloc did not return or that is free already");
    return result(cudaErrorInvalidValue);
  }
  drain_all();
  madvise(it->second.pages, it->second.page_bytes, MADV_DONTNEED);
  mprotect(it->second.pages, it->second.page_bytes, PROT_NONE);
  device_used -= it->second.bytes;
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
  SIMT_ENTER("cudaMallocHost");
  return host_allocate(p, bytes, false);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  SIMT_ENTER("cudaHostAlloc");
  return host_allocate(p, bytes, false);
}
cudaError_t cudaMallocManaged(void** p, std::size_t bytes, unsigned) {
  SIMT_ENTER("cudaMallocManaged");
  return host_allocate(p, bytes, true);
}
cudaError_t cudaFreeHost(void* p) {
  SIMT_ENTER("cudaFreeHost");
  const auto it = host_memory.find(static_cast<unsigned char*>(p));
  if (it == host_memory.end() || it->second.registered) return result(cudaErrorInvalidValue);
  drain_all();
  munmap(p, std::max<std::size_t>(it->second.bytes, 1));
  host_memory.erase(it);
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  SIMT_ENTER("cudaHostRegister");
  if (!p || bytes == 0) return result(cudaErrorInvalidValue);
  if (find_host(p)) return result(cudaErrorHostMemoryAlreadyRegistered);
  host_memory[static_cast<unsigned char*>(p)] = {bytes, true, false};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  SIMT_ENTER("cudaHostUnregister");
  const auto it = host_memory.find(static_cast<unsigned char*>(p));
  if (it == host_memory.end() || !it->second.registered) return result(cudaErrorHostMemoryNotRegistered);
  host_memory.erase(it);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  SIMT_ENTER("cudaPointerGetAttributes");
  void* same = const_cast<void*>(p);
  if (const Allocation* d = find(p)) *a = {cudaMemoryTypeDevice, d->device, same, nullptr};
  else if (const HostRange* h = find_host(p))
    *a = {h->managed ? cudaMemoryTypeManaged : cudaMemoryTypeHost, device_now, same, same};
  else *a = {cudaMemoryTypeUnregistered, cudaInvalidDeviceId, nullptr, same};
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
  SIMT_ENTER("cudaMemcpy");
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
  SIMT_ENTER("cudaMemset");
  return set(p, value, n, nullptr);  // asynchronous for device memory, as documented
}
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t n, cudaStream_t s) {
  SIMT_ENTER("cudaMemsetAsync");
  return set(p, value, n, s);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int priority) {
  SIMT_ENTER("cudaStreamCreateWithPriority");
  *s = new CUstream_st;
  (*s)->blocking = !(flags & cudaStreamNonBlocking);
  (*s)->priority = priority;
  streams.insert(*s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
  return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* s) { return cudaStreamCreateWithPriority(s, cudaStreamDefault, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t s) {
  SIMT_ENTER("cudaStreamDestroy");
  if (!streams.count(s)) return result(cudaErrorInvalidResourceHandle);
  drain(s);
  streams.erase(s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
  SIMT_ENTER("cudaStreamSynchronize");
  if (s && !streams.count(s)) return result(cudaErrorInvalidResourceHandle);
  drain(real(s));
  return result(sticky_error);
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
  SIMT_ENTER("cudaStreamQuery");
  if (s && !streams.count(s)) return result(cudaErrorInvalidResourceHandle);
  if (real(s)->queue.empty()) return result(sticky_error);
  step(real(s));  // somebody polls: a little has happened meanwhile
  return cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  SIMT_ENTER("cudaStreamWaitEvent");
  if ((s && !streams.count(s)) || !events.count(e)) return result(cudaErrorInvalidResourceHandle);
  if (e->ticket && !e->ticket->done) enqueue(s, {nullptr, e->ticket, nullptr, {}, {}});
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
  SIMT_ENTER("cudaEventCreateWithFlags");
  *e = new CUevent_st;
  (*e)->timing = !(flags & cudaEventDisableTiming);
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
  if ((s && !streams.count(s)) || !events.count(e)) return result(cudaErrorInvalidResourceHandle);
  e->ticket = record(real(s));
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
  SIMT_ENTER("cudaEventSynchronize");
  if (!events.count(e)) return result(cudaErrorInvalidResourceHandle);
  if (e->ticket) {
    others(nullptr);
    finish(e->ticket);
  }
  return result(sticky_error);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
  SIMT_ENTER("cudaEventQuery");
  if (!events.count(e)) return result(cudaErrorInvalidResourceHandle);
  if (!e->ticket || e->ticket->done) return result(sticky_error);
  step(e->ticket->stream);
  return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  SIMT_ENTER("cudaEventElapsedTime");
  if (!events.count(a) || !events.count(b) || !a->timing || !b->timing) return result(cudaErrorInvalidResourceHandle);
  *ms = 0.001f;  // time means nothing here
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t fn, void* data) {
  SIMT_ENTER("cudaLaunchHostFunc");
  enqueue(s, {[=] { fn(data); }, nullptr, nullptr, {}, {}});
  return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute a, int value) {
  SIMT_ENTER("cudaFuncSetAttribute");
  if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value > 227 << 10) return result(cudaErrorInvalidValue);
    shared_limits[kernel] = value;
  }
  return cudaSuccess;
}
