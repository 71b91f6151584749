#include "backend/cuda_backend.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "backend/cuda_convert.hpp"
#include "backend/cuda_copies.hpp"
#include "backend/cuda_memory.hpp"
#include "backend/cuda_tensor_steps.hpp"
#include "codec/powersgd/tensor_steps.hpp"
#include "codec/sum_steps.hpp"
#include "core/error.hpp"
#include "core/half.hpp"

namespace crimp::cuda {
namespace {

constexpr std::size_t kAlign = 16;
// Things under way at once: four encodings and two decodings of the deepest pipeline, and what of a failed call is
// lost.
constexpr std::size_t kSlots = 16;

// A region begins with its results.
std::size_t result_bytes(std::size_t jobs) { return round_up(jobs * sizeof(std::uint64_t), kAlign); }

}  // namespace

// Tables written in pinned memory, behind one another, and where they will be on the device.
struct CudaBackend::TableWriter {
  std::byte *host, *device;
  std::size_t used, room;

  template <class T>
  T* take(std::size_t count, const T** there) {
    used = round_up(used, kAlign);
    if (count * sizeof(T) > room - std::min(used, room))
      throw Error(ErrorCode::device_failed,
                  "a chunk needs larger tables than were prepared; this is a defect of Crimp");
    *there = reinterpret_cast<const T*>(device + used);
    auto* const here = reinterpret_cast<T*>(host + used);
    used += count * sizeof(T);
    return here;
  }
};

CudaBackend::CudaBackend(int device, bool device_bodies) : device_(device), device_bodies_(device_bodies) {
  const ContextGuard here(device_);
  int least = 0, greatest = 0;
  CRIMP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  for (cudaStream_t* stream : {&compute_, &down_, &up_})
    CRIMP_CUDA(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, greatest));
  CRIMP_CUDA(cudaEventCreateWithFlags(&entered_, cudaEventDisableTiming));
}

CudaBackend::~CudaBackend() {
  try {
    const ContextGuard here(device_);
    for (auto& slot : in_flight_)
      for (cudaEvent_t event : {slot.ready, slot.done})
        if (event) cudaEventDestroy(event);
    if (entered_) cudaEventDestroy(entered_);
    for (cudaStream_t stream : {compute_, down_, up_})
      if (stream) cudaStreamDestroy(stream);
    cudaGetLastError();
  } catch (const std::exception&) {
  }
}

MemoryResource& CudaBackend::memory() { return device_memory(device_); }
MemoryResource& CudaBackend::staging() { return device_bodies_ ? device_memory(device_) : pinned_memory(); }

bool CudaBackend::runs(const Codec& codec) {
  if (codec.traits().whole_tensors) return tensor_steps() != nullptr;
  if (const auto known = codecs_.find(&codec); known != codecs_.end()) return known->second != nullptr;
  auto kernels = make_device_codec(codec);
  return codecs_.emplace(&codec, std::move(kernels)).first->second != nullptr;
}

bool CudaBackend::converts(const Codec& codec) { return !codec.traits().whole_tensors && kernels(codec).converts(); }

const DeviceCodec& CudaBackend::kernels(const Codec& codec) {
  if (!runs(codec)) throw Error(ErrorCode::device_failed, "the codec " + codec.spec() + " has no kernels");
  return *codecs_.at(&codec);
}

// Modules are loaded lazily: a launch may find no memory for code, and there is no way back by then.
void CudaBackend::load(const Codec& codec) {
  if (loaded_.contains(&codec)) return;
  const ContextGuard here(device_);
  check_cuda(static_cast<cudaError_t>(kernels(codec).load()), "the loading of kernels");
  loaded_.insert(&codec);
}

void CudaBackend::prepare(const Codec& codec, const ChunkPartition& partition, int ranks) {
  load(codec);
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t pieces = partition.pieces().size();
  // Shards cut groups and so add up to one entry of each kind.
  const std::size_t bytes = result_bytes(n) + n * sizeof(JobEntry) + (pieces + n) * sizeof(PieceEntry) +
                            (partition.groups().size() + n) * sizeof(GroupEntry) +
                            n * (2 * sizeof(void*) + (pieces + 2) * sizeof(std::uint64_t) + kAlign) + 8 * kAlign;
  wanted_region_ = std::max<std::size_t>(wanted_region_, round_up(bytes, 256));
  wanted_jobs_ = std::max(wanted_jobs_, n);
  ChunkTable table = ChunkArrays(codec, {partition}).table;
  table.group_count += static_cast<std::uint32_t>(n);
  wanted_scratch_ = std::max(wanted_scratch_, kernels(codec).scratch_bytes(table));
}

