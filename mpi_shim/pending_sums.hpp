// Sums that do not block: those that Crimp carries, and those that MPI carries with something of ours kept until they
// are complete.
#pragma once
#include <mpi.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "allreduce.hpp"
#include "core/reserve.hpp"
#include "guard.hpp"
#include "requests.hpp"
#include "staged.hpp"

namespace crimp {

// Carries a sum of Way::compress: then *request is its, and it is under way or, persistent, to be started. False: it is
// for MPI, on all ranks, for *why. Inside guard().
bool carry(const SumCall&, const Eligibility&, const AllreduceRequest&, bool persistent, MPI_Request*, PassReason* why);

// What MPI uses until the request is complete: copies of device memory that it cannot take, and counts.
class PendingKept final : public Pending {
 public:
  explicit PendingKept(MPI_Comm comm) : comm_(comm) {}
  int finish(int rc) override { return staged.finish(comm(), rc, failure); }
  MPI_Comm comm() const override { return comm_.load(); }
  void freed(MPI_Comm comm) noexcept override {
    if (comm_.load() == comm) comm_.store(MPI_COMM_NULL);
  }
  Staged staged;
  std::vector<int> ints;

 private:
  std::atomic<MPI_Comm> comm_;
};

// Of start_by_mpi(), where something is kept. Out of line, so that the others' way past it stays short.
template <class Stage, class Start>
__attribute__((noinline)) int start_and_keep(const NextMpi& next, MPI_Comm comm, Buffers buffers, MPI_Request* request,
                                             Stage& stage, Start& start) {
  std::unique_ptr<PendingKept> kept;
  std::optional<Requests::Room> room;
  const Buffers given = buffers;
  int rc = guard(comm, [&] {
    kept = insist([&] { return std::make_unique<PendingKept>(comm); });
    insist([&] { room.emplace(); });
    if (stages()) stage(kept->staged, Ranks(comm), buffers);
    return MPI_SUCCESS;
  });
  if (rc == MPI_SUCCESS) {
    const ReentrancyGuard handed_on(next);
    rc = start(buffers, kept->ints);
  }
  const bool same = buffers.sendbuf == given.sendbuf && buffers.recvbuf == given.recvbuf;
  if (rc != MPI_SUCCESS || (same && kept->ints.empty()) || *request == MPI_REQUEST_NULL) return rc;
  // What is complete already may have a handle that others have as well, as sums of one rank do under Open MPI.
  int complete = 0;
  if (PMPI_Request_get_status(*request, &complete, MPI_STATUS_IGNORE) == MPI_SUCCESS && complete)
    return kept->staged.finish(comm, rc);
  room->fill(*request, std::move(kept));
  return rc;
}

// start(buffers, ints), with stage(staged, ranks, buffers) before it where that is needed; what is kept goes with
// *request. keeps: `ints` are filled. The call itself is outside of the guard.
template <class Stage, class Start>
int start_by_mpi(const NextMpi& next, MPI_Comm comm, Buffers buffers, bool keeps, MPI_Request* request, Stage stage,
                 Start start) {
  if (comm != MPI_COMM_NULL && request && (keeps || (!in_program_memory(buffers) && stages())))
    return start_and_keep(next, comm, buffers, request, stage, start);
  std::vector<int> none;
  const ReentrancyGuard handed_on(next);
  return start(buffers, none);
}

}  // namespace crimp
