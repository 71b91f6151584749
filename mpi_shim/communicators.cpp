// Calls that make and free intracommunicators, where lanes are opened and closed (progress.hpp).
#include "export.hpp"
#include "guard.hpp"
#include "progress.hpp"
#include "requests.hpp"

namespace crimp {
namespace {

template <class Make>
int made(const NextMpi& next, MPI_Comm* comm, Make make) {
  if (inside(next)) return make();
  int rc;
  {
    const ReentrancyGuard handed_on(next);
    rc = make();
  }
  if (rc != MPI_SUCCESS || !comm || *comm == MPI_COMM_NULL) return rc;
  return guard(*comm, [&] { return open_lane(*comm), MPI_SUCCESS; });
}

int comm_dup(const NextMpi& next, MPI_Comm comm, MPI_Comm* to) {
  return made(next, to, [&] { return next.Comm_dup(comm, to); });
}
int comm_dup_with_info(const NextMpi& next, MPI_Comm comm, MPI_Info info, MPI_Comm* to) {
  return made(next, to, [&] { return next.Comm_dup_with_info(comm, info, to); });
}
int comm_create(const NextMpi& next, MPI_Comm comm, MPI_Group group, MPI_Comm* to) {
  return made(next, to, [&] { return next.Comm_create(comm, group, to); });
}
int comm_create_group(const NextMpi& next, MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* to) {
  return made(next, to, [&] { return next.Comm_create_group(comm, group, tag, to); });
}
int comm_split(const NextMpi& next, MPI_Comm comm, int color, int key, MPI_Comm* to) {
  return made(next, to, [&] { return next.Comm_split(comm, color, key, to); });
}
int comm_split_type(const NextMpi& next, MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* to) {
  return made(next, to, [&] { return next.Comm_split_type(comm, type, key, info, to); });
}
int cart_create(const NextMpi& next, MPI_Comm comm, int dims, const int* extents, const int* periods, int reorder,
                MPI_Comm* to) {
  return made(next, to, [&] { return next.Cart_create(comm, dims, extents, periods, reorder, to); });
}
int cart_sub(const NextMpi& next, MPI_Comm comm, const int* remain, MPI_Comm* to) {
  return made(next, to, [&] { return next.Cart_sub(comm, remain, to); });
}

// Ahead of MPI, behind which another communicator may have the handle.
void leave(const MPI_Comm* comm) {
  if (!comm || *comm == MPI_COMM_NULL) return;
  if (Requests::any()) Requests::get().freed(*comm);
  guard(*comm, [&] { return close_lane(*comm), MPI_SUCCESS; });
}

int comm_free(const NextMpi& next, MPI_Comm* comm) {
  if (!inside(next)) leave(comm);
  return next.Comm_free(comm);
}
int comm_disconnect(const NextMpi& next, MPI_Comm* comm) {
  if (!inside(next)) leave(comm);
  return next.Comm_disconnect(comm);
}

}  // namespace
}  // namespace crimp

CRIMP_EXPORT(Comm_dup, comm_dup, (MPI_Comm comm, MPI_Comm* to), comm, to)
CRIMP_EXPORT(Comm_dup_with_info, comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm* to), comm, info, to)
CRIMP_EXPORT(Comm_create, comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm* to), comm, group, to)
CRIMP_EXPORT(Comm_create_group, comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* to), comm, group,
             tag, to)
CRIMP_EXPORT(Comm_split, comm_split, (MPI_Comm comm, int color, int key, MPI_Comm* to), comm, color, key, to)
CRIMP_EXPORT(Comm_split_type, comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* to), comm,
             type, key, info, to)
CRIMP_EXPORT(Cart_create, cart_create,
             (MPI_Comm comm, int dims, const int extents[], const int periods[], int reorder, MPI_Comm* to), comm, dims,
             extents, periods, reorder, to)
CRIMP_EXPORT(Cart_sub, cart_sub, (MPI_Comm comm, const int remain[], MPI_Comm* to), comm, remain, to)
CRIMP_EXPORT(Comm_free, comm_free, (MPI_Comm * comm), comm)
CRIMP_EXPORT(Comm_disconnect, comm_disconnect, (MPI_Comm * comm), comm)
