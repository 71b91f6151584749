// Sums of which ranks receive shares: MPI_Reduce, MPI_Reduce_scatter, MPI_Reduce_scatter_block, and their forms for
// MPI_Count.
#include <array>
#include <limits>
#include <optional>

#include "allreduce.hpp"
#include "collective/shares.hpp"
#include "core/reserve.hpp"
#include "export.hpp"
#include "guard.hpp"
#include "horovod/observer.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "next_counts.hpp"
#include "staged.hpp"

namespace crimp {
namespace {

// Of a rank that receives nothing, whatever it gives as its receive buffer.
char nowhere;

struct Group {
  int rank, ranks;
};

// Of the own side, where there are two.
int ranks_of(MPI_Comm comm) {
  int ranks = 0;
  return PMPI_Comm_size(comm, &ranks) == MPI_SUCCESS ? ranks : 0;
}

int rank_of(MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return rank;
}

bool inter(MPI_Comm comm) {
  int is = 0;
  return PMPI_Comm_test_inter(comm, &is) != MPI_SUCCESS || is;
}

// What MPI is to judge, a negative count or one that no int holds, is more than there is memory, as SumCall says.
constexpr std::uint64_t kForMpi = std::numeric_limits<std::uint64_t>::max();

template <class Count>
std::uint64_t elements_of(Count count) {
  return fits_int(count) ? static_cast<std::uint64_t>(count) : kForMpi;
}

// The elements of all shares.
template <class Count>
std::uint64_t total(const Count* counts, int ranks) {
  std::uint64_t sum = 0;
  for (int r = 0; r < ranks; ++r) {
    if (!fits_int(counts[r])) return kForMpi;
    sum += static_cast<std::uint64_t>(counts[r]);
  }
  return sum;
}

// Shares that each end where `end(r)` says, of the ranks 0, 1, ...
template <class End>
std::shared_ptr<const Shares> shares(Collective collective, int ranks, End end) {
  fill_reserve();
  return insist([&] {
    std::vector<std::uint64_t> borders(static_cast<std::size_t>(ranks) + 1);
    for (int r = 0; r < ranks; ++r) borders[static_cast<std::size_t>(r) + 1] = end(r);
    return std::make_shared<const Shares>(collective, std::move(borders));
  });
}

// One call. count(ranks) says how many elements so many ranks give, of(group) says the call of a communicator's group;
// nothing: it is MPI's to judge. shares_of(group) is asked where it may be compressed, by_mpi() hands it on.
template <class Count, class CallOf, class SharesOf, class ByMpi>
int scatter(MPI_Datatype type, MPI_Op op, MPI_Comm comm, Count count, CallOf of, SharesOf shares_of, ByMpi by_mpi) {
  static Runtime& runtime = Runtime::get();
  if ((!runtime.running() && !ready()) || comm == MPI_COMM_NULL) return by_mpi();

  PassReason why = PassReason::settings_differ;
  bool agreed = true, summed = false, could = false;
  Session* left = nullptr;
  int rc = MPI_SUCCESS;
  if (runtime.late())
    rc = guard(comm, [&] {
      agreed = ranks_agree(comm, &why);
      return MPI_SUCCESS;
    });
  if (rc != MPI_SUCCESS) return rc;
  if (agreed && runtime.compressing() && summed_type(type, op, &why)) {
    const int ranks = ranks_of(comm);
    // Programs make many small ones.
    if (count(ranks) < runtime.settings().min_count || inter(comm)) return by_mpi();
    const Group group{rank_of(comm), ranks};
    if (const std::optional<SumCall> call = of(group)) {
      const Eligibility eligible = classify(*call, false);
      why = eligible.why;
      could = eligible.way == Way::compress;
      if (could)
        rc = guard(comm, [&] {
          AllreduceRequest request{call->sendbuf == MPI_IN_PLACE ? call->recvbuf : call->sendbuf,
                                   call->recvbuf == &nowhere ? nullptr : call->recvbuf, call->count, eligible.dtype};
          request.shares = shares_of(group);
          request.rank = group.rank;
          request.sum_by_mpi = [&by_mpi] { return by_mpi(); };  // no more, or it is an allocation
          request.left = &left;
          request.synchronize_all = horovod::Observer::get().detected();
          summed = sum(*call, eligible, request, &why);
          return MPI_SUCCESS;
        });
    }
  }
  if (summed || rc != MPI_SUCCESS) return rc;
  // Of the others programs make many that were never meant.
  if (could) runtime.report.passed(why);
  rc = by_mpi();
  if (left && rc == MPI_SUCCESS) left->left_ended();
  return rc;
}

template <class Count>
int reduce(const NextMpi& next, const void* sendbuf, void* recvbuf, Count count, MPI_Datatype datatype, MPI_Op op,
           int root, MPI_Comm comm) {
  if (inside(next)) return next_reduce(next, sendbuf, recvbuf, count, datatype, op, root, comm);
  const auto elements = [&](int) { return elements_of(count); };
  const auto call = [&](Group group) -> std::optional<SumCall> {
    if (root < 0 || root >= group.ranks || (sendbuf == MPI_IN_PLACE && group.rank != root)) return {};
    return SumCall{sendbuf, group.rank == root ? recvbuf : &nowhere, elements_of(count), datatype, op, comm};
  };
  const auto all_for_root = [&](Group group) {
    return shares(Collective::reduce, group.ranks, [&](int r) { return r < root ? 0 : elements_of(count); });
  };
  return scatter(datatype, op, comm, elements, call, all_for_root,
                 [&] { return pass_reduce(next, sendbuf, recvbuf, count, datatype, op, root, comm); });
}

template <class Count>
int reduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf, const Count* recvcounts,
                   MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  if (inside(next)) return next_reduce_scatter(next, sendbuf, recvbuf, recvcounts, datatype, op, comm);
  const auto elements = [&](int ranks) { return recvcounts ? total(recvcounts, ranks) : 0; };
  const auto call = [&](Group group) -> std::optional<SumCall> {
    const bool nothing = sendbuf != MPI_IN_PLACE && recvcounts[group.rank] == 0;
    return SumCall{sendbuf, nothing ? &nowhere : recvbuf, elements(group.ranks), datatype, op, comm};
  };
  const auto counted = [&](Group group) {
    std::uint64_t end = 0;
    return shares(Collective::reduce_scatter, group.ranks,
                  [&](int r) { return end = (r == 0 ? 0 : end) + static_cast<std::uint64_t>(recvcounts[r]); });
  };
  return scatter(datatype, op, comm, elements, call, counted,
                 [&] { return pass_reduce_scatter(next, sendbuf, recvbuf, recvcounts, datatype, op, comm); });
}

template <class Count>
int reduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf, Count recvcount,
                         MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  if (inside(next)) return next_reduce_scatter_block(next, sendbuf, recvbuf, recvcount, datatype, op, comm);
  const auto elements = [&](int ranks) {
    return fits_int(recvcount) ? elements_of(recvcount) * static_cast<std::uint64_t>(ranks) : kForMpi;
  };
  const auto call = [&](Group group) -> std::optional<SumCall> {
    return SumCall{sendbuf, recvbuf, elements(group.ranks), datatype, op, comm};
  };
  const auto even = [&](Group group) {
    return shares(Collective::reduce_scatter, group.ranks,
                  [&](int r) { return static_cast<std::uint64_t>(r + 1) * elements_of(recvcount); });
  };
  return scatter(datatype, op, comm, elements, call, even,
                 [&] { return pass_reduce_scatter_block(next, sendbuf, recvbuf, recvcount, datatype, op, comm); });
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Reduce, reduce,
             (const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op, int root, MPI_Comm comm),
             sendbuf, recvbuf, count, datatype, op, root, comm)
CRIMP_EXPORT(Reduce_scatter, reduce_scatter,
             (const void* sendbuf, void* recvbuf, const int recvcounts[], MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm),
             sendbuf, recvbuf, recvcounts, datatype, op, comm)
CRIMP_EXPORT(Reduce_scatter_block, reduce_scatter_block,
             (const void* sendbuf, void* recvbuf, int recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
             sendbuf, recvbuf, recvcount, datatype, op, comm)
#if MPI_VERSION >= 4
CRIMP_EXPORT(Reduce_c, reduce,
             (const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype, MPI_Op op, int root,
              MPI_Comm comm),
             sendbuf, recvbuf, count, datatype, op, root, comm)
CRIMP_EXPORT(Reduce_scatter_c, reduce_scatter,
             (const void* sendbuf, void* recvbuf, const MPI_Count recvcounts[], MPI_Datatype datatype, MPI_Op op,
              MPI_Comm comm),
             sendbuf, recvbuf, recvcounts, datatype, op, comm)
CRIMP_EXPORT(Reduce_scatter_block_c, reduce_scatter_block,
             (const void* sendbuf, void* recvbuf, MPI_Count recvcount, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm),
             sendbuf, recvbuf, recvcount, datatype, op, comm)
#endif
