#include "guard.hpp"

#include <dlfcn.h>
#include <unwind.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>

#include "core/log.hpp"
#include "mpi/runtime.hpp"
#include "other_mpi.hpp"

namespace crimp {
namespace {

bool is_own(const void* code) {
  Dl_info own, other;
  return ::dladdr(reinterpret_cast<const void*>(&is_own), &own) && ::dladdr(code, &other) &&
         own.dli_fbase == other.dli_fbase;
}

// Whether an address lies in a frame of ours that is still on the stack. Where frames cannot be followed so far it is
// believed.
bool on_stack(const void* address) {
  struct Walk {
    std::uintptr_t address, code = 0;
    bool found = true;
  } walk{reinterpret_cast<std::uintptr_t>(address)};
  _Unwind_Backtrace(
      [](_Unwind_Context* frame, void* argument) {
        auto& w = *static_cast<Walk*>(argument);
        // What is said here is where a frame begins: the one before reaches up to it.
        if (_Unwind_GetCFA(frame) > w.address) {
          w.found = is_own(reinterpret_cast<const void*>(w.code));
          return _URC_NORMAL_STOP;
        }
        w.code = _Unwind_GetIP(frame);
        return _URC_NO_REASON;
      },
      &walk);
  return walk.found;
}

bool ends_program(MPI_Comm comm) {
  MPI_Errhandler handler;
  if (PMPI_Comm_get_errhandler(comm, &handler) != MPI_SUCCESS) return true;
  bool ends = handler == MPI_ERRORS_ARE_FATAL;
#ifdef MPI_ERRORS_ABORT
  ends = ends || handler == MPI_ERRORS_ABORT;
#endif
  PMPI_Errhandler_free(&handler);
  return ends;
}

// A program that asks for codes and looks at none may raise one in every call: of each kind so many have a line, and
// the one that ends the program.
constexpr int kLinesOfAKind = 8;
std::string line_of(const Error& error) { return std::string(text_of(error.code())) + ": " + error.what(); }
void tell_some(const Error& error) {
  static std::mutex mutex;
  static auto& lines = *new std::map<ErrorCode, int>;
  int line;
  {
    std::lock_guard lock(mutex);
    int& told = lines[error.code()];
    if (told == kLinesOfAKind) return;
    line = ++told;
  }
  log(LogLevel::error,
      line < kLinesOfAKind
          ? line_of(error)
          : line_of(error) + "; further errors of this kind have codes, which MPI_Error_string explains, and no lines");
}
void tell(MPI_Comm comm, const Error& error) {
  if (!has_mpi() || ends_program(comm)) log(LogLevel::error, line_of(error));
  else tell_some(error);
}

// What MPI calls an error of ours; MPI_ERR_OTHER where it gives no code. No lock is held while MPI is asked: a handler
// may leave by longjmp. Of two threads that ask for the same one's answer stays unused.
int mpi_code_of(ErrorCode error) {
  static std::mutex mutex;
  static auto& codes = *new std::map<ErrorCode, int>;
  static std::optional<int> common_class;
  std::optional<int> error_class;
  {
    std::lock_guard lock(mutex);
    if (const auto known = codes.find(error); known != codes.end()) return known->second;
    error_class = common_class;
  }
  if (!error_class) {
    int made = MPI_ERR_OTHER;
    if (PMPI_Add_error_class(&made) != MPI_SUCCESS) return MPI_ERR_OTHER;
    std::lock_guard lock(mutex);
    if (!common_class) common_class = made;
    error_class = common_class;
  }
  int code = MPI_ERR_OTHER;
  if (PMPI_Add_error_code(*error_class, &code) != MPI_SUCCESS) return MPI_ERR_OTHER;
  std::lock_guard lock(mutex);
  return codes.emplace(error, code).first->second;
}

}  // namespace

constinit thread_local Mark mark __attribute__((tls_model("initial-exec")));

bool still_inside(const NextMpi& entry, const void* frame) {
  if (mark.frame <= std::max(frame, entered) || !on_stack(mark.frame)) {
    mark = {};
    return false;
  }
  return !mark.handed_on || entry.pmpi;
}

bool is_left(const void* frame) { return frame <= entered || !on_stack(frame); }

bool has_mpi() {
  if (other_mpi) return false;  // none that can be asked
  int begun = 0, ended = 0;
  PMPI_Initialized(&begun);
  PMPI_Finalized(&ended);
  return begun && !ended;
}

void require_mpi(const char* function) {
  if (other_mpi)
    throw Error(
        ErrorCode::argument_invalid,
        std::string(function) + " of a libcrimp.so for " + kOwnMpi +
            " was called in a program of another MPI; link it with the one for its MPI (pkg-config crimp-mpich, crimp)");
  if (!has_mpi())
    throw Error(ErrorCode::argument_invalid,
                std::string(function) + " was called before MPI_Init or behind MPI_Finalize; legal is between them");
}

bool has_handler(MPI_Comm comm) {
  MPI_Errhandler handler;
  if (PMPI_Comm_get_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, &handler) != MPI_SUCCESS) return false;
  bool own = handler != MPI_ERRORS_ARE_FATAL && handler != MPI_ERRORS_RETURN;
#ifdef MPI_ERRORS_ABORT
  own = own && handler != MPI_ERRORS_ABORT;
#endif
  PMPI_Errhandler_free(&handler);
  return own;
}

int raise(MPI_Comm comm, const Error& error, bool again) {
  if (comm == MPI_COMM_NULL) comm = MPI_COMM_WORLD;
  int code = MPI_ERR_OTHER;
  try {
    if (!again) {
      Runtime::get().report.error();
      tell(comm, error);
    }
    // A failing PMPI call has raised itself on the caller's communicator already.
    if (error.mpi_code() != MPI_SUCCESS) return error.mpi_code();
    if (!has_mpi()) return code;

    code = mpi_code_of(error.code());
    std::string text = std::string("crimp: ") + text_of(error.code()) + ": " + error.what();
    text.resize(std::min<std::size_t>(text.size(), MPI_MAX_ERROR_STRING - 1));
    if (code != MPI_ERR_OTHER) PMPI_Add_error_string(code, text.c_str());
  } catch (const std::exception&) {  // no memory for saying more
  }
  if (has_mpi()) PMPI_Comm_call_errhandler(comm, code);
  return code;
}

int Failure::raise() const {
  if (code == MPI_SUCCESS) return error ? crimp::raise(comm, *error, again) : raise_no_memory(comm, again);
  PMPI_Comm_call_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, code);
  return code;
}

void Failure::say() const noexcept {
  if (!error || again) return;
  try {
    Runtime::get().report.error();
    tell_some(*error);
  } catch (const std::exception&) {  // no memory for saying it
  }
}

int raise_no_memory(MPI_Comm comm, bool again) {
  std::optional<Error> error;
  try {
    error.emplace(ErrorCode::out_of_memory, "a small allocation failed");
  } catch (const std::bad_alloc&) {  // then MPI's own code
  }
  if (error) return raise(comm, *error, again);
  if (has_mpi()) PMPI_Comm_call_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, MPI_ERR_NO_MEM);
  return MPI_ERR_NO_MEM;
}

}  // namespace crimp
