#include "staged.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "core/reserve.hpp"
#include "guard.hpp"
#include "horovod/observer.hpp"
#include "memory/repeated_memory.hpp"
#include "mpi/runtime.hpp"
#include "next.hpp"

namespace crimp {
namespace {

// Pinning memory takes milliseconds, so that a few blocks are kept.
constexpr std::size_t kKept = 4;
std::mutex mutex;
std::vector<Memory>& idle() {
  static auto& blocks = *[] {
    auto* made = new std::vector<Memory>;
    made->reserve(kKept + 1);  // giving back never allocates
    return made;
  }();
  return blocks;
}

Memory take_staging(MemoryResource& resource, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex);
    auto& blocks = idle();
    auto best = blocks.end();
    for (auto it = blocks.begin(); it != blocks.end(); ++it)
      if (it->bytes() >= bytes && (best == blocks.end() || it->bytes() < best->bytes())) best = it;
    if (best != blocks.end()) {
      Memory found = std::move(*best);
      blocks.erase(best);
      return found;
    }
  }
  try {
    return Memory(bytes, resource);
  } catch (const Error&) {
  }
  try {
    return Memory(bytes);  // slower to copy, no less right
  } catch (const Error&) {
    const std::lock_guard lock(mutex);
    idle().clear();
  }
  return Memory(bytes);
}

void give_back(Memory memory) {
  const std::lock_guard lock(mutex);
  auto& blocks = idle();
  blocks.push_back(std::move(memory));
  if (blocks.size() > kKept)
    blocks.erase(std::min_element(blocks.begin(), blocks.end(),
                                  [](const Memory& a, const Memory& b) { return a.bytes() < b.bytes(); }));
}

}  // namespace

Ranks::Ranks(MPI_Comm comm) {
  int flag = 0;
  PMPI_Comm_test_inter(comm, &flag);
  inter = flag;
  PMPI_Comm_rank(comm, &rank);
  PMPI_Comm_size(comm, &own);
  count = own;
  if (inter) PMPI_Comm_remote_size(comm, &count);
}

bool stages() noexcept { return reaches_device_memory() && !Runtime::get().cuda_aware(); }

Extent extent_of(long long count, MPI_Datatype type) {
  if (count <= 0 || type == MPI_DATATYPE_NULL) return {};
  MPI_Aint low, extent, true_low, true_extent;
  int size = 0;
  PMPI_Type_get_extent(type, &low, &extent);
  PMPI_Type_get_true_extent(type, &true_low, &true_extent);
  PMPI_Type_size(type, &size);
  const MPI_Aint more = static_cast<MPI_Aint>(count - 1) * extent;
  return {true_low + std::min<MPI_Aint>(more, 0), static_cast<std::size_t>(true_extent + std::abs(more)),
          extent == size && true_extent == size};
}

template <class Count>
Extent extent_of(int parts, const Count* counts, const int* displs, MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL || !counts) return {};
  MPI_Aint low, extent;
  PMPI_Type_get_extent(type, &low, &extent);
  std::ptrdiff_t first = 0, last = 0, at = 0;
  bool any = false;
  for (int r = 0; r < parts; ++r) {
    const Extent part = extent_of(counts[r], type);
    const std::ptrdiff_t here = (displs ? displs[r] : at) * extent + part.low;
    at += counts[r];
    if (!part.bytes) continue;
    first = any ? std::min(first, here) : here;
    last = std::max(any ? last : here, here + static_cast<std::ptrdiff_t>(part.bytes));
    any = true;
  }
  return {first, static_cast<std::size_t>(last - first), false};
}
template Extent extent_of(int, const int*, const int*, MPI_Datatype);
#if MPI_VERSION >= 4
template Extent extent_of(int, const MPI_Count*, const int*, MPI_Datatype);
#endif

Staged::~Staged() {
  for (auto& c : copies_)
    if (c.memory.resource() != &repeated_memory()) give_back(std::move(c.memory));
}

char* Staged::copy(const void* buffer, Extent extent, bool read, bool received) {
  const PointerAttributes home =
      extent.bytes ? pointer_attributes(static_cast<const char*>(buffer) + extent.low) : PointerAttributes{};
  if (home.kind != PointerAttributes::device) return nullptr;  // managed memory may be touched where it is
  char* const user = const_cast<char*>(static_cast<const char*>(buffer)) + extent.low;
  insist([&] { copies_.emplace_back(Copy{user, std::nullopt, extent.bytes, Memory(), received}); });
  Copy& c = copies_.back();
  try {
    c.at = insist([&] { return DeviceAccess(home); });
    c.memory = insist([&] { return take_staging(c.at->staging(), c.bytes); });
    c.at->synchronize(horovod::Observer::get().detected());
    if (read) c.at->read(c.memory.data(), c.user, c.bytes);
  } catch (const std::exception&) {
    if (!failure_) failure_ = std::current_exception();
    if (!c.memory.data()) c.memory = Memory(c.bytes, repeated_memory());
    std::memset(c.memory.data(), 0xff, c.bytes);  // of any floating-point type not a number, so that others notice
  }
  return reinterpret_cast<char*>(c.memory.data()) - extent.low;
}

const void* Staged::sent(const void* buffer, Extent extent) {
  if (buffer == MPI_IN_PLACE) return buffer;
  const char* to = copy(buffer, extent, true, false);
  return to ? to : buffer;
}

void* Staged::received(void* buffer, Extent extent, bool kept) {
  if (buffer == MPI_IN_PLACE) return buffer;
  char* to = copy(buffer, extent, kept || !extent.dense, true);
  return to ? to : buffer;
}

int Staged::finish(MPI_Comm comm, int rc) {
  std::optional<Failure> failure;
  rc = finish(comm, rc, failure);
  return failure ? failure->raise() : rc;
}

int Staged::finish(MPI_Comm comm, int rc, std::optional<Failure>& failure) {
  if (copies_.empty()) return rc;
  return attempt(comm, failure, [&] {
    Runtime::get().report.staged();
    if (rc != MPI_SUCCESS) return rc;
    if (failure_) std::rethrow_exception(failure_);
    for (const Copy& c : copies_)
      if (c.received) c.at->write(c.user, c.memory.data(), c.bytes);
    return rc;
  });
}

int pass_allreduce(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm) {
  if (goes_straight(next, {sendbuf, recvbuf})) return next.Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
  return hand_on(comm, {sendbuf, recvbuf}, stages_sum(count, datatype), [&](Buffers b) {
    const ReentrancyGuard handed_on(next);
    return next.Allreduce(b.sendbuf, b.recvbuf, count, datatype, op, comm);
  });
}

}  // namespace crimp
