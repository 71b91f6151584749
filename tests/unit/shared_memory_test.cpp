// Memory shared by processes: through its place, refused where it is another's, and an error rather than a signal where
// there is none.
#include "memory/shared_memory.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "core/error.hpp"

using namespace crimp;

TEST_SUITE("shared_memory") {
  namespace {

  constexpr std::uint64_t kBytes = 100000;

  // Runs `body` under a limit of this process.
  template <class Body>
  void limited(int what, rlim_t to, Body body) {
    rlimit before{};
    REQUIRE(::getrlimit(static_cast<__rlimit_resource>(what), &before) == 0);
    rlimit limit = before;
    limit.rlim_cur = to;
    REQUIRE(::setrlimit(static_cast<__rlimit_resource>(what), &limit) == 0);
    body();
    ::setrlimit(static_cast<__rlimit_resource>(what), &before);
  }

  }  // namespace

  TEST_CASE("what the program prints after it has closed its standard error is not in the memory") {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(STDERR_FILENO);
      ::close(STDIN_FILENO);
      const SharedMemory mine(kBytes);
      _exit(mine.place().descriptor > STDERR_FILENO && ::write(STDERR_FILENO, "x", 1) < 0 ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }

  TEST_CASE("what one process writes another one reads, also after the first has given it back") {
    SharedMemory mine(kBytes);
    CHECK(mine.bytes() == kBytes);
    for (std::uint64_t i = 0; i < kBytes; ++i) REQUIRE(mine.data()[i] == std::byte{0});
    const auto place = mine.place();
    int begin[2], done[2];
    REQUIRE(::pipe(begin) == 0);
    REQUIRE(::pipe(done) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      char c = 0;
      try {
        SharedMemory its(place);
        std::memset(its.data(), 7, kBytes);
        c = 'y';
      } catch (...) {
      }
      _exit(::write(done[1], &c, 1) == 1 ? 0 : 1);
    }
    char c = 0;
    CHECK(::read(done[0], &c, 1) == 1);
    CHECK(c == 'y');
    ::waitpid(child, nullptr, 0);
    for (std::uint64_t i = 0; i < kBytes; ++i) REQUIRE(mine.data()[i] == std::byte{7});
    SharedMemory second(place), moved = std::move(second);
    mine = SharedMemory();
    CHECK(moved.data()[kBytes - 1] == std::byte{7});
    for (const int end : {begin[0], begin[1], done[0], done[1]}) ::close(end);
  }

  TEST_CASE("memory of another process, of another size, or whose door is closed, is refused") {
    SharedMemory mine(kBytes);
    auto place = mine.place();
    ++place.key;
    CHECK_THROWS_WITH_AS(SharedMemory{place}, doctest::Contains("another process here"), Error);
    place = mine.place();
    place.bytes += 4096;
    CHECK_THROWS_AS(SharedMemory{place}, Error);
    place = mine.place();
    place.process = 0;
    CHECK_THROWS_WITH_AS(SharedMemory{place}, doctest::Contains("could not be shared"), Error);
    place = mine.place();
    mine.close_door();
    CHECK_THROWS_AS(SharedMemory{place}, Error);
    CHECK(mine.data() != nullptr);
    CHECK(SharedMemory().bytes() == 0);
  }

  TEST_CASE("where there is none it is an error, not a signal") {
    limited(RLIMIT_FSIZE, 50000,
            [] { CHECK_THROWS_WITH_AS(SharedMemory{kBytes}, doctest::Contains("ulimit -f"), Error); });
    limited(RLIMIT_NOFILE, 3, [] {
      CHECK_THROWS_WITH_AS(SharedMemory{kBytes}, doctest::Contains("100000 bytes of memory to share were not given"),
                           Error);
    });
    CHECK(SharedMemory(kBytes).data() != nullptr);
  }
}
