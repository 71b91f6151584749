#include "mpi/own_handles.hpp"

#include "mpi/mpi_transport.hpp"

namespace crimp {

constinit std::mutex OwnHandle::mutex_;
constinit OwnHandle* OwnHandle::all_ = nullptr;

void OwnHandle::insist() {
  if (made()) return;
  std::lock_guard lock(mutex_);
  if (made()) return;
  make();
  next_ = all_;
  all_ = this;
  made_.store(true, std::memory_order_release);
}

int OwnHandle::free_all(MPI_Comm, int, void*, void*) noexcept {
  std::lock_guard lock(mutex_);
  for (OwnHandle* one = all_; one; one = one->next_) {
    one->made_.store(false, std::memory_order_relaxed);
    one->free();
  }
  all_ = nullptr;
  return MPI_SUCCESS;
}

void OwnHandle::free_in_finalize() {
  int keyval = MPI_KEYVAL_INVALID;
  check_mpi(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &free_all, &keyval, nullptr), "MPI_Comm_create_keyval");
  check_mpi(PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, nullptr), "MPI_Comm_set_attr");
  check_mpi(PMPI_Comm_free_keyval(&keyval), "MPI_Comm_free_keyval");
}

void OwnType::make() {
  check_mpi(PMPI_Type_contiguous(count_, of_, &type_), "MPI_Type_contiguous");
  check_mpi(PMPI_Type_commit(&type_), "MPI_Type_commit");
}
void OwnType::free() noexcept { PMPI_Type_free(&type_); }

void OwnOp::make() { check_mpi(PMPI_Op_create(function_, 1, &op_), "MPI_Op_create"); }
void OwnOp::free() noexcept { PMPI_Op_free(&op_); }

}  // namespace crimp
