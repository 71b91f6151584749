// Failures inside a call, injected by CRIMP_FAULT into the test build of the library, or made by ranks that disagree.
//   faults HANDLER WHO [COUNT [CALLS [scattered]]]
// HANDLER: return, handler (a user's) or fatal. WHO gets a code from the second call of five, or from so many from the
// second on: all, none, or one rank's number; `differ`: no fault is needed, the ranks give different counts. Every
// other call, on every rank, succeeds with the right sum. `once`: four calls, none of which fails; MPI sums the first.
// scattered: what fails is an MPI_Reduce_scatter_block.
#include "check.hpp"

using check::rank;

namespace {

int handled = 0, handled_code = 0;
MPI_Comm handled_comm = MPI_COMM_NULL;
void handle(MPI_Comm* comm, int* code, ...) {
  ++handled;
  handled_code = *code;
  handled_comm = *comm;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string handler = argv[1], who = argv[2];
  const int count = argv[3] ? std::atoi(argv[3]) : 20000;
  const bool once = who == "once";
  const unsigned failing = once ? 0 : argv[3] && argv[4] ? static_cast<unsigned>(std::atoi(argv[4])) : 1;
  const bool scattered = argc > 5;
  check::begin();
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  MPI_Errhandler user = MPI_ERRORS_RETURN;
  if (handler == "handler") MPI_Comm_create_errhandler(handle, &user);
  if (handler != "fatal") MPI_Comm_set_errhandler(comm, user);

  std::vector<float> in(static_cast<std::size_t>(count) + 64), out(in.size()), plain(in.size());
  std::vector<int> everyone;
  for (int r = 0; r < check::size; ++r) everyone.push_back(r);
  const bool mine = who == "all" || who == "differ" || who == std::to_string(rank);
  for (unsigned call = 1; call <= 4 + failing; ++call) {
    if (call < 2 || call > 1 + failing) {
      check::sum_floats(comm, everyone, count, call, who == "none" || (once && call == 1));
      continue;
    }
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(i, rank));
    const int n = count + (who == "differ" && rank == check::size - 1 ? 1 : 0);
    const int rc = scattered
                       ? MPI_Reduce_scatter_block(in.data(), out.data(), n / check::size, MPI_FLOAT, MPI_SUM, comm)
                       : MPI_Allreduce(in.data(), out.data(), n, MPI_FLOAT, MPI_SUM, comm);
    CHECK((rc != MPI_SUCCESS) == mine, "code %d", rc);
    if (who == "none") {
      check::native_allreduce(in.data(), plain.data(), count, MPI_FLOAT, MPI_SUM, comm);
      CHECK(out == plain, "not MPI's bits");
    }
    if (handler == "handler")
      CHECK(mine ? handled == 1 && handled_code == rc && handled_comm == comm : handled == 0, "%d times", handled);
    if (rc == MPI_SUCCESS) continue;

    char text[MPI_MAX_ERROR_STRING];
    static int of_this_kind = rc;
    CHECK(rc == of_this_kind, "code %d, and %d before", rc, of_this_kind);
    int length = 0, error_class = 0, *last = nullptr, found = 0;
    MPI_Error_string(rc, text, &length);
    MPI_Error_class(rc, &error_class);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &found);
    CHECK(std::strncmp(text, "crimp: ", 7) == 0 && std::strstr(text, "rank "), "'%s'", text);
    CHECK(error_class > MPI_ERR_LASTCODE && found, "class %d", error_class);
#ifdef OMPI_MAJOR_VERSION  // MPICH's codes are beyond its MPI_LASTUSEDCODE
    CHECK(rc <= *last, "code %d", rc);
#endif
    std::printf("code on rank %d: %s\n", rank, text);
  }
  if (user != MPI_ERRORS_RETURN) MPI_Errhandler_free(&user);
  MPI_Comm_free(&comm);
  check::expected["errors"] = mine ? failing : 0;
  check::expected["calls"] = who == "none" ? 0 : once ? 3 : mine ? 4 : 4 + failing;
  // What is measured is measured after a communicator's first three calls.
  const char* const algorithm = std::getenv("CRIMP_ALGORITHM");
  const int early = who == "none" && algorithm && !std::strcmp(algorithm, "auto") ? 3 : 0;
  check::expected["passed_through.early"] = early;
  check::expected["passed_through.memory"] = who == "none" ? 5 - early : once;
  return check::finish();
}
