#include "mpi/own_handles.hpp"

#include <utility>

#include "mpi/mpi_error.hpp"

namespace crimp {

constinit std::mutex OwnHandle::mutex_;
constinit OwnHandle* OwnHandle::all_ = nullptr;

void OwnHandle::made() {
  std::lock_guard lock(mutex_);
  next_ = all_;
  all_ = this;
}

int OwnHandle::free_all(MPI_Comm, int, void*, void*) {
  OwnHandle* one = nullptr;
  {
    std::lock_guard lock(mutex_);
    one = std::exchange(all_, nullptr);
  }
  while (one) std::exchange(one, one->next_)->free();
  return MPI_SUCCESS;
}

void OwnHandle::free_in_finalize() {
  int keyval = MPI_KEYVAL_INVALID;
  check_mpi(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &free_all, &keyval, nullptr), "MPI_Comm_create_keyval");
  check_mpi(PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, nullptr), "MPI_Comm_set_attr");
  check_mpi(PMPI_Comm_free_keyval(&keyval), "MPI_Comm_free_keyval");
}

// Of threads that make one at once the first one's stays.
MPI_Datatype OwnType::get() {
  MPI_Datatype known = type_.load(std::memory_order_acquire);
  if (known != MPI_DATATYPE_NULL) return known;
  MPI_Datatype mine;
  check_mpi(PMPI_Type_contiguous(count_, of_, &mine), "MPI_Type_contiguous");
  check_mpi(PMPI_Type_commit(&mine), "MPI_Type_commit");
  if (type_.compare_exchange_strong(known, mine)) return made(), mine;
  PMPI_Type_free(&mine);
  return known;
}

void OwnType::free() {
  MPI_Datatype type = type_.exchange(MPI_DATATYPE_NULL);
  if (type != MPI_DATATYPE_NULL) PMPI_Type_free(&type);
}

MPI_Op OwnOp::get() {
  MPI_Op known = op_.load(std::memory_order_acquire);
  if (known != MPI_OP_NULL) return known;
  MPI_Op mine;
  check_mpi(PMPI_Op_create(function_, 1, &mine), "MPI_Op_create");
  if (op_.compare_exchange_strong(known, mine)) return made(), mine;
  PMPI_Op_free(&mine);
  return known;
}

void OwnOp::free() {
  MPI_Op op = op_.exchange(MPI_OP_NULL);
  if (op != MPI_OP_NULL) PMPI_Op_free(&op);
}

}  // namespace crimp
