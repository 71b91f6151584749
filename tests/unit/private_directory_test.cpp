// A directory of one user's files: whole or not at all, for nobody else, through no link.
#include "core/private_directory.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>

using namespace crimp;
namespace fs = std::filesystem;

TEST_SUITE("private_directory") {
  namespace {

  struct Scratch {
    fs::path path;
    Scratch() {
      char name[] = "/tmp/crimp-private-XXXXXX";
      path = ::mkdtemp(name);
    }
    ~Scratch() { fs::remove_all(path); }
  };

  std::string write(const PrivateDirectory& to, const std::string& name, const std::string& text) {
    return to.write(name, [&](const PrivateDirectory::Put& put) { put(text.data(), text.size()); });
  }

  std::string read(const PrivateDirectory& from, const std::string& name, std::string* problem = nullptr) {
    std::string why, text;
    if (const auto file = from.open(name, why)) {
      text.resize(file->size());
      CHECK(file->get(text.data(), text.size()));
      CHECK_FALSE(file->get(text.data(), 1));
    }
    if (problem) *problem = why;
    else CHECK(why == "");
    return text;
  }

  std::size_t entries(const fs::path& of) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(of), fs::directory_iterator()));
  }

  }  // namespace

  TEST_CASE("a file is there with mode 0600, in a directory with mode 0700 that was not there") {
    const Scratch scratch;
    CHECK(PrivateDirectory(scratch.path / "no" / "parent").make().find("No such file or directory") !=
          std::string::npos);
    CHECK(PrivateDirectory(scratch.path).make() == "");
    const PrivateDirectory at(scratch.path / "new");
    std::vector<std::string> names{"x"};
    CHECK(at.list(names) == "");
    CHECK(names.empty());
    ::umask(0);
    CHECK(write(at, "a", "first") == "");
    CHECK(write(at, "a", std::string(200000, 'x')) == "");
    ::umask(022);
    CHECK(read(at, "a") == std::string(200000, 'x'));
    struct stat found;
    CHECK(::stat((scratch.path / "new" / "a").c_str(), &found) == 0);
    CHECK((found.st_mode & 07777) == 0600);
    CHECK(::stat((scratch.path / "new").c_str(), &found) == 0);
    CHECK((found.st_mode & 07777) == 0700);
    CHECK(entries(scratch.path / "new") == 1);
    at.remove("a");
    CHECK(entries(scratch.path / "new") == 0);
    at.remove("a");
  }

  TEST_CASE("whatever the umask, the modes are these") {
    for (const mode_t mask : {0177, 0777}) {
      CAPTURE(mask);
      const Scratch scratch;
      const PrivateDirectory at(scratch.path / "new");
      const mode_t before = ::umask(mask);
      const std::string why = write(at, "a", "text");
      ::umask(before);
      CHECK(why == "");
      struct stat found {};
      CHECK(::stat((scratch.path / "new").c_str(), &found) == 0);
      CHECK((found.st_mode & 07777) == 0700);
      CHECK(::stat((scratch.path / "new" / "a").c_str(), &found) == 0);
      CHECK((found.st_mode & 07777) == 0600);
    }
  }

  TEST_CASE("a directory that was there keeps its mode") {
    const Scratch scratch;
    REQUIRE(::chmod(scratch.path.c_str(), 0755) == 0);
    CHECK(write(PrivateDirectory(scratch.path), "a", "text") == "");
    struct stat found {};
    CHECK(::stat(scratch.path.c_str(), &found) == 0);
    CHECK((found.st_mode & 07777) == 0755);
  }

  TEST_CASE("what the program prints after it has closed its standard descriptors is not in the files") {
    for (const int open : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
      CAPTURE(open);
      const Scratch scratch;
      const PrivateDirectory at(scratch.path);
      const pid_t child = ::fork();
      if (child == 0) {
        for (int of = 0; of < 3; ++of)
          if (of != open) ::close(of);
        bool reached = false;
        const std::string why = at.write("a", [&](const PrivateDirectory::Put& put) {
          for (int of = 0; of < 3; ++of)
            if (of != open) reached |= ::write(of, "the program's", 13) >= 0;
          put("text", 4);
        });
        ::_exit(!why.empty() ? 2 : reached ? 1 : 0);
      }
      int status = 0;
      ::waitpid(child, &status, 0);
      CHECK(status == 0);
      CHECK(read(at, "a") == "text");
    }
  }

  TEST_CASE("this user's files are listed, and what else there is apart from them") {
    const Scratch scratch;
    const PrivateDirectory at(scratch.path);
    CHECK(write(at, "a", "text") == "");
    fs::create_symlink("a", scratch.path / "link");
    ::mkfifo((scratch.path / "fifo").c_str(), 0600);
    std::vector<std::string> names;
    CHECK(at.list(names) == "");
    CHECK(names == std::vector<std::string>{"a"});
    if (::geteuid() != 0) return;
    std::ofstream(scratch.path / "theirs") << "x";
    REQUIRE(::chown((scratch.path / "theirs").c_str(), 12345, 12345) == 0);
    CHECK(at.list(names) == "");
    CHECK(names == std::vector<std::string>{"a"});
  }

  TEST_CASE("what cannot be written is a sentence, and what was there stays") {
    const Scratch scratch;
    const PrivateDirectory at(scratch.path);
    CHECK(write(at, "a", "old") == "");
    CHECK(write(PrivateDirectory(scratch.path / "no" / "parent"), "a", "x").find("No such file") != std::string::npos);
    CHECK(write(PrivateDirectory(scratch.path / "a"), "a", "x").find("Not a directory") != std::string::npos);
    CHECK(write(PrivateDirectory(""), "a", "x") != "");
    CHECK_THROWS_AS(static_cast<void>(at.write("a",
                                               [](const PrivateDirectory::Put& put) {
                                                 put("ne", 2);
                                                 throw std::runtime_error("in the middle");
                                               })),
                    std::runtime_error);
    CHECK(read(at, "a") == "old");
    // A full disk, as a limit of file sizes shows it; its signal is held.
    rlimit before;
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit little{100000, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &little);
    const std::string full = write(at, "a", std::string(300000, 'x'));
    ::setrlimit(RLIMIT_FSIZE, &before);
    CHECK(full.find("File too large") != std::string::npos);
    CHECK(read(at, "a") == "old");
    CHECK(entries(scratch.path) == 1);
  }

  TEST_CASE("links, others' files and what is no file are not read") {
    const Scratch scratch;
    const PrivateDirectory at(scratch.path);
    CHECK(write(at, "a", "text") == "");
    fs::create_symlink("a", scratch.path / "link");
    ::mkfifo((scratch.path / "fifo").c_str(), 0600);
    fs::create_directory(scratch.path / "directory");
    std::string why;
    CHECK(read(at, "link", &why) == "");
    CHECK(why.find("is a link") != std::string::npos);
    CHECK(read(at, "fifo", &why) == "");
    CHECK(why.find("no regular file") != std::string::npos);
    CHECK(read(at, "directory", &why) == "");
    CHECK(why != "");
    CHECK(read(at, "none", &why) == "");
    CHECK(why.find("No such file") != std::string::npos);
    ::chmod((scratch.path / "a").c_str(), 0666);
    CHECK(read(at, "a", &why) == "");
    CHECK(why.find("written by others") != std::string::npos);
    ::chmod((scratch.path / "a").c_str(), 0600);
    if (::geteuid() == 0 && ::chown((scratch.path / "a").c_str(), 12345, 12345) == 0) {
      CHECK(read(at, "a", &why) == "");
      CHECK(why.find("another user") != std::string::npos);
    }
  }

  TEST_CASE("a link under the name is replaced, not written through; the directory may be one") {
    const Scratch scratch;
    std::ofstream(scratch.path / "victim") << "mine";
    fs::create_directory(scratch.path / "real");
    fs::create_symlink(scratch.path / "victim", scratch.path / "real" / "a");
    fs::create_symlink("real", scratch.path / "link");
    const PrivateDirectory at(scratch.path / "link");
    CHECK(write(at, "a", "new") == "");
    CHECK(read(at, "a") == "new");
    std::string text;
    std::ifstream(scratch.path / "victim") >> text;
    CHECK(text == "mine");
  }
}
