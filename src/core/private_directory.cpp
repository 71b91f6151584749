#include "core/private_directory.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/descriptor.hpp"
#include "core/held_signals.hpp"

namespace crimp {
namespace {

std::string failure(const std::string& path, const char* what, int error) {
  return "'" + path + "' cannot be " + what + ": " + std::generic_category().message(error);
}

// Closed at its end.
class Descriptor {
 public:
  explicit Descriptor(int of) : of_(of) {}
  ~Descriptor() {
    if (of_ >= 0) ::close(of_);
  }
  Descriptor(Descriptor&& other) noexcept : of_(std::exchange(other.of_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return of_; }
  int release() { return std::exchange(of_, -1); }

 private:
  int of_;
};

int open_at(int directory, const char* name, int flags) {
  int of;
  do of = ::openat(directory, name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW, 0600);
  while (of < 0 && errno == EINTR);
  return beyond_standard(of);
}

Descriptor open_directory(const std::string& path) {
  int of;
  do of = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (of < 0 && errno == EINTR);
  return Descriptor(beyond_standard(of));
}

// In few writes, what is put in many parts. The first error stays.
class Writer {
 public:
  explicit Writer(int of) : of_(of) { buffer_.reserve(kBuffer); }
  void put(const void* bytes, std::size_t count) {
    if (error_) return;
    if (buffer_.size() + count > kBuffer) flush();
    const auto* const from = static_cast<const char*>(bytes);
    if (count < kBuffer) buffer_.insert(buffer_.end(), from, from + count);
    else write(from, count);
  }
  void flush() {
    write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }
  int error() const { return error_; }

