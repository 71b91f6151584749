// The functions behind ours by the type of their counts: int, or MPI_Count where the MPI that this is built for has
// such functions (MPI-4.0, 2.5.8). A library built for a newer MPI than it meets has none behind it; then the ones for
// int do the work, and say in MPI's words that they cannot where an int does not hold the count.
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
inline int next_reduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf, const int* recvcounts,
                               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return next.Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm);
}
inline int next_reduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf, int recvcount,
                                     MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  return next.Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm);
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

inline int next_reduce(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count count, MPI_Datatype datatype,
                       MPI_Op op, int root, MPI_Comm comm) {
  if (next.Reduce_c && has_large_counts()) return next.Reduce_c(sendbuf, recvbuf, count, datatype, op, root, comm);
  if (beyond_int(count)) return too_many(comm);
  return next.Reduce(sendbuf, recvbuf, to_int(count), datatype, op, root, comm);
}
inline int next_reduce_scatter_block(const NextMpi& next, const void* sendbuf, void* recvbuf, MPI_Count recvcount,
                                     MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  if (next.Reduce_scatter_block_c && has_large_counts())
    return next.Reduce_scatter_block_c(sendbuf, recvbuf, recvcount, datatype, op, comm);
  if (beyond_int(recvcount)) return too_many(comm);
  return next.Reduce_scatter_block(sendbuf, recvbuf, to_int(recvcount), datatype, op, comm);
}
inline int next_reduce_scatter(const NextMpi& next, const void* sendbuf, void* recvbuf, const MPI_Count* recvcounts,
                               MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  if (next.Reduce_scatter_c && has_large_counts())
    return next.Reduce_scatter_c(sendbuf, recvbuf, recvcounts, datatype, op, comm);
  int ranks = 0;
  if (!recvcounts || comm == MPI_COMM_NULL || PMPI_Comm_size(comm, &ranks) != MPI_SUCCESS)
    return next.Reduce_scatter(sendbuf, recvbuf, nullptr, datatype, op, comm);
  std::vector<int> counts;
  const int rc = guard(comm, [&] {
    insist([&] { counts.reserve(static_cast<std::size_t>(ranks)); });
    return MPI_SUCCESS;
  });
  if (rc != MPI_SUCCESS) return rc;
  for (int r = 0; r < ranks; ++r) {
    if (beyond_int(recvcounts[r])) return too_many(comm);
    counts.push_back(to_int(recvcounts[r]));
  }
  return next.Reduce_scatter(sendbuf, recvbuf, counts.data(), datatype, op, comm);
}
#endif

}  // namespace crimp
