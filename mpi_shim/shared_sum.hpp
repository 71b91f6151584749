// Sums of which ranks receive shares, as programs ask for them: one type for each function of MPI's, blocking or not,
// whose counts are int or MPI_Count.
//
// All have: elements(ranks), that so many ranks give; call(group), nothing where it is MPI's to judge; shares(group);
// stage(), what of the buffers goes through host memory where MPI cannot take device pointers; sum() and start(), the
// functions behind ours.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collective/shares.hpp"
#include "core/reserve.hpp"
#include "eligibility.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/request.hpp"
#include "next_counts.hpp"
#include "staged.hpp"

namespace crimp {

// Of a rank that receives nothing, whatever it gives as its receive buffer.
inline char nowhere;

struct RankOf {
  int rank, ranks;
};

// What MPI is to judge, a negative count or one that no int holds, is more than there is memory, as SumCall says.
constexpr std::uint64_t kForMpi = std::numeric_limits<std::uint64_t>::max();

template <class Count>
std::uint64_t elements_of(Count count) {
  return fits_int(count) ? static_cast<std::uint64_t>(count) : kForMpi;
}

// Shares that each end where `end(r)` says, of the ranks 0, 1, ...
template <class End>
std::shared_ptr<const Shares> make_shares(Collective collective, int ranks, End end) {
  fill_reserve();
  return insist([&] {
    std::vector<std::uint64_t> borders(static_cast<std::size_t>(ranks) + 1);
    for (int r = 0; r < ranks; ++r) borders[static_cast<std::size_t>(r) + 1] = end(r);
    return std::make_shared<const Shares>(collective, std::move(borders));
  });
}

template <class Count>
struct ReduceSum {
  const void* sendbuf;
  void* recvbuf;
  Count count;
  MPI_Datatype datatype;
  MPI_Op op;
  int root;
  MPI_Comm comm;

  std::uint64_t elements(int) const { return elements_of(count); }
  std::optional<SumCall> call(RankOf group) const {
    if (root < 0 || root >= group.ranks || (sendbuf == MPI_IN_PLACE && group.rank != root)) return {};
    return SumCall{sendbuf, group.rank == root ? recvbuf : &nowhere, elements_of(count), datatype, op, comm, true};
  }
  std::shared_ptr<const Shares> shares(RankOf group) const {
    return make_shares(Collective::reduce, group.ranks, [this](int r) { return r < root ? 0 : elements_of(count); });
  }
  void stage(Staged& staged, const Ranks& ranks, Buffers& b) const {
    const Extent extent = extent_of(count, datatype);
    if (ranks.has_part(root)) b.sendbuf = staged.sent(sendbuf, extent);
    if (ranks.is_root(root)) b.recvbuf = staged.received(recvbuf, extent, sendbuf == MPI_IN_PLACE);
  }
  int sum(const NextMpi& next, Buffers b) const {
    return next_reduce(next, b.sendbuf, b.recvbuf, count, datatype, op, root, comm);
  }
  bool keeps_ints(const NextMpi&) const { return false; }
  int start(const NextMpi& next, Buffers b, std::vector<int>&, MPI_Request* request) const {
    return next_ireduce(next, b.sendbuf, b.recvbuf, count, datatype, op, root, comm, request);
  }
};

// What is scattered is counted by the ranks of the own group.
template <class Count>
struct ReduceScatterSum {
  const void* sendbuf;
  void* recvbuf;
  const Count* recvcounts;
  MPI_Datatype datatype;
  MPI_Op op;
  MPI_Comm comm;

  std::uint64_t elements(int ranks) const {
    std::uint64_t sum = 0;
    for (int r = 0; recvcounts && r < ranks; ++r) {
      if (!fits_int(recvcounts[r])) return kForMpi;
      sum += static_cast<std::uint64_t>(recvcounts[r]);
    }
    return sum;
  }
  std::optional<SumCall> call(RankOf group) const {
    if (!recvcounts) return {};
    const bool nothing = sendbuf != MPI_IN_PLACE && recvcounts[group.rank] == 0;
    return SumCall{sendbuf, nothing ? &nowhere : recvbuf, elements(group.ranks), datatype, op, comm, true};
  }
  std::shared_ptr<const Shares> shares(RankOf group) const {
    std::uint64_t end = 0;
    return make_shares(Collective::reduce_scatter, group.ranks,
                       [&](int r) { return end = (r == 0 ? 0 : end) + static_cast<std::uint64_t>(recvcounts[r]); });
  }
  void stage(Staged& staged, const Ranks& ranks, Buffers& b) const {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const Extent all = extent_of(ranks.own, recvcounts, nullptr, datatype);
    b.sendbuf = staged.sent(sendbuf, all);
    b.recvbuf = staged.received(recvbuf, in_place ? all : extent_of(recvcounts[ranks.rank], datatype), in_place);
  }
  int sum(const NextMpi& next, Buffers b) const {
    return next_reduce_scatter(next, b.sendbuf, b.recvbuf, recvcounts, datatype, op, comm);
  }
  bool keeps_ints(const NextMpi& next) const { return needs_ints(next, recvcounts); }
  int start(const NextMpi& next, Buffers b, std::vector<int>& ints, MPI_Request* request) const {
    return next_ireduce_scatter(next, b.sendbuf, b.recvbuf, recvcounts, ints, datatype, op, comm, request);
  }
};

template <class Count>
struct ReduceScatterBlockSum {
  const void* sendbuf;
  void* recvbuf;
  Count recvcount;
  MPI_Datatype datatype;
  MPI_Op op;
  MPI_Comm comm;

