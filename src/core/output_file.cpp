#include "core/output_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "core/clock.hpp"
#include "core/descriptor.hpp"
#include "core/held_signals.hpp"

namespace crimp {
namespace {

namespace fs = std::filesystem;

std::string failure(const std::string& path, const std::string& why) {
  return "'" + path + "' cannot be written: " + why;
}
std::string failure(const std::string& path, int error) {
  return failure(path, std::generic_category().message(error));
}

// All of the text; false, with errno. A terminal that takes nothing more gets a few seconds.
bool write_all(int descriptor, std::string_view text) {
  using namespace std::chrono_literals;
  for (auto until = Clock::now() + 2s; !text.empty();) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) {
      pollfd room{descriptor, POLLOUT, 0};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      if (left > 0ms && ::poll(&room, 1, static_cast<int>(left.count())) != 0)
        continue;  // there is room, or a signal came
      errno = EAGAIN;
    }
    if (n < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
    until = Clock::now() + 2s;
  }
  return true;
}

// O_NONBLOCK: opening a FIFO waits for a reader, a terminal line for its carrier. Regular files do not care.
int open_quickly(const std::string& path, int flags) {
  int descriptor;
  do descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | flags, 0666);
  while (descriptor < 0 && errno == EINTR);
  return beyond_standard(descriptor);
}

const char* refusal(mode_t mode) {
  if (S_ISDIR(mode)) return "it is a directory";
  if (S_ISFIFO(mode)) return "it is a FIFO, and writing would wait for a reader; give a regular file";
  if (S_ISSOCK(mode)) return "it is a socket; give a regular file";
  if (S_ISBLK(mode)) return "it is a block device; give a regular file";
  return nullptr;
}

// Where a link leads. Empty: there is none at the path (errno 0), or it is not to be followed: another user's in a
// directory that all may write to, as the kernel has it (fs.protected_symlinks) of those that it follows itself. Link
// and owner are of one moment.
std::string link_target(const fs::path& path) {
  const int link = beyond_standard(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat found, around;
  char to[PATH_MAX];
  ssize_t n = -1;
  int error = 0;
  if (link >= 0 && ::fstat(link, &found) == 0 && S_ISLNK(found.st_mode)) {
    const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
    const bool shared =
        ::stat(directory.c_str(), &around) != 0 || (around.st_mode & S_ISVTX && around.st_mode & S_IWOTH);
    if (shared && found.st_uid != ::geteuid() && found.st_uid != around.st_uid) error = EACCES;
    else n = ::readlinkat(link, "", to, sizeof to);
  }
  if (link >= 0) ::close(link);
  errno = error;
  return std::string(to, n > 0 ? static_cast<std::size_t>(n) : 0);
}

// What is at a path, behind all links: what is renamed must lie beside the file, not beside a link to it.
struct Place {
  std::string path;
  bool exists = false, device = false;
  int follow = O_NOFOLLOW;     // what opening it takes: all links are behind it but those of /proc
  std::optional<mode_t> mode;  // of a regular file of this user's
  std::string obstacle;        // why nothing can be written there

  explicit Place(const std::string& from) : path(from) {
    std::error_code none;
    struct stat found;
    for (int links = 0; links < 40; ++links) {
      const fs::path to = link_target(path);
      if (errno == EACCES) {
        obstacle = failure(from, EACCES);
        return;
      }
      const fs::path next = to.is_absolute() ? to : fs::path(path).parent_path() / to;
      if (to.empty()) break;
      if (fs::exists(path, none) && !fs::exists(next, none)) {  // /proc's to what has no name
        follow = 0;
        break;
      }
      path = next.string();
    }
    if (::stat(path.c_str(), &found) == 0) {
      exists = true;
      if (S_ISREG(found.st_mode) && found.st_uid == ::geteuid()) mode = found.st_mode & 0777;
      device = S_ISCHR(found.st_mode);
      if (const char* why = refusal(found.st_mode)) obstacle = failure(from, why);
    } else if (errno != ENOENT) {
      obstacle = failure(from, errno);
    } else if (path.empty() || path.back() == '/') {
      obstacle = failure(from, EISDIR);
    }
  }
};

// The directory, or the file's being mounted or another user's, forbids what writing in place may do all the same.
bool may_be_written_in_place(int error) {
  return error == EACCES || error == EPERM || error == EROFS || error == EBUSY || error == EXDEV;
}

// A new file beside the path; -1, with errno. Its name does not contain the other's, which may be as long as names can
// be.
int make_temporary(const std::string& path, std::string& name) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  auto number = static_cast<unsigned long long>(std::chrono::system_clock::now().time_since_epoch().count());
  int descriptor = -1;
  for (int attempt = 0; attempt < 100; ++attempt, ++number) {
    char last[64];
    std::snprintf(last, sizeof last, ".crimp-%ld-%llx", static_cast<long>(::getpid()), number);
    name = directory + last;
    descriptor = open_quickly(name, O_CREAT | O_EXCL);
    if (descriptor >= 0 || errno != EEXIST) break;
  }
  return descriptor;
}

