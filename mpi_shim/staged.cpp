#include "staged.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "backend/device_plugin.hpp"
#include "mpi/runtime.hpp"
#include "guard.hpp"
#include "horovod/observer.hpp"
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

Memory take_pinned(const DevicePlugin& plugin, std::size_t bytes) {
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
    return Memory(bytes, plugin.pinned());
  } catch (const Error&) {
    return Memory(bytes);  // slower to copy, no less right
  }
}

void give_back(Memory memory) {
  const std::lock_guard lock(mutex);
  auto& blocks = idle();
  blocks.push_back(std::move(memory));
  if (blocks.size() > kKept) blocks.erase(std::min_element(blocks.begin(), blocks.end(), [](const Memory& a, const Memory& b) { return a.bytes() < b.bytes(); }));
}

// The group that the ranks of a call's buffers are counted in.
struct Ranks {
  int rank = 0, count = 1;
  bool inter = false;
  explicit Ranks(MPI_Comm comm) {
    int flag = 0;
    PMPI_Comm_test_inter(comm, &flag);
    inter = flag;
    PMPI_Comm_rank(comm, &rank);
    inter ? PMPI_Comm_remote_size(comm, &count) : PMPI_Comm_size(comm, &count);
  }
  bool is_root(int root) const { return inter ? root == MPI_ROOT : root == rank; }
  bool takes_part(int root) const { return root != MPI_PROC_NULL; }
};

}  // namespace

bool stages() noexcept { return device_plugin() && !Runtime::get().cuda_aware(); }

Extent extent_of(long long count, MPI_Datatype type) {
  if (count <= 0 || type == MPI_DATATYPE_NULL) return {};
  MPI_Aint low, extent, true_low, true_extent;
  int size = 0;
  PMPI_Type_get_extent(type, &low, &extent);
  PMPI_Type_get_true_extent(type, &true_low, &true_extent);
  PMPI_Type_size(type, &size);
  const MPI_Aint more = static_cast<MPI_Aint>(count - 1) * extent;
  return {true_low + std::min<MPI_Aint>(more, 0), static_cast<std::size_t>(true_extent + std::abs(more)), extent == size && true_extent == size};
}

Extent extent_of(int parts, const int* counts, const int* places, MPI_Datatype type) {
  if (type == MPI_DATATYPE_NULL || !counts) return {};
  MPI_Aint low, extent;
  PMPI_Type_get_extent(type, &low, &extent);
  std::ptrdiff_t first = 0, last = 0, at = 0;
  bool any = false;
  for (int r = 0; r < parts; ++r) {
    const Extent part = extent_of(counts[r], type);
    const std::ptrdiff_t here = (places ? places[r] : at) * extent + part.low;
    at += counts[r];
    if (!part.bytes) continue;
    first = any ? std::min(first, here) : here;
    last = std::max(any ? last : here, here + static_cast<std::ptrdiff_t>(part.bytes));
    any = true;
  }
  return {first, static_cast<std::size_t>(last - first), false};
}

Staged::~Staged() {
  for (auto& c : copies_) give_back(std::move(c.memory));
}

