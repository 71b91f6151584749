// Lines on standard error.
#include "core/log.hpp"

#include <doctest/doctest.h>

#include "support/no_memory.hpp"
#include "support/sanitized.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("log") {
  TEST_CASE("a plain line of any length is said where there is no memory" * doctest::skip(kSanitized)) {
    const std::string line(3000, 'x');
    log(LogLevel::warn, "lines are said from now on");  // the first one takes memory
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    CHECK(status_without_memory([&] {
            ::dup2(ends[1], STDERR_FILENO);
            log(LogLevel::warn, line);
          }) == 0);
    ::close(ends[1]);
    std::string said(4096, '\0');
    const ssize_t bytes = ::read(ends[0], said.data(), said.size());
    REQUIRE(bytes >= 0);
    said.resize(static_cast<std::size_t>(bytes));
    ::close(ends[0]);
    CHECK(said == "crimp: " + line + "\n");
  }
}
