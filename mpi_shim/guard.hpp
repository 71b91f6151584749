// The C border. Nothing throws across it, and what MPI calls while we are inside goes straight on.
#pragma once
#include <mpi.h>

#include <exception>
#include <new>

#include "crimp/error.hpp"

namespace crimp {

// True while this thread is inside one of our entry points: a call that comes then is MPI's, a tool's or our own.
extern thread_local bool inside __attribute__((tls_model("initial-exec")));

struct Inside {
  Inside() { inside = true; }
  ~Inside() { inside = false; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
};

// Logs the error, raises it on the communicator (MPI_COMM_NULL: on MPI_COMM_WORLD), returns the code to hand back.
int raise(MPI_Comm comm, const Error& error) noexcept;

// Runs body(), which returns an MPI code.
template <class Body>
int guard(MPI_Comm comm, Body body) noexcept {
  try {
    const Inside here;
    return body();
  } catch (const Error& e) {
    return raise(comm, e);
  } catch (const std::bad_alloc&) {
    return raise(comm, Error(ErrorCode::out_of_memory, "a small allocation failed"));
  } catch (const std::exception& e) {
    return raise(comm, Error(ErrorCode::transport_failed, e.what()));
  }
}

}  // namespace crimp
