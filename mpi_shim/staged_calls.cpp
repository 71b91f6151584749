// Calls that are only staged: those whose buffers may be in device memory where MPI cannot take them.
#include "export.hpp"
#include "guard.hpp"
#include "staged.hpp"

namespace crimp {
namespace {

// hand_on(), of a call that may not be the program's.
// Types and counts beside MPI_IN_PLACE are MPI's to ignore: they may be anything.
template <class Stage, class Call>
int pass(const NextMpi& next, MPI_Comm comm, Buffers buffers, Stage stage, Call call) {
  return inside(next) ? call(buffers) : hand_on(comm, buffers, stage, call);
}

// So many elements from each of so many ranks.
Extent extent_of_all(int ranks, long long count, MPI_Datatype type) { return extent_of(count * ranks, type); }

int gather(const NextMpi& next, const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
           MPI_Datatype recvtype, int root, MPI_Comm comm) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (ranks.has_part(root) && sendbuf != MPI_IN_PLACE)
      b.sendbuf = staged.sent(sendbuf, extent_of(sendcount, sendtype));
    if (ranks.is_root(root))
      b.recvbuf = staged.received(recvbuf, extent_of_all(ranks.count, recvcount, recvtype), sendbuf == MPI_IN_PLACE);
  };
  return pass(next, comm, {sendbuf, recvbuf}, stage, [&](Buffers b) {
    return next.Gather(b.sendbuf, sendcount, sendtype, b.recvbuf, recvcount, recvtype, root, comm);
  });
}

int scatter(const NextMpi& next, const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
            int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (ranks.is_root(root)) b.sendbuf = staged.sent(sendbuf, extent_of_all(ranks.count, sendcount, sendtype));
    if (ranks.has_part(root) && recvbuf != MPI_IN_PLACE)
      b.recvbuf = staged.received(recvbuf, extent_of(recvcount, recvtype), false);
  };
  return pass(next, comm, {sendbuf, recvbuf}, stage, [&](Buffers b) {
    return next.Scatter(b.sendbuf, sendcount, sendtype, b.recvbuf, recvcount, recvtype, root, comm);
  });
}

int scatterv(const NextMpi& next, const void* sendbuf, const int* sendcounts, const int* displs, MPI_Datatype sendtype,
             void* recvbuf, int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (ranks.is_root(root)) b.sendbuf = staged.sent(sendbuf, extent_of(ranks.count, sendcounts, displs, sendtype));
    if (ranks.has_part(root) && recvbuf != MPI_IN_PLACE)
      b.recvbuf = staged.received(recvbuf, extent_of(recvcount, recvtype), false);
  };
  return pass(next, comm, {sendbuf, recvbuf}, stage, [&](Buffers b) {
    return next.Scatterv(b.sendbuf, sendcounts, displs, sendtype, b.recvbuf, recvcount, recvtype, root, comm);
  });
}

int allgather(const NextMpi& next, const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (sendbuf != MPI_IN_PLACE) b.sendbuf = staged.sent(sendbuf, extent_of(sendcount, sendtype));
    b.recvbuf = staged.received(recvbuf, extent_of_all(ranks.count, recvcount, recvtype), sendbuf == MPI_IN_PLACE);
  };
  return pass(next, comm, {sendbuf, recvbuf}, stage, [&](Buffers b) {
    return next.Allgather(b.sendbuf, sendcount, sendtype, b.recvbuf, recvcount, recvtype, comm);
  });
}

int allgatherv(const NextMpi& next, const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
               const int* recvcounts, const int* displs, MPI_Datatype recvtype, MPI_Comm comm) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (sendbuf != MPI_IN_PLACE) b.sendbuf = staged.sent(sendbuf, extent_of(sendcount, sendtype));
    b.recvbuf = staged.received(recvbuf, extent_of(ranks.count, recvcounts, displs, recvtype), true);
  };
  return pass(next, comm, {sendbuf, recvbuf}, stage, [&](Buffers b) {
    return next.Allgatherv(b.sendbuf, sendcount, sendtype, b.recvbuf, recvcounts, displs, recvtype, comm);
  });
}

int alltoall(const NextMpi& next, const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
             int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (sendbuf != MPI_IN_PLACE) b.sendbuf = staged.sent(sendbuf, extent_of_all(ranks.count, sendcount, sendtype));
    b.recvbuf = staged.received(recvbuf, extent_of_all(ranks.count, recvcount, recvtype), sendbuf == MPI_IN_PLACE);
  };
  return pass(next, comm, {sendbuf, recvbuf}, stage, [&](Buffers b) {
    return next.Alltoall(b.sendbuf, sendcount, sendtype, b.recvbuf, recvcount, recvtype, comm);
  });
}

int alltoallv(const NextMpi& next, const void* sendbuf, const int* sendcounts, const int* sdispls,
              MPI_Datatype sendtype, void* recvbuf, const int* recvcounts, const int* rdispls, MPI_Datatype recvtype,
              MPI_Comm comm) {
  const auto stage = [&](Staged& staged, const Ranks& ranks, Buffers& b) {
    if (sendbuf != MPI_IN_PLACE)
      b.sendbuf = staged.sent(sendbuf, extent_of(ranks.count, sendcounts, sdispls, sendtype));
    b.recvbuf = staged.received(recvbuf, extent_of(ranks.count, recvcounts, rdispls, recvtype), true);
  };
  return pass(next, comm, {sendbuf, recvbuf}, stage, [&](Buffers b) {
    return next.Alltoallv(b.sendbuf, sendcounts, sdispls, sendtype, b.recvbuf, recvcounts, rdispls, recvtype, comm);
  });
}

}  // namespace

}  // namespace crimp

CRIMP_EXPORT(Gather, gather,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
              MPI_Datatype recvtype, int root, MPI_Comm comm),
             sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm)
CRIMP_EXPORT(Scatter, scatter,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
              MPI_Datatype recvtype, int root, MPI_Comm comm),
             sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm)
CRIMP_EXPORT(Scatterv, scatterv,
             (const void* sendbuf, const int sendcounts[], const int displs[], MPI_Datatype sendtype, void* recvbuf,
              int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm),
             sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype, root, comm)
CRIMP_EXPORT(Allgather, allgather,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
              MPI_Datatype recvtype, MPI_Comm comm),
             sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)
CRIMP_EXPORT(Allgatherv, allgatherv,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, const int recvcounts[],
              const int displs[], MPI_Datatype recvtype, MPI_Comm comm),
             sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm)
CRIMP_EXPORT(Alltoall, alltoall,
             (const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf, int recvcount,
              MPI_Datatype recvtype, MPI_Comm comm),
             sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm)
CRIMP_EXPORT(Alltoallv, alltoallv,
             (const void* sendbuf, const int sendcounts[], const int sdispls[], MPI_Datatype sendtype, void* recvbuf,
              const int recvcounts[], const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm),
             sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts, rdispls, recvtype, comm)
