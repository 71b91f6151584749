// Error handlers of a program that do not return: what the tests of them share.
#pragma once
#include <csetjmp>
#include <stdexcept>

#include "check.hpp"

namespace handlers {

inline std::string how, outcome;  // how: exception, number, longjmp or return
inline int ran = 0;               // times, of the handler
inline std::jmp_buf back;

// In the handler, at its end.
inline void leave_handler() {
  ++ran;
  if (how == "exception") throw std::runtime_error("from the handler");
  if (how == "number") throw 42;
  if (how == "longjmp") std::longjmp(back, 1);
}

// Nothing here has a destructor that longjmp would skip.
template <class Call>
void leave(Call call) {
  if (setjmp(back) != 0) {
    outcome = "left by longjmp";
    return;
  }
  try {
    int error_class = 0;
    MPI_Error_class(call(), &error_class);
    outcome = "returned class " + std::to_string(error_class);
  } catch (const std::runtime_error& e) {
    outcome = std::string("threw ") + e.what();
  } catch (int number) {
    outcome = "threw " + std::to_string(number);
  }
}

inline void expect_outcome() {
  CHECK(ran == 1, "%d times", ran);
  CHECK(how == "exception" ? outcome == "threw from the handler"
        : how == "number"  ? outcome == "threw 42"
        : how == "longjmp" ? outcome == "left by longjmp"
                           : outcome[0] == 'r',
        "%s", outcome.c_str());
}

inline bool has_sum_of(const std::vector<float>& in, const std::vector<float>& out) {
  for (std::size_t i = 0; i < in.size(); ++i)
    if (std::abs(out[i] - static_cast<float>(check::size) * in[i]) > 0.01f) return false;
  return true;
}

}  // namespace handlers
