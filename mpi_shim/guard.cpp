#include "guard.hpp"

#include <map>
#include <mutex>

#include "comm/runtime.hpp"
#include "core/log.hpp"

namespace crimp {

thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

int raise(MPI_Comm comm, const Error& error) noexcept {
  try {
    Runtime::get().report.error();
    log(LogLevel::error, std::string(text_of(error.code())) + ": " + error.what());
    // A failing PMPI call has raised itself on the caller's communicator already.
    if (error.mpi_code() != MPI_SUCCESS) return error.mpi_code();

    static std::mutex mutex;
    static auto& codes = *new std::map<ErrorCode, int>;
    static int error_class = MPI_ERR_OTHER;
    int code;
    {
      std::lock_guard lock(mutex);
      if (codes.empty()) PMPI_Add_error_class(&error_class);
      auto [it, added] = codes.emplace(error.code(), MPI_ERR_OTHER);
      if (added) PMPI_Add_error_code(error_class, &it->second);
      code = it->second;
      std::string text = std::string("crimp: ") + text_of(error.code()) + ": " + error.what();
      text.resize(std::min<std::size_t>(text.size(), MPI_MAX_ERROR_STRING - 1));
      PMPI_Add_error_string(code, text.c_str());
    }
    PMPI_Comm_call_errhandler(comm == MPI_COMM_NULL ? MPI_COMM_WORLD : comm, code);
    return code;
  } catch (...) {
    return MPI_ERR_OTHER;
  }
}

}  // namespace crimp