std::string write_in_place(const Place& place, std::string_view text) {
  const int descriptor = open_quickly(place.path, place.follow);
  if (descriptor < 0) return failure(place.path, errno);
  bool good = (place.device || ::ftruncate(descriptor, 0) == 0) && write_all(descriptor, text);
  int error = errno;
  if (::close(descriptor) != 0 && good) good = false, error = errno;
  return good ? "" : failure(place.path, error);
}

}  // namespace

OutputFile::OutputFile(const std::string& name) : path_(name) {
  if (name == "/dev/stdout") descriptor_ = STDOUT_FILENO;
  if (name == "/dev/stderr") descriptor_ = STDERR_FILENO;
  std::error_code none;  // where there is no working directory any more, the name says so later
  if (const fs::path absolute = fs::absolute(name, none); !none) path_ = absolute.string();
}

bool OutputFile::is(const OutputFile& other) const {
  if (descriptor_ >= 0 || other.descriptor_ >= 0) return false;
  const Place mine(path_), theirs(other.path_);
  std::error_code none;
  return !mine.device && fs::weakly_canonical(mine.path, none) == fs::weakly_canonical(theirs.path, none);
}

std::string OutputFile::obstacle() const {
  if (descriptor_ >= 0) return ::fcntl(descriptor_, F_GETFD) < 0 ? failure(path_, errno) : "";
  const Place place(path_);
  if (!place.obstacle.empty()) return place.obstacle;
  int error = 0;
  if (!place.device) {
    std::string temporary;
    const int descriptor = make_temporary(place.path, temporary);
    if (descriptor >= 0) {
      ::close(descriptor);
      ::unlink(temporary.c_str());
      return "";
    }
    error = errno;
    if (!place.exists || !may_be_written_in_place(error)) return failure(path_, error);
  }
  const int descriptor = open_quickly(place.path, place.follow);
  if (descriptor < 0) return failure(path_, errno);
  ::close(descriptor);
  return "";
}

std::string OutputFile::write(std::string_view text) const {
  const HeldSignals held;
  if (descriptor_ >= 0) return write_all(descriptor_, text) ? "" : failure(path_, errno);
  const Place place(path_);
  if (!place.obstacle.empty()) return place.obstacle;
  if (place.device) return write_in_place(place, text);
  std::string temporary;
  const int descriptor = make_temporary(place.path, temporary);
  int error = errno;
  if (descriptor >= 0) {
    if (place.mode && ::fchmod(descriptor, *place.mode) != 0) {
      // then it has the mode that new files have
    }
    bool good = write_all(descriptor, text);
    error = errno;
    if (::close(descriptor) != 0 && good)
      good = false, error = errno;  // where quotas and full servers are noticed late
    if (good && ::rename(temporary.c_str(), place.path.c_str()) == 0) return "";
    if (good) error = errno;
    ::unlink(temporary.c_str());
    if (!good) return failure(path_, error);
  }
  return place.exists && may_be_written_in_place(error) ? write_in_place(place, text) : failure(path_, error);
}

std::string append_to_file(const std::string& name, std::string_view text) {
  const HeldSignals held;
  const Place place(name);
  if (!place.obstacle.empty()) return place.obstacle;
  const int descriptor = open_quickly(place.path, place.follow | O_APPEND | O_CREAT);
  if (descriptor < 0) return failure(name, errno);
  bool good = write_all(descriptor, text);
  int error = errno;
  if (::close(descriptor) != 0 && good) good = false, error = errno;
  return good ? "" : failure(name, error);
}

}  // namespace crimp
