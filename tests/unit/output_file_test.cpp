#include "core/output_file.hpp"

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;
namespace fs = std::filesystem;

TEST_SUITE("output_file") {
  namespace {

  // A new directory, and the working directory for as long.
  struct Scratch {
    fs::path before = fs::current_path(), path;
    Scratch() {
      std::string name = (fs::temp_directory_path() / "crimp-test-XXXXXX").string();
      REQUIRE(::mkdtemp(name.data()));
      path = name;
      fs::current_path(path);
    }
    ~Scratch() {
      fs::current_path(before);
      fs::remove_all(path);
    }
    std::size_t files() const { return static_cast<std::size_t>(std::distance(fs::directory_iterator(path), {})); }
  };

  std::string content(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  mode_t mode_of(const fs::path& path) {
    struct stat s;
    REQUIRE(::stat(path.c_str(), &s) == 0);
    return s.st_mode & 07777;
  }

  }  // namespace

  TEST_CASE("a file is there complete or not at all, and nothing else is") {
    const Scratch scratch;
    put("old", "what was there");
    REQUIRE(::chmod("old", 0640) == 0);
    for (const std::string name : {"new", "old"}) {
      const OutputFile file(name);
      CHECK(file.obstacle() == "");
      CHECK(fs::exists(name) == (name == "old"));  // until it is written
      CHECK(scratch.files() == (name == "old" ? 2 : 1));
      CHECK(file.write("the report") == "");
      CHECK(content(name) == "the report");
    }
    CHECK(scratch.files() == 2);
    CHECK(mode_of("old") == 0640);
    const mode_t mask = ::umask(0);
    ::umask(mask);
    CHECK(mode_of("new") == (0666 & ~mask));
  }

  TEST_CASE("of what lay there only this user's permissions are taken over") {
    const Scratch scratch;
    const mode_t mask = ::umask(0);
    ::umask(mask);
    put("mine", "before");
    REQUIRE(::chmod("mine", 06751) == 0);
    CHECK(OutputFile("mine").write("x") == "");
    CHECK(mode_of("mine") == 0751);  // whoever may write to it would otherwise write a program of this user's
    put("planted", "before");
    REQUIRE(::chmod("planted", 04777) == 0);
    if (::geteuid() != 0 || ::chown("planted", 12345, 12345) != 0) return;
    REQUIRE(::chmod("planted", 04777) == 0);
    CHECK(OutputFile("planted").write("x") == "");
    CHECK(mode_of("planted") == (0666 & ~mask));
    struct stat found;
    REQUIRE(::stat("planted", &found) == 0);
    CHECK(found.st_uid == 0);
  }

  TEST_CASE("another user's link in a directory that all may write to is not followed") {
    const Scratch scratch;
    put("victim", "mine");
    fs::create_directory("shared");
    REQUIRE(::chmod("shared", 01777) == 0);
    fs::create_symlink("../victim", "shared/own");
    CHECK(OutputFile("shared/own").write("by a link of this user's") == "");
    CHECK(content("victim") == "by a link of this user's");
    fs::create_symlink("../victim", "shared/planted");
    if (::geteuid() != 0 || ::lchown("shared/planted", 12345, 12345) != 0) return;
    const OutputFile planted("shared/planted");
    for (const std::string& said : {planted.obstacle(), planted.write("x"), append_to_file("shared/planted", "x")}) {
      CHECK(has(said, "Permission denied"));
      CHECK(has(said, "shared/planted"));
    }
    CHECK(content("victim") == "by a link of this user's");
    // What the directory's owner has put there is meant.
    REQUIRE(::chown("shared", 12345, 12345) == 0);
    REQUIRE(::chmod("shared", 01777) == 0);
    CHECK(OutputFile("shared/planted").write("by its owner") == "");
    CHECK(content("victim") == "by its owner");
  }

  TEST_CASE("where the program has closed its standard error, what it prints there is not in a file of Crimp's") {
    const Scratch scratch;
    const pid_t child = ::fork();
    if (child == 0) {
      DIR* const here = ::opendir(".");  // before, so that it is not what is opened in place of standard error
      ::close(STDERR_FILENO);
      std::atomic<bool> done = false, reached = false;
      std::thread prints([&] {
        // Once the file has something in it, it has the descriptor that it keeps.
        bool begun = false;
        struct stat found {};
        while (!done && !reached) {
          ::rewinddir(here);
          while (const dirent* const entry = ::readdir(here))
            begun |= ::fstatat(::dirfd(here), entry->d_name, &found, 0) == 0 && S_ISREG(found.st_mode) &&
                     found.st_size > 4096;
          if (begun) reached = ::write(STDERR_FILENO, "the program's\n", 14) == 14;
        }
      });
      const std::string text(std::size_t{256} << 20, 'x');
      const bool written = OutputFile("r").write(text).empty();
      done = true;
      prints.join();
      ::_exit(!written ? 2 : reached ? 1 : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
  }

  TEST_CASE("a relative name does not follow the working directory") {
    const Scratch scratch;
    const OutputFile file("r.json");
    fs::create_directory("sub");
    fs::current_path("sub");
    CHECK(file.write("x") == "");
    CHECK(content(scratch.path / "r.json") == "x");
    CHECK_FALSE(fs::exists("r.json"));
  }

  TEST_CASE("links are followed, also to what does not exist yet") {
    const Scratch scratch;
    fs::create_directory("sub");
    fs::create_symlink("sub/target", "link");
    CHECK(OutputFile("link").write("x") == "");
    CHECK(fs::is_symlink("link"));
    CHECK(content("sub/target") == "x");
    CHECK(OutputFile("link").write("y") == "");
    CHECK(content("sub/target") == "y");
    fs::create_symlink("loop", "loop");
    CHECK(has(OutputFile("loop").write("x"), "Too many levels"));
  }

  TEST_CASE("what cannot be written says the file and errno's text, at once") {
    const Scratch scratch;
    REQUIRE(::mkfifo("fifo", 0600) == 0);
    fs::create_directory("directory");
    put("file", "");
    const std::pair<std::string, std::string> cases[] = {{"fifo", "FIFO"},
                                                         {"directory", "directory"},
                                                         {"directory/", "directory"},
                                                         {"new/", "Is a directory"},
                                                         {"missing/r.json", "No such file or directory"},
                                                         {"file/r.json", "Not a directory"},
                                                         {std::string(300, 'n'), "File name too long"}};
    for (const auto& refused : cases) {
      const std::string &name = refused.first, &why = refused.second;
      CAPTURE(name);
      const OutputFile file(name);
      for (const std::string& said : {file.obstacle(), file.write("x")}) {
        CHECK(has(said, why));
        CHECK(has(said, (scratch.path / name).string()));
      }
    }
    CHECK(has(append_to_file("fifo", "x"), "FIFO"));
    CHECK(has(append_to_file("missing/r", "x"), "No such file or directory"));
    CHECK(scratch.files() == 3);
    // The longest name there can be has room for a temporary one.
    CHECK(OutputFile(std::string(255, 'n')).write("x") == "");
  }

  TEST_CASE("a full device is an error, and its file stays as it was") {
    CHECK(has(OutputFile("/dev/full").write("x"), "'/dev/full' cannot be written: No space left on device"));
    CHECK(OutputFile("/dev/null").write("x") == "");
    CHECK(has(append_to_file("/dev/full", "x"), "No space left on device"));
  }

  TEST_CASE("a limit of file sizes is an error and not a signal") {
    const Scratch scratch;
    put("r", "what was there");
    rlimit before;
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
    const rlimit small{10, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    const std::string said = OutputFile("r").write(std::string(100, 'x'));
    ::setrlimit(RLIMIT_FSIZE, &before);
    CHECK(has(said, "File too large"));
    CHECK(content("r") == "what was there");
    CHECK(scratch.files() == 1);
  }

  TEST_CASE("/dev/stdout is descriptor 1: nothing is truncated, and a closed pipe is an error and not a signal") {
    const Scratch scratch;
    const int before = ::dup(1);
    const auto with = [&](int descriptor) {
      ::dup2(descriptor, 1);
      const OutputFile file("/dev/stdout");
      const std::string obstacle = file.obstacle(), said = file.write("the report\n");
      ::dup2(before, 1);
      CHECK(obstacle == "");
      return said;
    };
    put("out", "");
    const int out = ::open("out", O_WRONLY);
    REQUIRE(::write(out, "the program's\n", 14) == 14);
    CHECK(with(out) == "");
    ::close(out);
    CHECK(content("out") == "the program's\nthe report\n");
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    ::close(ends[0]);
    CHECK(has(with(ends[1]), "Broken pipe"));
    ::close(ends[1]);
    ::close(before);
    sigset_t pending;
    ::sigpending(&pending);
    CHECK_FALSE(sigismember(&pending, SIGPIPE));
  }

  TEST_CASE("where the directory lets nothing be made the file itself is written") {
    // A superuser may always, so this is tried as nobody, in a child.
    const Scratch scratch;
    put("mine", "a longer text before");
    REQUIRE(::chmod("mine", 0666) == 0);
    REQUIRE(::chmod(".", 0555) == 0);
    const pid_t child = ::fork();
    if (child == 0) {
      if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(3);
      const OutputFile mine("mine"), other("new");
      const bool good = mine.obstacle().empty() && mine.write("x").empty() &&
                        has(other.write("x"), "Permission denied") && has(other.obstacle(), "Permission denied");
      ::_exit(good ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(status == 0);
    ::chmod(".", 0755);
    CHECK(content("mine") == "x");
    CHECK(scratch.files() == 1);
  }

  TEST_CASE("texts are added") {
    const Scratch scratch;
    CHECK(append_to_file("a", "one\n") == "");
    CHECK(append_to_file("a", "two\n") == "");
    CHECK(content("a") == "one\ntwo\n");
  }
}
