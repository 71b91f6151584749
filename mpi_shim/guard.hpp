// The C border. Crimp's own work runs in guard(), which makes MPI errors of Crimp's. A call that passes runs outside of
// it: what a user's error handler throws, or leaves by longjmp, goes through our functions as through MPI's, so they
// are not noexcept.
#pragma once
#include <mpi.h>

#include <exception>
#include <new>
#include <optional>

#include "core/error.hpp"
#include "next.hpp"

namespace crimp {

// What this thread does in Crimp. Nothing clears a mark that longjmp has jumped over, so that inside() asks whether its
// frame still is there.
struct Mark {
  const void* frame = nullptr;  // the marking function's; null: nothing
  bool handed_on =
      false;  // to a tool behind us, whose PMPI_x comes back; else Crimp's own work, in which no entry is the program's
};
extern constinit thread_local Mark mark __attribute__((tls_model("initial-exec")));

bool still_inside(const NextMpi& entry, const void* frame);

// Whether the function of ours in whose frame an address of this thread's stack was is no more: it was left by longjmp.
// Asked in a call of the program's (CRIMP_EXPORT).
bool is_left(const void* frame);

// True where a call is not the program's: it goes straight on. `entry`: the name that was called, by what is behind it.
__attribute__((always_inline)) inline bool inside(const NextMpi& entry) {
  return __builtin_expect(mark.frame != nullptr, 0) && still_inside(entry, __builtin_frame_address(0));
}

class ReentrancyGuard {
 public:
  __attribute__((always_inline)) ReentrancyGuard() : outer_(mark) { mark = {__builtin_frame_address(0), false}; }
  // Around a call that is handed on. Where no tool is behind us nothing comes back but what an error handler calls,
  // which is the program's.
  __attribute__((always_inline)) explicit ReentrancyGuard(const NextMpi& next) : outer_(mark) {
    if (next.tool) mark = {__builtin_frame_address(0), true};
  }
  ~ReentrancyGuard() { mark = outer_; }
  ReentrancyGuard(const ReentrancyGuard&) = delete;
  ReentrancyGuard& operator=(const ReentrancyGuard&) = delete;

 private:
  const Mark outer_;
};

// Logs the error, raises it on the communicator (MPI_COMM_NULL: on MPI_COMM_WORLD), returns the code to hand back. Not
// inside guard(): what the error handler throws is the caller's.
// Before MPI_Init and behind MPI_Finalize nothing can be raised: logged, MPI_ERR_OTHER.
// again: it has been logged and counted.
int raise(MPI_Comm comm, const Error& error, bool again = false);
// The same of what there may be no memory to name: MPI_ERR_NO_MEM at the least.
int raise_no_memory(MPI_Comm comm, bool again = false);

// Neither before MPI_Init nor behind MPI_Finalize: most functions of MPI end the program there.
bool has_mpi();
// Throws Error{argument_invalid} then, of that function of crimp.h.
void require_mpi(const char* function);

// Whether the program has an error handler of its own there: what is thrown in one of our own MPI calls may come from
// it.
bool has_handler(MPI_Comm comm);

// What has failed, until it is raised: where nothing is lost if an error handler leaves by longjmp.
struct Failure {
  MPI_Comm comm;               // MPI_COMM_NULL: MPI_COMM_WORLD
  std::optional<Error> error;  // none: no memory, perhaps none to say so either
  int code = MPI_SUCCESS;      // else the failure is MPI's, or has been logged, and has this code
  bool again = false;          // raised before, by a call that left the request as it was

  int raise() const;  // returns the code to hand back
  // In place of raise(), where nobody is there to hear of it: asks for no handler, and the communicator may be no more.
  void say() const noexcept;
};

// Runs body(), which returns an MPI code. What fails is in `failure`, not raised yet.
template <class Body>
int attempt(MPI_Comm comm, std::optional<Failure>& failure, Body body) {
  try {
    const ReentrancyGuard here;
    return body();
  } catch (const Error& e) {
    failure.emplace(Failure{comm, e});
  } catch (const std::bad_alloc&) {
    failure.emplace(Failure{comm, {}});
  } catch (const std::exception& e) {
    if (has_handler(comm)) throw;
    failure.emplace(Failure{comm, Error(ErrorCode::transport_failed, e.what())});
  }
  return MPI_ERR_OTHER;
}

// Runs body(), which returns an MPI code.
template <class Body>
int guard(MPI_Comm comm, Body body) {
  std::optional<Failure> failure;
  const int rc = attempt(comm, failure, body);
  return failure ? failure->raise() : rc;  // out of the catch: a handler may leave by longjmp
}

}  // namespace crimp