void CudaBackend::prepare(const Arena& staging) {
  const ContextGuard here(device_);
  if (!copies_loaded_) load_copies();
  copies_loaded_ = true;
  if (wanted_region_ > region_bytes_ || wanted_jobs_ > jobs_) {
    const std::size_t all = wanted_region_ * kSlots;
    Memory tables(all, pinned_memory()), tables_mirror(all, device_memory(device_));
    in_flight_.resize(kSlots);
    for (auto& slot : in_flight_) {
      slot.jobs.reserve(wanted_jobs_);
      for (cudaEvent_t* event : {&slot.ready, &slot.done})
        if (!*event) CRIMP_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    }
    tables_ = std::move(tables);
    tables_mirror_ = std::move(tables_mirror);
    region_bytes_ = wanted_region_;
    jobs_ = wanted_jobs_;
  }
  grow(scratch_, wanted_scratch_, device_memory(device_));
  if (device_bodies_) {
    grow(look_, wanted_region_, pinned_memory());
  } else if (staging.bytes() > mirror_.bytes()) {  // which has room to grow itself
    mirror_ = {};
    mirror_ = Memory(staging.bytes(), device_memory(device_));
  }
  staging_ = staging.data();
}

std::uint8_t* CudaBackend::mirror(const std::uint8_t* staged) const {
  if (device_bodies_) return const_cast<std::uint8_t*>(staged);
  return reinterpret_cast<std::uint8_t*>(mirror_.data() + (reinterpret_cast<const std::byte*>(staged) - staging_));
}

std::size_t CudaBackend::take_slot(std::size_t jobs) {
  for (const bool again : {false, true}) {
    if (again) retire_lost();
    for (std::size_t i = 0; i < in_flight_.size() && jobs <= jobs_; ++i) {
      InFlight& slot = in_flight_[i];
      if (slot.taken) continue;
      slot.taken = slot.sized = true;
      slot.jobs.assign(jobs, Job{});
      return i;
    }
  }
  throw Error(ErrorCode::device_failed, "more chunks are under way than were prepared for; this is a defect of Crimp");
}

// Failed work may still be enqueued: kernels that read a slot's tables, copies that write its body.
void CudaBackend::retire_lost() {
  const auto lost = [](const InFlight& slot) { return slot.lost; };
  if (std::none_of(in_flight_.begin(), in_flight_.end(), lost)) return;
  for (cudaStream_t stream : {up_, compute_, down_}) CRIMP_CUDA(cudaStreamSynchronize(stream));
  for (auto& slot : in_flight_)
    if (slot.lost) slot.taken = slot.lost = false;
}

// Work on `after` from now on waits for what is on `before` now.
void CudaBackend::order(cudaStream_t after, cudaStream_t before, cudaEvent_t event) {
  CRIMP_CUDA(cudaEventRecord(event, before));
  CRIMP_CUDA(cudaStreamWaitEvent(after, event, 0));
}

template <class Result>
Result CudaBackend::result(std::size_t slot, std::size_t job) const {
  Result value;
  std::memcpy(&value, region(tables_, slot) + job * sizeof value, sizeof value);
  return value;
}

ChunkTable CudaBackend::upload(TableWriter& to, const ChunkArrays& arrays) const {
  ChunkTable table = arrays.table;
  std::copy(arrays.pieces.begin(), arrays.pieces.end(), to.take(arrays.pieces.size(), &table.pieces));
  std::copy(arrays.groups.begin(), arrays.groups.end(), to.take(arrays.groups.size(), &table.groups));
  std::copy(arrays.jobs.begin(), arrays.jobs.end(), to.take(arrays.jobs.size(), &table.jobs));
  return table;
}