char* Staged::copy(const void* buffer, Extent extent, bool read, bool received) {
  const PointerHome home = extent.bytes ? home_of(static_cast<const char*>(buffer) + extent.low) : PointerHome{};
  if (home.kind != PointerHome::device) return nullptr;  // managed memory may be touched where it is
  const DevicePlugin& plugin = *device_plugin();
  Copy& c = copies_.emplace_back(Copy{const_cast<char*>(static_cast<const char*>(buffer)) + extent.low, home.device_index, extent.bytes,
                                      take_pinned(plugin, extent.bytes), received});
  try {
    plugin.settle(home.device_index, horovod::Observer::get().detected());
    if (read) plugin.memory(home.device_index).read(c.memory.data(), c.user, c.bytes);
  } catch (const Error& e) {
    if (!failure_) failure_ = e;
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
  if (copies_.empty()) return rc;
  return guard(comm, [&] {
    Runtime::get().report.staged();
    if (rc != MPI_SUCCESS) return rc;
    if (failure_) throw Error(*failure_);
    for (const Copy& c : copies_)
      if (c.received) device_plugin()->memory(c.device).write(c.user, c.memory.data(), c.bytes);
    return rc;
  });
}

namespace {

struct Buffers {
  const void* send;
  void* receive;
};

// The whole of a call that is not looked at otherwise: call(buffers), with stage(staged, ranks, buffers) before it where its buffers may be in
// device memory. The call itself is outside of the guard.
template <class Stage, class Call>
int pass(const Next& next, MPI_Comm comm, Buffers buffers, Stage stage, Call call) {
  if (!stages() || comm == MPI_COMM_NULL || inside(next)) return call(buffers);
  Staged staged;
  const int failed = guard(comm, [&] {
    stage(staged, Ranks(comm), buffers);
    return MPI_SUCCESS;
  });
  return failed != MPI_SUCCESS ? failed : staged.finish(comm, call(buffers));
}

}  // namespace

int pass_allreduce(const Next& next, const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  const auto call = [&] {
    const Inside handed_on(next);
    return next.Allreduce(send, receive, count, type, op, comm);
  };
  if (!stages() || comm == MPI_COMM_NULL || count <= 0) return call();
  Staged staged;
  const int failed = guard(comm, [&] {
    const Extent extent = extent_of(count, type);
    const bool in_place = send == MPI_IN_PLACE;
    send = staged.sent(send, extent);
    receive = staged.received(receive, extent, in_place);
    return MPI_SUCCESS;
  });
  return failed != MPI_SUCCESS ? failed : staged.finish(comm, call());
}

namespace {

int reduce(const Next& next, const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    const Extent extent = extent_of(count, type);
    if (ranks.takes_part(root) && !(ranks.inter && root == MPI_ROOT)) b.send = staged.sent(send, extent);
    if (ranks.is_root(root)) b.receive = staged.received(receive, extent, send == MPI_IN_PLACE);
  }, [&](Buffers b) { return next.Reduce(b.send, b.receive, count, type, op, root, comm); });
}

int gather(const Next& next, const void* send, int count, MPI_Datatype type, void* receive, int received, MPI_Datatype as, int root, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    const bool is_root = ranks.is_root(root);
    if (ranks.takes_part(root) && !(ranks.inter && is_root)) b.send = staged.sent(send, extent_of(count, type));
    if (is_root) b.receive = staged.received(receive, extent_of(static_cast<long long>(received) * ranks.count, as), send == MPI_IN_PLACE);
  }, [&](Buffers b) { return next.Gather(b.send, count, type, b.receive, received, as, root, comm); });
}

int scatter(const Next& next, const void* send, int count, MPI_Datatype type, void* receive, int received, MPI_Datatype as, int root, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    const bool is_root = ranks.is_root(root);
    if (is_root) b.send = staged.sent(send, extent_of(static_cast<long long>(count) * ranks.count, type));
    if (ranks.takes_part(root) && !(ranks.inter && is_root)) b.receive = staged.received(receive, extent_of(received, as), false);
  }, [&](Buffers b) { return next.Scatter(b.send, count, type, b.receive, received, as, root, comm); });
}

int scatterv(const Next& next, const void* send, const int* counts, const int* places, MPI_Datatype type, void* receive, int received, MPI_Datatype as,
             int root, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    const bool is_root = ranks.is_root(root);
    if (is_root) b.send = staged.sent(send, extent_of(ranks.count, counts, places, type));
    if (ranks.takes_part(root) && !(ranks.inter && is_root)) b.receive = staged.received(receive, extent_of(received, as), false);
  }, [&](Buffers b) { return next.Scatterv(b.send, counts, places, type, b.receive, received, as, root, comm); });
}

int allgather(const Next& next, const void* send, int count, MPI_Datatype type, void* receive, int received, MPI_Datatype as, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    b.send = staged.sent(send, extent_of(count, type));
    b.receive = staged.received(receive, extent_of(static_cast<long long>(received) * ranks.count, as), send == MPI_IN_PLACE);
  }, [&](Buffers b) { return next.Allgather(b.send, count, type, b.receive, received, as, comm); });
}

int allgatherv(const Next& next, const void* send, int count, MPI_Datatype type, void* receive, const int* counts, const int* places, MPI_Datatype as,
               MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    b.send = staged.sent(send, extent_of(count, type));
    b.receive = staged.received(receive, extent_of(ranks.count, counts, places, as), true);
  }, [&](Buffers b) { return next.Allgatherv(b.send, count, type, b.receive, counts, places, as, comm); });
}

int alltoall(const Next& next, const void* send, int count, MPI_Datatype type, void* receive, int received, MPI_Datatype as, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    b.send = staged.sent(send, extent_of(static_cast<long long>(count) * ranks.count, type));
    b.receive = staged.received(receive, extent_of(static_cast<long long>(received) * ranks.count, as), send == MPI_IN_PLACE);
  }, [&](Buffers b) { return next.Alltoall(b.send, count, type, b.receive, received, as, comm); });
}

