// Slots in device memory that processes share by CUDA's handles for that (IPC).
#include <cuda_runtime.h>

#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda_backend.hpp"
#include "backend/cuda_memory.hpp"
#include "backend/cuda_slot_sums.hpp"
#include "core/error.hpp"

namespace crimp::cuda {
namespace {

// What a handle holds.
struct Address {
  cudaIpcMemHandle_t memory{};
  std::uint64_t process = 0;  // its key
  std::uint64_t begin = 0;    // there
  std::int64_t device = -1;   // there
};
static_assert(sizeof(Address) <= sizeof(SharedSlots::Handle));

// Process numbers are not unique between containers.
std::uint64_t process_key() {
  static const std::uint64_t key = [] {
    std::random_device draw;
    return std::uint64_t{draw()} << 32 | draw();
  }();
  return key;
}

// Memory of this process that others may have mapped. To free it under them is undefined, and who has it nobody knows
// here, so it is kept for the next slot that wants as much.
struct Exported {
  Memory memory;
  Address address;
  int device;
};

// Never destroyed: devices may be gone by then.
struct Known {
  std::mutex mutex;
  std::list<Exported> spare;
  // Of other processes, by handle and the device that reaches it. It stays mapped, as its owner keeps it.
  std::map<std::pair<int, std::string>, float*> mapped;
};
Known& known() {
  static Known& all = *new Known;
  return all;
}

class CudaSharedSlots final : public SharedSlots {
 public:
  CudaSharedSlots(int device, std::uint64_t floats) : device_(device) {
    const ContextGuard here(device_);
    load_slot_sums();
    int least, greatest;
    CRIMP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CRIMP_CUDA(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest));
    try {
      own_.splice(own_.end(), take(floats * sizeof(float)));
    } catch (...) {
      cudaStreamDestroy(stream_);
      throw;
    }
  }
  ~CudaSharedSlots() override {
    try {
      const ContextGuard here(device_);
      cudaStreamSynchronize(stream_);
      cudaStreamDestroy(stream_);
      cudaGetLastError();  // at exit the runtime may be gone
      const std::lock_guard lock(known().mutex);
      known().spare.splice(known().spare.end(), own_);
    } catch (const std::exception&) {
    }
  }

  Handle handle() const override {
    Handle bytes{};
    std::memcpy(bytes.data(), &own_.front().address, sizeof(Address));
    return bytes;
  }

  void open(std::span<const Handle> all) override {
    const ContextGuard here(device_);
    slots_.clear();
    for (const Handle& bytes : all) {
      Address a;
      std::memcpy(&a, bytes.data(), sizeof a);
      slots_.push_back(a.process == process_key() ? within(a) : mapped(a, bytes));
    }
  }
  float* own() const override { return reinterpret_cast<float*>(own_.front().memory.data()); }
  float* slot(std::size_t rank) const override { return slots_[rank]; }

  void copy(float* to, const float* from, std::uint64_t count) override {
    const ContextGuard here(device_);
    if (count) CRIMP_CUDA(cudaMemcpyAsync(to, from, count * sizeof *to, cudaMemcpyDeviceToDevice, stream_));
  }
  void add(float* to, std::span<const float* const> from, std::uint64_t count) override {
    const ContextGuard here(device_);
    add_slots(to, from, count, stream_);
  }
  void finish() override {
    const ContextGuard here(device_);
    CRIMP_CUDA(cudaStreamSynchronize(stream_));
  }

 private:
  std::list<Exported> take(std::size_t bytes) {
    std::list<Exported> taken;
    auto& [mutex, spare, _] = known();
    {
      const std::lock_guard lock(mutex);
      for (auto at = spare.begin(); at != spare.end(); ++at)
        if (at->device == device_ && at->memory.bytes() >= bytes) {
          taken.splice(taken.end(), spare, at);
          return taken;
        }
    }
    Exported& made = taken.emplace_back(Exported{Memory(bytes, device_memory(device_)), {}, device_});
    made.address.process = process_key();
    made.address.begin = reinterpret_cast<std::uintptr_t>(made.memory.data());
    made.address.device = device_;
    CRIMP_CUDA(cudaIpcGetMemHandle(&made.address.memory, made.memory.data()));
    return taken;
  }

  // Ranks that are threads of one process.
  float* within(const Address& a) const {
    if (a.device != device_)
      throw Error(ErrorCode::device_failed, "ranks of one process have CUDA devices " + std::to_string(a.device) +
                                                " and " + std::to_string(device_));
    return reinterpret_cast<float*>(static_cast<std::uintptr_t>(a.begin));
  }
  float* mapped(const Address& a, const Handle& bytes) const {
    const std::pair key{device_, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
    const std::lock_guard lock(known().mutex);
    if (const auto at = known().mapped.find(key); at != known().mapped.end()) return at->second;
    void* begin = nullptr;
    CRIMP_CUDA(cudaIpcOpenMemHandle(&begin, a.memory, cudaIpcMemLazyEnablePeerAccess));
    return known().mapped[key] = static_cast<float*>(begin);
  }

  int device_;
  cudaStream_t stream_ = nullptr;
  std::list<Exported> own_;  // one
  std::vector<float*> slots_;
};

}  // namespace

std::unique_ptr<SharedSlots> CudaBackend::shared_slots(std::uint64_t floats) {
  return std::make_unique<CudaSharedSlots>(device_, floats);
}

}  // namespace crimp::cuda