Backend::Ticket CudaBackend::start_encode(std::span<const EncodeJob> jobs, const Progress&) {
  const ContextGuard here(device_);
  poll_copies();
  const std::size_t ticket = take_slot(jobs.size());
  InFlight& slot = in_flight_[ticket];
  try {
    const Codec& codec = jobs[0].codec;
    ChunkArrays arrays;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      const EncodeJob& job = jobs[j];
      arrays.add(codec, {job.partition, job.values.behind(jobs[0].values), job.feedback, mirror(job.body)});
      slot.jobs[j] = {job.bytes, job.body, nullptr};
    }
    const std::size_t results = result_bytes(jobs.size());
    TableWriter tables{region(tables_, ticket), region(tables_mirror_, ticket), results, region_bytes_};
    const ChunkTable table = upload(tables, arrays);
    if (kernels(codec).scratch_bytes(table) > scratch_.bytes())
      throw Error(ErrorCode::device_failed, "a chunk needs more scratch than was prepared; this is a defect of Crimp");
    std::memset(tables.host, 0, results);
    CRIMP_CUDA(cudaMemcpyAsync(tables.device, tables.host, tables.used, cudaMemcpyHostToDevice, compute_));
    const int launched =
        kernels(codec).encode(table, jobs[0].values, jobs[0].counter, reinterpret_cast<std::uint64_t*>(tables.device),
                              scratch_.data(), compute_);
    check_cuda(static_cast<cudaError_t>(launched), "an encoding kernel's launch");
    if (codec.traits().fixed_size) {
      for (const EncodeJob& job : jobs) *job.bytes = job.partition.body_bound(codec);
      order(down_, compute_, slot.ready);
      copy_to_host(slot);
    } else {
      CRIMP_CUDA(cudaMemcpyAsync(tables.host, tables.device, results, cudaMemcpyDeviceToHost, compute_));
      CRIMP_CUDA(cudaEventRecord(slot.ready, compute_));
      slot.sized = false;
    }
  } catch (...) {
    slot.lost = true;
    throw;
  }
  return static_cast<Ticket>(ticket);
}

void CudaBackend::note_sizes(std::size_t ticket) {
  InFlight& slot = in_flight_[ticket];
  for (std::size_t j = 0; j < slot.jobs.size(); ++j) *slot.jobs[j].bytes = result<std::uint64_t>(ticket, j);
}

// Of what the host knows to be encoded, or what down_ waits for. Neighbours travel in one copy.
void CudaBackend::copy_to_host(InFlight& slot) {
  for (std::size_t first = 0, last; first < slot.jobs.size() && !device_bodies_; first = last) {
    std::uint8_t *const from = slot.jobs[first].body, *end = from;
    for (last = first; last < slot.jobs.size() && slot.jobs[last].body == end; ++last) end += *slot.jobs[last].bytes;
    if (end != from)
      CRIMP_CUDA(
          cudaMemcpyAsync(from, mirror(from), static_cast<std::size_t>(end - from), cudaMemcpyDeviceToHost, down_));
  }
  CRIMP_CUDA(cudaEventRecord(slot.done, down_));
  slot.sized = true;
}

void CudaBackend::poll_copies() {
  bool waits = false;
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    InFlight& slot = in_flight_[i];
    if (!slot.taken || slot.lost || slot.sized) continue;
    if (cudaEventQuery(slot.ready) != cudaSuccess) {
      waits = true;
      continue;
    }
    note_sizes(i);
    copy_to_host(slot);
  }
  if (waits) cudaGetLastError();  // "not ready" is no error of the application's
}

// Every query is a call into the driver, so the more has been waited the longer none is made. Progress is MPI's, whose
// error handlers may leave by longjmp: the thread has its own context then.
void CudaBackend::wait(cudaEvent_t event, const Progress& progress) {
  using std::chrono::steady_clock;
  constexpr std::chrono::nanoseconds kLeast{2000}, kMost{50000};
  const auto begun = steady_clock::now();
  for (;;) {
    {
      const ContextGuard here(device_);
      const cudaError_t state = cudaEventQuery(event);
      if (state != cudaErrorNotReady) return check_cuda(state, "cudaEventQuery");
      cudaGetLastError();  // as above
    }
    const auto now = steady_clock::now();
    const auto next = now + std::clamp<std::chrono::nanoseconds>((now - begun) / 8, kLeast, kMost);
    do {
      if (progress) progress();
      std::this_thread::yield();
    } while (steady_clock::now() < next);
  }
}

void CudaBackend::finish_encode(Ticket ticket, const Progress& progress) {
  const auto at = static_cast<std::size_t>(ticket);
  InFlight& slot = in_flight_[at];
  slot.lost = true;  // unless its end is seen
  if (!slot.sized) {
    wait(slot.ready, progress);
    note_sizes(at);
    const ContextGuard here(device_);
    copy_to_host(slot);
  }
  wait(slot.done, progress);
  slot.taken = slot.lost = false;
}

