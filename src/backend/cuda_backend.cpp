#include "backend/cuda_backend.hpp"

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "backend/cuda_convert.hpp"
#include "backend/cuda_memory.hpp"
#include "backend/cuda_tensor_steps.hpp"
#include "codec/powersgd/tensor_steps.hpp"
#include "core/error.hpp"
#include "core/half.hpp"

namespace crimp::cuda {
namespace {

constexpr std::size_t kAlign = 16, kResult = kAlign;  // a region begins with its result

}  // namespace

// Tables written in pinned memory, behind one another, and where they will be on the device.
struct CudaBackend::TableWriter {
  std::byte *host, *device;
  std::size_t used = kResult, room;

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
  auto [it, added] = codecs_.try_emplace(&codec);
  if (added) it->second = make_device_codec(codec);
  return it->second != nullptr;
}

const DeviceCodec& CudaBackend::kernels(const Codec& codec) {
  if (!runs(codec)) throw Error(ErrorCode::device_failed, "the codec " + codec.spec() + " has no kernels");
  return *codecs_.at(&codec);
}

void CudaBackend::prepare(const Codec& codec, const ChunkPartition& partition, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const std::size_t pieces = partition.pieces().size();
  // Shards cut groups and so add up to one entry of each kind.
  const std::size_t bytes = kResult + (pieces + 1) * sizeof(PieceEntry) +
                            (partition.groups().size() + 1) * sizeof(GroupEntry) +
                            n * (2 * sizeof(void*) + (pieces + 2) * sizeof(std::uint64_t)) + 8 * kAlign;
  wanted_region_ = std::max<std::size_t>(wanted_region_, round_up(bytes, 256));
  wanted_slots_ = std::max(wanted_slots_, 8 + 3 * n);
  wanted_scratch_ = std::max(wanted_scratch_, kernels(codec).scratch_bytes(chunk_arrays(codec, partition).table));
}

void CudaBackend::prepare(const Arena& staging) {
  const ContextGuard here(device_);
  if (wanted_region_ > region_bytes_ || wanted_slots_ > in_flight_.size()) {
    const std::size_t all = wanted_region_ * wanted_slots_;
    Memory tables(all, pinned_memory()), tables_mirror(all, device_memory(device_));
    in_flight_.resize(wanted_slots_);
    for (auto& slot : in_flight_)
      for (cudaEvent_t* event : {&slot.ready, &slot.done})
        if (!*event) CRIMP_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    tables_ = std::move(tables);
    tables_mirror_ = std::move(tables_mirror);
    region_bytes_ = wanted_region_;
  }
  grow(scratch_, wanted_scratch_, device_memory(device_));
  if (device_bodies_) {
    grow(look_, wanted_region_, pinned_memory());
  } else {
    grow(mirror_, staging.bytes(), device_memory(device_));
  }
  staging_ = staging.data();
}

std::uint8_t* CudaBackend::mirror(const std::uint8_t* staged) const {
  if (device_bodies_) return const_cast<std::uint8_t*>(staged);
  return reinterpret_cast<std::uint8_t*>(mirror_.data() + (reinterpret_cast<const std::byte*>(staged) - staging_));
}

std::size_t CudaBackend::take_slot() {
  for (const bool again : {false, true}) {
    if (again) retire_lost();
    for (std::size_t i = 0; i < in_flight_.size(); ++i)
      if (!in_flight_[i].taken) {
        in_flight_[i].taken = true;
        in_flight_[i].mirror = nullptr;
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

ChunkTable CudaBackend::table(TableWriter& upload, const Codec& codec, const ChunkPartition& partition,
                              std::span<const FeedbackView> feedback) const {
  const ChunkArrays arrays = chunk_arrays(codec, partition, feedback);
  ChunkTable table = arrays.table;
  std::copy(arrays.pieces.begin(), arrays.pieces.end(), upload.take(arrays.pieces.size(), &table.pieces));
  std::copy(arrays.groups.begin(), arrays.groups.end(), upload.take(arrays.groups.size(), &table.groups));
  return table;
}

Backend::Ticket CudaBackend::start_encode(const EncodeJob& job, const Progress&) {
  const ContextGuard here(device_);
  poll_copies();
  const std::size_t ticket = take_slot();
  InFlight& slot = in_flight_[ticket];
  try {
    TableWriter upload{region(tables_, ticket), region(tables_mirror_, ticket), kResult, region_bytes_};
    const ChunkTable chunk = table(upload, job.codec, job.partition, job.feedback);
    std::memset(upload.host, 0, kResult);
    CRIMP_CUDA(cudaMemcpyAsync(upload.device, upload.host, upload.used, cudaMemcpyHostToDevice, compute_));
    std::uint8_t* const body = mirror(job.body);
    const int launched =
        kernels(job.codec).encode(chunk, job.values, job.counter, body, reinterpret_cast<std::uint64_t*>(upload.device),
                                  scratch_.data(), compute_);
    check(static_cast<cudaError_t>(launched), "an encoding kernel's launch");
    CRIMP_CUDA(cudaEventRecord(slot.ready, compute_));
    CRIMP_CUDA(cudaStreamWaitEvent(down_, slot.ready, 0));
    slot.body = job.body;
    slot.bytes = 0;
    if (job.codec.traits().fixed_size) {
      slot.bytes = round_up(chunk.prefix_bytes + chunk.slots_bytes, kPayloadAlign);
      slot.mirror = body;
      copy_to_host(slot, slot.bytes);
    } else {
      CRIMP_CUDA(cudaMemcpyAsync(upload.host, upload.device, sizeof(std::uint64_t), cudaMemcpyDeviceToHost, down_));
      CRIMP_CUDA(cudaEventRecord(slot.ready, down_));
      slot.mirror = body;
    }
  } catch (...) {
    slot.lost = true;
    throw;
  }
  return static_cast<Ticket>(ticket);
}

void CudaBackend::copy_to_host(InFlight& slot, std::uint64_t bytes) {
  if (!device_bodies_ && bytes)
    CRIMP_CUDA(cudaMemcpyAsync(slot.body, slot.mirror, bytes, cudaMemcpyDeviceToHost, down_));
  CRIMP_CUDA(cudaEventRecord(slot.done, down_));
  slot.mirror = nullptr;
}

void CudaBackend::poll_copies() {
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    InFlight& slot = in_flight_[i];
    if (!slot.taken || slot.lost || !slot.mirror || cudaEventQuery(slot.ready) != cudaSuccess) continue;
    std::memcpy(&slot.bytes, region(tables_, i), sizeof slot.bytes);
    copy_to_host(slot, slot.bytes);
  }
  cudaGetLastError();  // "not ready" is no error of the application's
}

void CudaBackend::wait(cudaEvent_t event, const Progress& progress) {
  for (;;) {
    const cudaError_t state = cudaEventQuery(event);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, "cudaEventQuery");
    cudaGetLastError();
    if (progress) progress();
    std::this_thread::yield();
  }
}

std::size_t CudaBackend::finish_encode(Ticket ticket, const Progress& progress) {
  const ContextGuard here(device_);
  InFlight& slot = in_flight_[static_cast<std::size_t>(ticket)];
  slot.lost = true;  // unless its end is seen
  if (slot.mirror) {
    wait(slot.ready, progress);
    std::memcpy(&slot.bytes, region(tables_, static_cast<std::size_t>(ticket)), sizeof slot.bytes);
    copy_to_host(slot, slot.bytes);
  }
  wait(slot.done, progress);
  slot.taken = slot.lost = false;
  return slot.bytes;
}

Backend::Ticket CudaBackend::start_decode(const DecodeJob& job, const Progress&) {
  const ContextGuard here(device_);
  poll_copies();
  const std::size_t ticket = take_slot(), n = job.bodies.size(), entries = job.partition.pieces().size() + 1;
  InFlight& slot = in_flight_[ticket];
  try {
    TableWriter upload{region(tables_, ticket), region(tables_mirror_, ticket), kResult, region_bytes_};
    const ChunkTable chunk = table(upload, job.codec, job.partition, {});
    DeviceBodies bodies{};
    bodies.count = static_cast<std::int64_t>(n);
    const std::uint8_t* const* body_table;
    const std::uint64_t* const* offset_table;
    auto* const body = upload.take<const std::uint8_t*>(n, &body_table);
    auto* const offset = upload.take<const std::uint64_t*>(n, &offset_table);
    bodies.bodies = body_table;
    bodies.offsets = offset_table;
    // Neighbours travel in one copy.
    const std::uint8_t *from = nullptr, *end = nullptr;
    const auto bring_up = [&] {
      if (!device_bodies_ && from != end)
        CRIMP_CUDA(
            cudaMemcpyAsync(mirror(from), from, static_cast<std::size_t>(end - from), cudaMemcpyHostToDevice, up_));
    };
    for (std::size_t r = 0; r < n; ++r) {
      const BodyView& view = job.bodies[r];
      const auto bytes = view.body();
      body[r] = mirror(bytes.data());
      std::uint64_t* const to = upload.take<std::uint64_t>(entries, &offset[r]);
      std::copy_n(view.offsets().begin(), entries, to);
      if (bytes.data() != end || !end) {
        bring_up();
        from = bytes.data();
      }
      end = bytes.data() + bytes.size();
    }
    bring_up();
    const std::int32_t none = INT_MAX;
    std::memcpy(upload.host, &none, sizeof none);
    CRIMP_CUDA(cudaMemcpyAsync(upload.device, upload.host, upload.used, cudaMemcpyHostToDevice, up_));
    order(compute_, up_, slot.ready);
    const int launched = kernels(job.codec).decode_add(chunk, bodies, job.counter, job.out, job.accumulate, job.voters,
                                                       reinterpret_cast<std::int32_t*>(upload.device), compute_);
    check(static_cast<cudaError_t>(launched), "a decoding kernel's launch");
    CRIMP_CUDA(cudaMemcpyAsync(upload.host, upload.device, sizeof none, cudaMemcpyDeviceToHost, compute_));
    CRIMP_CUDA(cudaEventRecord(slot.done, compute_));
  } catch (...) {
    slot.lost = true;
    throw;
  }
  return static_cast<Ticket>(ticket);
}

int CudaBackend::finish_decode(Ticket ticket, const Progress& progress) {
  const ContextGuard here(device_);
  InFlight& slot = in_flight_[static_cast<std::size_t>(ticket)];
  slot.lost = true;  // unless its end is seen
  wait(slot.done, progress);
  slot.taken = slot.lost = false;
  std::int32_t bad;
  std::memcpy(&bad, region(tables_, static_cast<std::size_t>(ticket)), sizeof bad);
  return bad == INT_MAX ? -1 : bad;
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
  retire_lost();
  for (auto& slot : in_flight_) slot.taken = false;
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
  check(worst, "cudaStreamSynchronize");
}

}  // namespace crimp::cuda
