#include "core/file_text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <system_error>

#include "core/descriptor.hpp"

namespace crimp {
namespace {

[[noreturn]] void fail(int error) {
  throw std::runtime_error("cannot be read: " + std::generic_category().message(error));
}

std::string length(std::size_t bytes) {
  constexpr std::size_t kMiB = 1 << 20;
  return bytes % kMiB ? std::to_string(bytes) + " bytes" : std::to_string(bytes / kMiB) + " MiB";
}

}  // namespace

std::string file_text(const std::string& path, std::size_t most, Links links) {
  const bool follow = links == Links::followed;
  struct stat found;
  if ((follow ? ::stat : ::lstat)(path.c_str(), &found) != 0) fail(errno);
  if (S_ISLNK(found.st_mode)) throw std::runtime_error("is a link, which is not followed");
  if (!S_ISREG(found.st_mode)) throw std::runtime_error("is no regular file");
  const auto too_long = [most] { return std::runtime_error("is longer than " + length(most)); };
  if (static_cast<std::uintmax_t>(found.st_size) > most) throw too_long();
  int descriptor;
  do descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW));
  while (descriptor < 0 && errno == EINTR);
  descriptor = beyond_standard(descriptor);
  if (descriptor < 0) fail(errno);
  const struct Closed {
    int descriptor;
    ~Closed() { ::close(descriptor); }
  } closed{descriptor};
  std::string text;
  char part[1 << 14];
  for (;;) {
    const ssize_t n = ::read(descriptor, part, sizeof part);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(errno);
    text.append(part, static_cast<std::size_t>(n));
    if (text.size() > most) throw too_long();  // it grows, or has no size to tell
  }
}

}  // namespace crimp