  std::uint64_t elements(int ranks) const {
    return fits_int(recvcount) ? elements_of(recvcount) * static_cast<std::uint64_t>(ranks) : kForMpi;
  }
  std::optional<SumCall> call(RankOf group) const {
    return SumCall{sendbuf, recvbuf, elements(group.ranks), datatype, op, comm, true};
  }
  std::shared_ptr<const Shares> shares(RankOf group) const {
    return make_shares(Collective::reduce_scatter, group.ranks,
                       [this](int r) { return static_cast<std::uint64_t>(r + 1) * elements_of(recvcount); });
  }
  void stage(Staged& staged, const Ranks& ranks, Buffers& b) const {
    const bool in_place = sendbuf == MPI_IN_PLACE;
    const Extent all = extent_of(static_cast<long long>(recvcount) * ranks.own, datatype);
    b.sendbuf = staged.sent(sendbuf, all);
    b.recvbuf = staged.received(recvbuf, in_place ? all : extent_of(recvcount, datatype), in_place);
  }
  int sum(const NextMpi& next, Buffers b) const {
    return next_reduce_scatter_block(next, b.sendbuf, b.recvbuf, recvcount, datatype, op, comm);
  }
  bool keeps_ints(const NextMpi&) const { return false; }
  int start(const NextMpi& next, Buffers b, std::vector<int>&, MPI_Request* request) const {
    return next_ireduce_scatter_block(next, b.sendbuf, b.recvbuf, recvcount, datatype, op, comm, request);
  }
};

// Through MPI, staged where that is needed.
template <class Asked>
int pass_shares(const NextMpi& next, const Asked& asked) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) { asked.stage(staged, ranks, b); };
  return hand_on(asked.comm, {asked.sendbuf, asked.recvbuf}, stage, [&](Buffers b) {
    const ReentrancyGuard handed_on(next);
    return asked.sum(next, b);
  });
}

// The same as the program asked for it, which must not block there, for a thread that waits: MPICH 4.0's MPI_Reduce
// fails where the root is in place, MPI_Ireduce does not.
template <class Asked>
int pass_begun_shares(const NextMpi& next, const Asked& asked) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) { asked.stage(staged, ranks, b); };
  return hand_on(asked.comm, {asked.sendbuf, asked.recvbuf}, stage, [&](Buffers b) {
    const ReentrancyGuard handed_on(next);
    std::vector<int> ints;
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = asked.start(next, b, ints, &request);
    return rc == MPI_SUCCESS ? wait_quietly(request) : rc;
  });
}

// A call with shares that Crimp may carry.
struct SharedCall {
  SumCall call;
  Eligibility eligible;
  RankOf group;
};
// Nothing: it is for MPI, on all ranks, and no pass worth counting. Where the way is MPI's all the same, `why` of it
// says so. Makes nothing and asks no other rank; what programs make many of, small ones, ends early.
template <class Asked>
std::optional<SharedCall> shared_call(const Asked& asked, std::uint64_t least) {
  PassReason why = PassReason::type;
  if (!summed_type(asked.datatype, asked.op, &why)) return {};
  int ranks = 0, inter = 0, rank = 0;
  if (PMPI_Comm_size(asked.comm, &ranks) != MPI_SUCCESS || asked.elements(ranks) < least ||
      PMPI_Comm_test_inter(asked.comm, &inter) != MPI_SUCCESS || inter)
    return {};
  PMPI_Comm_rank(asked.comm, &rank);
  const RankOf group{rank, ranks};
  const std::optional<SumCall> call = asked.call(group);
  if (!call) return {};
  const Eligibility eligible = classify(*call, false);
  if (eligible.way != Way::compress) return {};
  return SharedCall{*call, eligible, group};
}

}  // namespace crimp
