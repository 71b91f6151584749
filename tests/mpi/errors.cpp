// Wrong arguments: prints, for each, the error class and where MPI raised it. run.py compares with the output of a run
// without Crimp.
#include "check.hpp"

namespace {

MPI_Comm user;
std::string raised;

void record(MPI_Comm* comm, int* code, ...) {
  int error_class = 0;
  MPI_Error_class(*code, &error_class);
  const char* where = *comm == MPI_COMM_WORLD ? "MPI_COMM_WORLD" : *comm == user ? "the communicator" : "another";
  raised += " raised " + std::to_string(error_class) + " on " + where;
}

void call(const char* what, const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  raised.clear();
  const int rc = MPI_Allreduce(send, receive, count, type, op, comm);
  int error_class = 0;
  MPI_Error_class(rc, &error_class);
  if (check::rank == 0) std::printf("%s: class %d%s\n", what, error_class, raised.c_str());
}

}  // namespace

int main() {
  check::begin();
  MPI_Comm_dup(MPI_COMM_WORLD, &user);
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(record, &handler);
  MPI_Comm_set_errhandler(user, handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);

  constexpr int n = 20000;
  std::vector<float> a(n, 1.0f), b(n);
  float one[1] = {1};
  call("a good call first", a.data(), b.data(), n, MPI_FLOAT, MPI_SUM, user);
#ifdef OMPI_MAJOR_VERSION  // MPICH 4.0 ends by a signal
  call("count -1", a.data(), b.data(), -1, MPI_FLOAT, MPI_SUM, user);
#endif
  call("count 0", a.data(), b.data(), 0, MPI_FLOAT, MPI_SUM, user);
  call("count 0, null buffers", nullptr, nullptr, 0, MPI_FLOAT, MPI_SUM, user);
  call("count 0, null operation", a.data(), b.data(), 0, MPI_FLOAT, MPI_OP_NULL, user);
  call("null datatype", a.data(), b.data(), n, MPI_DATATYPE_NULL, MPI_SUM, user);
  call("null operation", a.data(), b.data(), n, MPI_FLOAT, MPI_OP_NULL, user);
  call("operation of another type", a.data(), b.data(), n, MPI_FLOAT, MPI_BAND, user);
  call("one-sided operation", a.data(), b.data(), n, MPI_FLOAT, MPI_REPLACE, user);
  call("receive in place", a.data(), MPI_IN_PLACE, n, MPI_FLOAT, MPI_SUM, user);
  call("both in place", MPI_IN_PLACE, MPI_IN_PLACE, n, MPI_FLOAT, MPI_SUM, user);
  call("aliased buffers", a.data(), a.data(), n, MPI_FLOAT, MPI_SUM, user);
  call("aliased buffers, one element", one, one, 1, MPI_FLOAT, MPI_SUM, user);
  call("null communicator", a.data(), b.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_NULL);
  call("a good call last", a.data(), b.data(), n, MPI_FLOAT, MPI_SUM, user);
  CHECK(b[0] == static_cast<float>(check::size) && b[n - 1] == b[0]);

  // The same good call after each rank has ignored all that, where codes are returned.
  MPI_Comm_set_errhandler(user, MPI_ERRORS_RETURN);
  call("codes returned, null operation", a.data(), b.data(), n, MPI_FLOAT, MPI_OP_NULL, user);
  call("codes returned, good call", a.data(), b.data(), n, MPI_FLOAT, MPI_SUM, user);
  MPI_Errhandler_free(&handler);
  const int status = check::failures;
  MPI_Finalize();
  return status;
}
