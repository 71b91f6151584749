// Calls that pass through to an MPI that cannot take device pointers: their buffers go through pinned host memory.
//
// A failing copy, for want of memory too, is an error of this rank after the call: the others must not wait for it.
// What they get of it then is not a number, where that can be. Only where a buffer's length of addresses cannot be had
// either (ulimit -v) does the call end before MPI.
#pragma once
#include <mpi.h>

#include <cstddef>
#include <exception>
#include <optional>
#include <vector>

#include "backend/device_access.hpp"
#include "guard.hpp"
#include "memory/memory_resource.hpp"
#include "memory/program_memory.hpp"
#include "next.hpp"

namespace crimp {

// Whether device pointers may come and MPI cannot take them. A few nanoseconds in programs without CUDA.
bool stages() noexcept;

// The bytes that elements of a type occupy, from the buffer's address on.
struct Extent {
  std::ptrdiff_t low = 0;
  std::size_t bytes = 0;
  bool dense = true;  // without gaps
};
Extent extent_of(long long count, MPI_Datatype);
template <class Count>  // int or MPI_Count
Extent extent_of(int parts, const Count* counts, const int* displs,
                 MPI_Datatype);  // displs: null where behind one another

// The groups of ranks that a call's buffers are counted in, and which of a rooted call's buffers this rank has.
struct Ranks {
  int rank = 0;
  int own = 1, count = 1;  // of the own group; of the other ranks' group, which within one group is the same
  bool inter = false;
  explicit Ranks(MPI_Comm);
  bool is_root(int root) const { return inter ? root == MPI_ROOT : root == rank; }
  // A part of what the root gathers or scatters. Between two groups the root itself has none, nor have the others of
  // its group.
  bool has_part(int root) const { return root != MPI_PROC_NULL && !(inter && root == MPI_ROOT); }
};

// The buffers of one call. What is not in device memory is handed on as it is.
class Staged {
 public:
  Staged() = default;
  ~Staged();
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  const void* sent(const void* buffer, Extent);
  // `kept`: the call reads it, too, or leaves part of it as it is.
  void* received(void* buffer, Extent, bool kept);
  // After the call, with its code: brings what was received to its places. Returns the code to hand back.
  int finish(MPI_Comm, int rc);
  int finish(MPI_Comm, int rc, std::optional<Failure>&);  // not raised yet

 private:
  struct Copy {
    char* user;
    std::optional<DeviceAccess> at;  // none behind a failure
    std::size_t bytes;
    Memory memory;
    bool received;
  };
  char* copy(const void* buffer, Extent, bool read, bool received);
  std::vector<Copy> copies_;
  std::exception_ptr failure_;
};

struct Buffers {
  const void* sendbuf;
  void* recvbuf;
};

// Buffers that lie in no device's memory, as their addresses alone tell; false: not known, as of NULL, which with a
// datatype of absolute addresses (MPI_BOTTOM) may be anywhere.
__attribute__((always_inline)) inline bool in_program_memory(Buffers b) noexcept {
  return in_program_memory(b.sendbuf == MPI_IN_PLACE ? b.recvbuf : b.sendbuf, b.recvbuf);
}

// The way of nearly all calls that pass: nothing is kept of them, and no tool is behind us that would come back.
__attribute__((always_inline)) inline bool goes_straight(const NextMpi& next, Buffers buffers) noexcept {
  return !next.tool && in_program_memory(buffers);
}

// call(buffers), with stage(staged, ranks, buffers) before it where that is needed. The call itself is outside of the
// guard.
template <class Stage, class Call>
int hand_on(MPI_Comm comm, Buffers buffers, Stage stage, Call call) {
  if (in_program_memory(buffers) || !stages() || comm == MPI_COMM_NULL) return call(buffers);
  Staged staged;
  const int failed = guard(comm, [&] {
    stage(staged, Ranks(comm), buffers);
    return MPI_SUCCESS;
  });
  return failed != MPI_SUCCESS ? failed : staged.finish(comm, call(buffers));
}

// The stage of a sum that every rank gets, whatever function of MPI's makes it.
inline auto stages_sum(long long count, MPI_Datatype type) {
  return [=](Staged& staged, const Ranks&, Buffers& b) {
    const Extent extent = extent_of(count, type);
    const bool in_place = b.sendbuf == MPI_IN_PLACE;
    b.sendbuf = staged.sent(b.sendbuf, extent);
    b.recvbuf = staged.received(b.recvbuf, extent, in_place);
  };
}
// next.Allreduce, staged where that is needed.
int pass_allreduce(const NextMpi&, const void* sendbuf, void* recvbuf, int count, MPI_Datatype, MPI_Op, MPI_Comm);

}  // namespace crimp