 private:
  static constexpr std::size_t kBuffer = std::size_t{1} << 16;
  void write(const char* from, std::size_t count) {
    while (count && !error_) {
      const ssize_t n = ::write(of_, from, std::min<std::size_t>(count, std::size_t{1} << 30));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) error_ = errno;
      else from += n, count -= static_cast<std::size_t>(n);
    }
  }
  int of_, error_ = 0;
  std::vector<char> buffer_;
};

class FileSource final : public ByteSource {
 public:
  FileSource(Descriptor of, std::uint64_t size) : of_(std::move(of)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  bool get(void* to, std::size_t bytes) override {
    auto* at = static_cast<char*>(to);
    while (bytes) {
      const ssize_t n = ::read(of_.get(), at, std::min<std::size_t>(bytes, std::size_t{1} << 30));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += n, bytes -= static_cast<std::size_t>(n);
    }
    return true;
  }

 private:
  Descriptor of_;
  std::uint64_t size_;
};

constexpr char kUnfinished[] = ".crimp-";

// Removed at its end, unless it has got its name.
struct Temporary {
  int directory;
  std::string name;
  ~Temporary() {
    if (!name.empty()) ::unlinkat(directory, name.c_str(), 0);
  }
};

}  // namespace

PrivateDirectory::PrivateDirectory(const std::string& path) : path_(path) {
  std::error_code none;  // where there is no working directory any more, the path says so later
  if (const auto absolute = std::filesystem::absolute(path, none); !path.empty() && !none) path_ = absolute.string();
}

std::string PrivateDirectory::make() const {
  if (path_.empty()) return "no directory is named";
  if (::mkdir(path_.c_str(), 0700) == 0) {
    // A umask that takes from this user what others must not have is for programs that make files for others.
    struct stat made;
    if (::lstat(path_.c_str(), &made) == 0 && (made.st_mode & 0700) != 0700)
      ::fchmodat(AT_FDCWD, path_.c_str(), 0700, AT_SYMLINK_NOFOLLOW);
  } else if (errno != EEXIST) {
    return failure(path_, "made", errno);
  }
  return "";
}

std::string PrivateDirectory::write(const std::string& name, const std::function<void(const Put&)>& fill) const {
  const HeldSignals held;
  if (std::string problem = make(); !problem.empty()) return problem;
  const Descriptor directory = open_directory(path_);
  if (directory.get() < 0) return failure(path_, "opened", errno);
  const std::string whole = path_ + "/" + name;

  Temporary temporary{directory.get(), {}};
  auto number = static_cast<unsigned long long>(std::chrono::system_clock::now().time_since_epoch().count());
  int of = -1;
  for (int attempt = 0; attempt < 100; ++attempt, ++number) {
    char made[64];
    std::snprintf(made, sizeof made, "%s%ld-%llx", kUnfinished, static_cast<long>(::getpid()), number);
    of = open_at(directory.get(), made, O_WRONLY | O_CREAT | O_EXCL);
    if (of >= 0) temporary.name = made;
    if (of >= 0 || errno != EEXIST) break;
  }
  if (of < 0) return failure(whole, "written", errno);
  Descriptor file(of);
  if (::fchmod(of, 0600) != 0) {
    // then it has what the umask leaves of that
  }
  Writer writer(of);
  fill([&](const void* bytes, std::size_t count) { writer.put(bytes, count); });
  writer.flush();
  int error = writer.error();
  if (!error && ::fsync(of) != 0 && errno != EINVAL && errno != ENOTSUP) error = errno;
  if (::close(file.release()) != 0 && !error) error = errno;  // where quotas and full servers are noticed late
  if (!error && ::renameat(directory.get(), temporary.name.c_str(), directory.get(), name.c_str()) != 0) error = errno;
  if (error) return failure(whole, "written", error);
  temporary.name.clear();
  ::fsync(directory.get());  // some file systems cannot, and nothing depends on it but what a power failure leaves
  return "";
}

std::string PrivateDirectory::list(std::vector<std::string>& names, std::vector<std::string>* others) const {
  names.clear();
  if (others) others->clear();
  if (path_.empty()) return "no directory is named";
  Descriptor directory = open_directory(path_);
  if (directory.get() < 0) return errno == ENOENT ? "" : failure(path_, "read", errno);
  DIR* const stream = ::fdopendir(directory.get());
  if (!stream) return failure(path_, "read", errno);
  directory.release();
  const std::unique_ptr<DIR, int (*)(DIR*)> closed(stream, &::closedir);
  errno = 0;
  struct stat seen;
  for (; const dirent* entry = ::readdir(stream); errno = 0)
    if (::fstatat(::dirfd(stream), entry->d_name, &seen, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(seen.st_mode) &&
        seen.st_uid == ::geteuid())
      names.emplace_back(entry->d_name);
    else if (others) others->emplace_back(entry->d_name);
  return errno ? failure(path_, "read", errno) : "";
}

namespace {

// As write() makes them: ".crimp-PID-NUMBER".
bool is_unfinished(std::string_view name) {
  if (!name.starts_with(kUnfinished)) return false;
  name.remove_prefix(std::strlen(kUnfinished));
  const std::size_t pid = name.find_first_not_of("0123456789");
  if (pid == 0 || pid == name.npos || name[pid] != '-' || pid + 1 == name.size()) return false;
  return name.find_first_not_of("0123456789abcdef", pid + 1) == name.npos;
}

}  // namespace

void PrivateDirectory::remove_unfinished() const {
  constexpr std::time_t kAbandoned = 24 * 3600;
  std::vector<std::string> names;
  if (!list(names).empty()) return;
  const Descriptor directory = open_directory(path_);
  if (directory.get() < 0) return;
  struct stat seen;
  for (const std::string& name : names)
    if (is_unfinished(name) && ::fstatat(directory.get(), name.c_str(), &seen, AT_SYMLINK_NOFOLLOW) == 0 &&
        ::time(nullptr) - seen.st_mtime > kAbandoned)
      ::unlinkat(directory.get(), name.c_str(), 0);
}

std::unique_ptr<ByteSource> PrivateDirectory::open(const std::string& name, std::string& problem) const {
  const std::string whole = path_ + "/" + name;
  const auto refuse = [&](std::string why) {
    problem = std::move(why);
    return std::unique_ptr<ByteSource>();
  };
  const Descriptor directory = open_directory(path_);
  if (directory.get() < 0) return refuse(failure(path_, "opened", errno));
  Descriptor file(open_at(directory.get(), name.c_str(), O_RDONLY));
  if (file.get() < 0)
    return refuse(errno == ELOOP ? "'" + whole + "' is a link, which is not followed" : failure(whole, "read", errno));
  struct stat found;
  if (::fstat(file.get(), &found) != 0) return refuse(failure(whole, "read", errno));
  if (!S_ISREG(found.st_mode)) return refuse("'" + whole + "' is no regular file");
  if (found.st_uid != ::geteuid()) return refuse("'" + whole + "' belongs to another user, so it is not read");
  if (found.st_mode & (S_IWGRP | S_IWOTH))
    return refuse("'" + whole + "' may be written by others (its mode is not 0600), so it is not read");
  return std::make_unique<FileSource>(std::move(file), static_cast<std::uint64_t>(found.st_size));
}

void PrivateDirectory::remove(const std::string& name) const {
  const Descriptor directory = open_directory(path_);
  if (directory.get() >= 0) ::unlinkat(directory.get(), name.c_str(), 0);
}

}  // namespace crimp
