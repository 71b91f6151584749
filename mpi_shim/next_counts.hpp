// The functions behind ours by the type of their counts: int, or MPI_Count where the MPI that this is built for has
// such functions (MPI-4.0, 2.5.8). A library built for a newer MPI than it meets has none behind it; then the ones for
// int do the work, and what an int does not hold is an error of class MPI_ERR_COUNT.
#pragma once
#include <limits>
#include <vector>

#include "core/reserve.hpp"
#include "guard.hpp"
#include "mpi/large_counts.hpp"
#include "next.hpp"

namespace crimp {

template <class Count>
constexpr bool fits_int(Count count) {
  return count >= 0 && count <= std::numeric_limits<int>::max();
}

inline int next_reduce(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
                       MPI_Op op, int root, MPI_Comm comm) {
  return next.Reduce(sendbuf, recvbuf, count, datatype, op, root, comm);
}
inline int next_ireduce(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype,
                        MPI_Op op, int root, MPI_Comm comm, MPI_Request* request) {
  return next.Ireduce(sendbuf, recvbuf, count, datatype, op, root, comm, request);
}
inline int next_reduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf, int recvcount,
                                     MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return next.Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm);
}
inline int next_ireduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf, int recvcount,
                                      MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return next.Ireduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm, request);
}
inline int next_reduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf, const int* recvcounts,
                               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return next.Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm);
}
// ints: the counts once more, where they have to be others than the program's; they are MPI's until the request is
// complete.
constexpr bool needs_ints(const NextMpi&, const int*) { return false; }
inline int next_ireduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf, const int* recvcounts,
                                std::vector<int>&, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                MPI_Request* request) {
  return next.Ireduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm, request);
}

#if MPI_VERSION >= 4
// What an MPI says that cannot count so far. (MPICH 4.0 does not look at negative counts: it must not get one instead.)
inline int too_many(MPI_Comm comm) {
  PMPI_Comm_call_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_COUNT);
  return MPI_ERR_COUNT;
}
constexpr bool beyond_int(MPI_Count count) { return count > std::numeric_limits<int>::max(); }
// Of one that is not beyond: a negative one stays negative.
constexpr int to_int(MPI_Count count) { return count < 0 ? -1 : static_cast<int>(count); }

// call(function, count) of the one that is there.
template <class Large, class Small, class Call>
int by_count(Large large, Small small, MPI_Count count, MPI_Comm comm, Call call) {
  if (large && has_large_counts()) return call(large, count);
  return beyond_int(count) ? too_many(comm) : call(small, to_int(count));
}
inline int next_reduce(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                       MPI_Op op, int root, MPI_Comm comm) {
  return by_count(next.Reduce_c, next.Reduce, count, comm,
                  [&](auto function, auto n) { return function(sendbuf, recvbuf, n, datatype, op, root, comm); });
}
inline int next_ireduce(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                        MPI_Op op, int root, MPI_Comm comm, MPI_Request* request) {
  return by_count(next.Ireduce_c, next.Ireduce, count, comm, [&](auto function, auto n) {
    return function(sendbuf, recvbuf, n, datatype, op, root, comm, request);
  });
}
inline int next_reduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count recvcount,
                                     MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return by_count(next.Reduce_scatter_block_c, next.Reduce_scatter_block, recvcount, comm,
                  [&](auto function, auto n) { return function(sendbuf, recvbuf, n, datatype, op, comm); });
}
inline int next_ireduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count recvcount,
                                      MPI_Datatype datatype, MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return by_count(next.Ireduce_scatter_block_c, next.Ireduce_scatter_block, recvcount, comm,
                  [&](auto function, auto n) { return function(sendbuf, recvbuf, n, datatype, op, comm, request); });
}

// Of each rank. What MPI is to judge leaves `to` empty.
inline int to_ints(const MPI_Count* counts, MPI_Comm comm, std::vector<int>& to) {
  int ranks = 0;
  if (!counts || comm == MPI_COMM_NULL || PMPI_Comm_size(comm, &ranks) != MPI_SUCCESS) return MPI_SUCCESS;
  const int rc = guard(comm, [&] {
    insist([&] { to.reserve(static_cast<std::size_t>(ranks)); });
    return MPI_SUCCESS;
  });
  for (int r = 0; r < ranks && rc == MPI_SUCCESS; ++r) {
    if (beyond_int(counts[r])) return too_many(comm);
    to.push_back(to_int(counts[r]));
  }
  return rc;
}
inline int next_reduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf, const MPI_Count* recvcounts,
                               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  if (next.Reduce_scatter_c && has_large_counts())
    return next.Reduce_scatter_c(sendbuf, recvbuf, recvcounts, datatype, op, comm);
  std::vector<int> ints;
  if (const int rc = to_ints(recvcounts, comm, ints); rc != MPI_SUCCESS) return rc;
  return next.Reduce_scatter(sendbuf, recvbuf, ints.empty() ? nullptr : ints.data(), datatype, op, comm);
}
inline bool needs_ints(const NextMpi& next, const MPI_Count*) {
  return !(next.Ireduce_scatter_c && has_large_counts());
}
inline int next_ireduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf, const MPI_Count* recvcounts,
                                std::vector<int>& ints, MPI_Datatype datatype, MPI_Op op, MPI_Comm comm,
                                MPI_Request* request) {
  if (!needs_ints(next, recvcounts))
    return next.Ireduce_scatter_c(sendbuf, recvbuf, recvcounts, datatype, op, comm, request);
  if (const int rc = to_ints(recvcounts, comm, ints); rc != MPI_SUCCESS) return rc;
  return next.Ireduce_scatter(sendbuf, recvbuf, ints.empty() ? nullptr : ints.data(), datatype, op, comm, request);
}
#endif

}  // namespace crimp
