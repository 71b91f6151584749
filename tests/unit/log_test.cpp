// Lines on standard error.
#include "core/log.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "support/no_memory.hpp"
#include "support/sanitized.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("log") {
  namespace {

  // What a child says, and its status.
  template <class Say>
  std::pair<int, std::string> said_by(const Say& say) {
    log(LogLevel::warn, "lines are said from now on");  // the first one takes memory
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    const int status = say(ends[1]);
    ::close(ends[1]);
    std::string said(4096, '\0');
    const ssize_t bytes = ::read(ends[0], said.data(), said.size());
    REQUIRE(bytes >= 0);
    said.resize(static_cast<std::size_t>(bytes));
    ::close(ends[0]);
    return {status, said};
  }

  }  // namespace

  const std::string line(3000, 'x');

  TEST_CASE("a line goes to standard error whole") {
    const auto [status, said] = said_by([&](int to) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::dup2(to, STDERR_FILENO);
        log(LogLevel::warn, line);
        _exit(0);
      }
      int of_child = -1;
      ::waitpid(child, &of_child, 0);
      return of_child;
    });
    CHECK(status == 0);
    CHECK(said == "crimp: " + line + "\n");
  }

  TEST_CASE("a plain line of any length is said where there is no memory" * doctest::skip(kSanitized)) {
    const auto [status, said] = said_by([&](int to) {
      return status_without_memory([&] {
        ::dup2(to, STDERR_FILENO);
        log(LogLevel::warn, line);
      });
    });
    CHECK(status == 0);
    CHECK(said == "crimp: " + line + "\n");
  }
}