int alltoallv(const Next& next, const void* send, const int* counts, const int* places, MPI_Datatype type, void* receive, const int* received,
              const int* to_places, MPI_Datatype as, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (send != MPI_IN_PLACE) b.send = staged.sent(send, extent_of(ranks.count, counts, places, type));
    b.receive = staged.received(receive, extent_of(ranks.count, received, to_places, as), true);
  }, [&](Buffers b) { return next.Alltoallv(b.send, counts, places, type, b.receive, received, to_places, as, comm); });
}

int reduce_scatter(const Next& next, const void* send, void* receive, const int* counts, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks&, Buffers& b) {
    int size = 0, rank = 0;  // counts are those of the own group
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_rank(comm, &rank);
    const Extent all = extent_of(size, counts, nullptr, type);
    b.send = staged.sent(send, all);
    b.receive = send == MPI_IN_PLACE ? staged.received(receive, all, true) : staged.received(receive, extent_of(counts[rank], type), false);
  }, [&](Buffers b) { return next.Reduce_scatter(b.send, b.receive, counts, type, op, comm); });
}

int reduce_scatter_block(const Next& next, const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return pass(next, comm, {send, receive}, [&](Staged& staged, const Ranks&, Buffers& b) {
    int size = 0;
    PMPI_Comm_size(comm, &size);
    const Extent all = extent_of(static_cast<long long>(count) * size, type);
    b.send = staged.sent(send, all);
    b.receive = send == MPI_IN_PLACE ? staged.received(receive, all, true) : staged.received(receive, extent_of(count, type), false);
  }, [&](Buffers b) { return next.Reduce_scatter_block(b.send, b.receive, count, type, op, comm); });
}

}  // namespace
}  // namespace crimp

extern "C" {
using namespace crimp;

// Both names of a function, with its parameters and what is handed on.
#define CRIMP_EXPORT(name, function, parameters, ...)                                                                                  \
  __attribute__((visibility("default"))) int MPI_##name parameters { return function(next_mpi(), __VA_ARGS__); }                        \
  __attribute__((visibility("default"))) int PMPI_##name parameters { return function(next_pmpi(), __VA_ARGS__); }

CRIMP_EXPORT(Reduce, reduce, (const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm), send, receive, count,
             type, op, root, comm)
CRIMP_EXPORT(Gather, gather,
             (const void* send, int count, MPI_Datatype type, void* receive, int received, MPI_Datatype as, int root, MPI_Comm comm), send, count, type,
             receive, received, as, root, comm)
CRIMP_EXPORT(Scatter, scatter,
             (const void* send, int count, MPI_Datatype type, void* receive, int received, MPI_Datatype as, int root, MPI_Comm comm), send, count, type,
             receive, received, as, root, comm)
CRIMP_EXPORT(Scatterv, scatterv,
             (const void* send, const int counts[], const int places[], MPI_Datatype type, void* receive, int received, MPI_Datatype as, int root,
              MPI_Comm comm),
             send, counts, places, type, receive, received, as, root, comm)
CRIMP_EXPORT(Allgather, allgather, (const void* send, int count, MPI_Datatype type, void* receive, int received, MPI_Datatype as, MPI_Comm comm), send,
             count, type, receive, received, as, comm)
CRIMP_EXPORT(Allgatherv, allgatherv,
             (const void* send, int count, MPI_Datatype type, void* receive, const int counts[], const int places[], MPI_Datatype as, MPI_Comm comm), send,
             count, type, receive, counts, places, as, comm)
CRIMP_EXPORT(Alltoall, alltoall, (const void* send, int count, MPI_Datatype type, void* receive, int received, MPI_Datatype as, MPI_Comm comm), send,
             count, type, receive, received, as, comm)
CRIMP_EXPORT(Alltoallv, alltoallv,
             (const void* send, const int counts[], const int places[], MPI_Datatype type, void* receive, const int received[], const int to_places[],
              MPI_Datatype as, MPI_Comm comm),
             send, counts, places, type, receive, received, to_places, as, comm)
CRIMP_EXPORT(Reduce_scatter, reduce_scatter, (const void* send, void* receive, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm), send,
             receive, counts, type, op, comm)
CRIMP_EXPORT(Reduce_scatter_block, reduce_scatter_block, (const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), send,
             receive, count, type, op, comm)
}