Backend::Ticket CudaBackend::start_decode(std::span<const DecodeJob> jobs, const Progress&) {
  const ContextGuard here(device_);
  poll_copies();
  const std::size_t ticket = take_slot(jobs.size()), n = jobs[0].bodies.size();
  InFlight& slot = in_flight_[ticket];
  try {
    const DecodeJob& one = jobs[0];
    ChunkArrays arrays;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      arrays.add(one.codec, {jobs[j].partition, ConstValues(jobs[j].out).behind(one.out)});
      slot.jobs[j] = {nullptr, nullptr, jobs[j].bad};
    }
    const std::size_t results = result_bytes(jobs.size());
    TableWriter tables{region(tables_, ticket), region(tables_mirror_, ticket), results, region_bytes_};
    const ChunkTable table = upload(tables, arrays);
    DeviceBodies bodies{};
    bodies.count = static_cast<std::int64_t>(n);
    auto* body = tables.take<const std::uint8_t*>(jobs.size() * n, &bodies.bodies);
    auto* offset = tables.take<const std::uint64_t*>(jobs.size() * n, &bodies.offsets);
    // Neighbours travel in one copy.
    const std::uint8_t *from = nullptr, *end = nullptr;
    const auto bring_up = [&] {
      if (!device_bodies_ && from != end)
        CRIMP_CUDA(
            cudaMemcpyAsync(mirror(from), from, static_cast<std::size_t>(end - from), cudaMemcpyHostToDevice, up_));
    };
    for (const DecodeJob& job : jobs) {
      const std::size_t entries = job.partition.pieces().size() + 1;
      for (const BodyView& view : job.bodies) {
        const auto bytes = view.body();
        *body++ = mirror(bytes.data());
        if (job.codec.traits().fixed_size) *offset++ = nullptr;
        else std::copy_n(view.offsets().begin(), entries, tables.take<std::uint64_t>(entries, offset++));
        if (bytes.data() != end || !end) {
          bring_up();
          from = bytes.data();
        }
        end = bytes.data() + bytes.size();
      }
    }
    bring_up();
    std::fill_n(reinterpret_cast<std::int32_t*>(tables.host), results / sizeof(std::int32_t), INT_MAX);
    CRIMP_CUDA(cudaMemcpyAsync(tables.device, tables.host, tables.used, cudaMemcpyHostToDevice, up_));
    order(compute_, up_, slot.ready);
    const int launched = kernels(one.codec).decode_add(table, bodies, one.counter, one.out, one.accumulate, one.voters,
                                                       reinterpret_cast<std::int32_t*>(tables.device), compute_);
    check_cuda(static_cast<cudaError_t>(launched), "a decoding kernel's launch");
    CRIMP_CUDA(cudaMemcpyAsync(tables.host, tables.device, results, cudaMemcpyDeviceToHost, compute_));
    CRIMP_CUDA(cudaEventRecord(slot.done, compute_));
  } catch (...) {
    slot.lost = true;
    throw;
  }
  return static_cast<Ticket>(ticket);
}

void CudaBackend::finish_decode(Ticket ticket, const Progress& progress) {
  const auto at = static_cast<std::size_t>(ticket);
  InFlight& slot = in_flight_[at];
  slot.lost = true;  // unless its end is seen
  wait(slot.done, progress);
  slot.taken = slot.lost = false;
  for (std::size_t j = 0; j < slot.jobs.size(); ++j) {
    const auto bad = result<std::int32_t>(at, j);
    *slot.jobs[j].bad = bad == INT_MAX ? -1 : bad;
  }
}

std::string CudaBackend::open(BodyView& view, const Codec& codec, const ChunkPartition& partition,
                              std::span<const std::uint8_t> body) {
  if (!device_bodies_) return view.open(codec, partition, body);
  const std::size_t prefix = std::min(partition.prefix_bytes(codec), body.size()),
                    last = std::min<std::size_t>(body.size(), kPayloadAlign);
  auto* const here = reinterpret_cast<std::uint8_t*>(look_.data());
  if (prefix + last > look_.bytes()) return "its table of lengths is longer than its chunk's can be";
  memory().read(here, body.data(), prefix);
  memory().read(here + prefix, body.data() + body.size() - last, last);
  return view.open(codec, partition, body, here, here + prefix);
}

TensorSteps* CudaBackend::tensor_steps() {
  if (!tensor_steps_) tensor_steps_ = make_tensor_steps(device_, compute_);
  return tensor_steps_.get();
}

void CudaBackend::copy(float* to, const float* from, std::uint64_t count) {
  const ContextGuard here(device_);
  if (count) CRIMP_CUDA(cudaMemcpyAsync(to, from, count * sizeof *to, cudaMemcpyDeviceToDevice, compute_));
}

void CudaBackend::copy_all(std::span<const FloatCopy> all) {
  if (all.empty()) return;
  if (all.size() == 1) return copy(all[0].to, all[0].from, all[0].count);
  const ContextGuard here(device_);
  cuda::copy_all(all, compute_);
}

