// What fails on a communicator meanwhile is returned, and may not reach the program's error handler, which by default
// ends the job. For communicators that no other thread of the program uses now: they would meet this handler.
#pragma once
#include <mpi.h>

namespace crimp {

class ErrorsReturn {
 public:
  explicit ErrorsReturn(MPI_Comm comm) : comm_(comm) {
    had_ = PMPI_Comm_get_errhandler(comm_, &before_) == MPI_SUCCESS;
    PMPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  }
  ~ErrorsReturn() {
    if (!had_) return;
    PMPI_Comm_set_errhandler(comm_, before_);
    PMPI_Errhandler_free(&before_);
  }
  ErrorsReturn(const ErrorsReturn&) = delete;
  ErrorsReturn& operator=(const ErrorsReturn&) = delete;

 private:
  const MPI_Comm comm_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;
  bool had_;
};

}  // namespace crimp
