#include "mpi/mpi_error.hpp"

#include <mpi.h>

#include <string>

#include "core/error.hpp"

namespace crimp {
namespace {

std::string text_of_code(int rc) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  PMPI_Error_string(rc, text, &length);
  return text;
}

}  // namespace

void check_mpi(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  throw Error(ErrorCode::transport_failed, std::string(call) + " failed: " + text_of_code(rc), rc);
}

void check_private(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  throw Error(ErrorCode::transport_failed,
              std::string(call) + " failed between some of the ranks: " + text_of_code(rc));
}

}  // namespace crimp