void CudaBackend::read(void* host, const void* from, std::size_t bytes) {
  const ContextGuard here(device_);
  if (bytes) CRIMP_CUDA(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, compute_));
}

void CudaBackend::write(void* to, const void* host, std::size_t bytes) {
  const ContextGuard here(device_);
  if (bytes) CRIMP_CUDA(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, compute_));
}

void CudaBackend::widen(Dtype type, const void* in, float* out, std::uint64_t count) {
  const ContextGuard here(device_);
  if (!narrows_.contains(type)) {
    load_narrow(type);
    narrows_.insert(type);
  }
  if (count) cuda::widen(type, in, out, count, compute_);
}

void CudaBackend::narrow(Dtype type, const float* in, void* out, std::uint64_t count) {
  const ContextGuard here(device_);
  if (count) cuda::narrow(type, in, out, count, compute_);
}

void CudaBackend::magnitudes(Dtype type, const void* values, std::span<const Group> groups, double* results) {
  const ContextGuard here(device_);
  std::size_t count = 0;
  for (const Group& group : groups) count += div_up(group.count, kRangeElements);
  const std::size_t words = groups.size() * sizeof(unsigned long long), bytes = words + count * sizeof(ElementRange);
  grow(sizes_, bytes, pinned_memory());
  grow(sizes_mirror_, bytes, device_memory(device_));
  std::memset(sizes_.data(), 0, words);
  auto* stretch = reinterpret_cast<ElementRange*>(sizes_.data() + words);
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::uint64_t at = 0; at < groups[g].count; at += kRangeElements)
      *stretch++ = {groups[g].offset + at,
                    static_cast<std::uint32_t>(std::min<std::uint64_t>(kRangeElements, groups[g].count - at)),
                    static_cast<std::uint32_t>(g)};
  CRIMP_CUDA(cudaMemcpyAsync(sizes_mirror_.data(), sizes_.data(), bytes, cudaMemcpyHostToDevice, compute_));
  auto* const tops = reinterpret_cast<unsigned long long*>(sizes_mirror_.data());
  cuda::magnitudes(type, values, reinterpret_cast<const ElementRange*>(sizes_mirror_.data() + words),
                   static_cast<std::uint32_t>(count), tops, compute_);
  CRIMP_CUDA(cudaMemcpyAsync(sizes_.data(), tops, words, cudaMemcpyDeviceToHost, compute_));
  CRIMP_CUDA(cudaStreamSynchronize(compute_));
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::uint64_t top;
    std::memcpy(&top, sizes_.data() + g * sizeof top, sizeof top);
    const std::uint64_t infinity = type == Dtype::f64   ? 0x7ff0000000000000
                                   : type == Dtype::f32 ? 0x7f800000
                                   : type == Dtype::f16 ? 0x7c00
                                                        : 0x7f80;
    results[g] = top >= infinity      ? std::numeric_limits<double>::infinity()
                 : type == Dtype::f64 ? std::bit_cast<double>(top)
                 : type == Dtype::f32 ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(top)))
                 : type == Dtype::f16 ? static_cast<double>(float_from_half(static_cast<std::uint16_t>(top)))
                                      : static_cast<double>(float_from_bfloat(static_cast<std::uint16_t>(top)));
  }
}

void CudaBackend::begin(bool everything) {
  const ContextGuard here(device_);
  for (auto& slot : in_flight_) slot.lost = slot.taken;  // of a call that was left by longjmp
  retire_lost();
  if (everything) {
    CRIMP_CUDA(cudaDeviceSynchronize());
    return;
  }
  if (!default_stream_usable()) return;
  // Values that the legacy default stream, or any stream that waits for it, still computes.
  CRIMP_CUDA(cudaEventRecord(entered_, nullptr));
  for (cudaStream_t stream : {compute_, down_, up_}) CRIMP_CUDA(cudaStreamWaitEvent(stream, entered_, 0));
}

void CudaBackend::synchronize() {
  const ContextGuard here(device_);
  cudaError_t worst = cudaSuccess;
  for (cudaStream_t stream : {up_, compute_, down_}) {
    const cudaError_t state = cudaStreamSynchronize(stream);
    if (state != cudaSuccess) worst = state;
  }
  for (auto& slot : in_flight_) {
    slot.lost = slot.taken && worst != cudaSuccess;
    slot.taken = slot.lost;
  }
  check_cuda(worst, "cudaStreamSynchronize");
}

}  // namespace crimp::cuda
