// The C interface of include/crimp/crimp.h, its sums (named_sums.cpp) apart.
#include <cstdint>
#include <string>

#include "allreduce.hpp"
#include "core/float_environment.hpp"
#include "crimp/crimp.h"
#include "guard.hpp"
#include "handles.hpp"
#include "mpi/arguments.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"

using namespace crimp;

namespace {

// The communicator's session, for what is said of it; null where its calls pass through.
Session* session_for(MPI_Comm comm, const char* function) {
  require_mpi(function);
  const bool running = ready();
  if (comm == MPI_COMM_NULL)
    throw Error(ErrorCode::argument_invalid, std::string(function) + " was given MPI_COMM_NULL");
  PassReason why = PassReason::off;
  return running ? Runtime::get().session(comm, &why) : nullptr;
}

// In a callback of MPI_Finalize's, when what was kept is gone.
bool too_late() {
  const Runtime& runtime = Runtime::get();
  return runtime.finished() && (runtime.compressing() || runtime.told_codecs.load(std::memory_order_relaxed));
}

}  // namespace

int crimp_set_algorithm(MPI_Comm comm, const char* name) {
  return guard(comm, [&] {
    Session* const session = session_for(comm, "crimp_set_algorithm");
    session ? session->set_algorithm(name) : check_algorithm("the argument of crimp_set_algorithm", name ? name : "");
    return MPI_SUCCESS;
  });
}

int crimp_set_codec(MPI_Comm comm, const char* pattern, const char* spec) {
  return guard(comm, [&] {
    const FloatEnvironment environment;  // parameters are rounded to float32
    Session* const session = session_for(comm, "crimp_set_codec");
    if (!session) {
      check_codec(pattern, spec);
      return MPI_SUCCESS;
    }
    session->set_codec(pattern, spec);
    if (Runtime::get().settings().codec != "none") Runtime::get().told_codecs.store(true, std::memory_order_relaxed);
    return MPI_SUCCESS;
  });
}

int crimp_set_learning_rate(MPI_Comm comm, double rate) {
  return guard(comm, [&] {
    Session* const session = session_for(comm, "crimp_set_learning_rate");
    session ? session->set_learning_rate(rate) : check_learning_rate(rate);
    return MPI_SUCCESS;
  });
}

int crimp_set_extents(MPI_Comm comm, const char* name, uint64_t rows, uint64_t cols) {
  return guard(comm, [&] {
    Session* const session = session_for(comm, "crimp_set_extents");
    session ? session->set_extents(name, rows, cols) : check_extents(name, rows, cols);
    return MPI_SUCCESS;
  });
}

int crimp_set_idle_waits(MPI_Comm comm, int waits) {
  return guard(comm, [&] {
    Session* const session = session_for(comm, "crimp_set_idle_waits");
    if (waits != 0 && waits != 1)
      throw Error(ErrorCode::argument_invalid,
                  "crimp_set_idle_waits was given " + std::to_string(waits) + "; legal is 0 or 1");
    if (session) session->set_idle_waits(waits == 1);
    return MPI_SUCCESS;
  });
}

int crimp_save(MPI_Comm comm, const char* directory) {
  return guard(comm, [&] {
    Session* const session = session_for(comm, "crimp_save");
    if (too_late()) return MPI_ERR_IO;
    return !session || session->save(directory) ? MPI_SUCCESS : MPI_ERR_IO;
  });
}

int crimp_load(MPI_Comm comm, const char* directory, uint64_t* tensors) {
  return guard(comm, [&] {
    if (tensors) *tensors = 0;
    Session* const session = session_for(comm, "crimp_load");
    if (too_late()) return MPI_ERR_NO_SUCH_FILE;
    return !session || session->load(directory, tensors) ? MPI_SUCCESS : MPI_ERR_NO_SUCH_FILE;
  });
}

int crimp_forget(MPI_Comm comm) {
  return guard(comm, [&] {
    require_mpi("crimp_forget");
    if (comm == MPI_COMM_NULL) throw Error(ErrorCode::argument_invalid, "crimp_forget was given MPI_COMM_NULL");
    Runtime::get().forget(comm);
    return MPI_SUCCESS;
  });
}

int crimp_datatype(crimp_dtype dtype, MPI_Datatype* type, MPI_Op* sum) {
  return guard(MPI_COMM_WORLD, [&] {
    if (!type || !sum)
      throw Error(ErrorCode::argument_invalid, std::string("crimp_datatype was given no ") + (type ? "sum" : "type") +
                                                   " (NULL); legal are the places of an MPI_Datatype and of an MPI_Op");
    require_mpi("crimp_datatype");
    const Handles h = handles(dtype);
    *type = h.type;
    *sum = h.sum;
    return MPI_SUCCESS;
  });
}

const char* crimp_version(void) { return CRIMP_VERSION; }
