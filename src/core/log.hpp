// Lines on standard error, quiet by default. Never per call.
#pragma once
#include <exception>
#include <string>

#include "core/settings.hpp"

namespace crimp {

void set_log(LogLevel level, int rank);  // rank < 0: not known yet
void log(LogLevel level,
         const std::string& line);  // "crimp: line", with the rank in it for warnings and errors of a rank
void log_failure(const char* what,
                 const char* why) noexcept;  // "what: why", an error; nothing where memory lacks even for that

// For what must not throw. Runs work(); an exception becomes log_failure(what, its text). False where there was one.
template <class Work>
bool logged(const char* what, Work work) noexcept {
  try {
    work();
    return true;
  } catch (const std::exception& e) {
    log_failure(what, e.what());
  } catch (...) {
    log_failure(what, "an unknown exception");
  }
  return false;
}

}  // namespace crimp
