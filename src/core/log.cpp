#include "core/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>

#include "core/held_signals.hpp"
#include "core/plain_text.hpp"

namespace crimp {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::off: return spdlog::level::off;
    case LogLevel::error: return spdlog::level::err;
    case LogLevel::warn: return spdlog::level::warn;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::debug: return spdlog::level::debug;
  }
  return spdlog::level::info;
}

// What cannot be written is lost.
void put(std::array<iovec, 3> parts) {
  for (std::size_t at = 0; at < parts.size();) {
    const ssize_t written = ::writev(STDERR_FILENO, &parts[at], static_cast<int>(parts.size() - at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return;
    auto left = static_cast<std::size_t>(written);
    for (; at < parts.size() && left >= parts[at].iov_len; ++at) left -= parts[at].iov_len;
    if (at == parts.size()) return;
    parts[at].iov_base = static_cast<char*>(parts[at].iov_base) + left;
    parts[at].iov_len -= left;
  }
}

// Spdlog's own sinks put a line together first, in memory that may be lacking where it is longer than 250 characters.
class StandardError final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void set_prefix(std::string prefix) {
    const std::lock_guard lock(mutex_);
    prefix_ = std::move(prefix);
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    char end = '\n';
    put({{{prefix_.data(), prefix_.size()},
          {const_cast<char*>(message.payload.data()), message.payload.size()},
          {&end, 1}}});
  }
  void flush_() override {}
  std::string prefix_ = "crimp: ";
};

// Leaked and not in spdlog's registry: the host program may use spdlog itself, and may finalize MPI from atexit.
struct Log {
  std::shared_ptr<StandardError> sink = std::make_shared<StandardError>();
  spdlog::logger logger{"crimp", sink};
  static Log& get() {
    static auto& log = *new Log;
    return log;
  }
};

}  // namespace

void set_log(LogLevel level, int rank) {
  Log& log = Log::get();
  log.logger.set_level(level_of(level));
  log.sink->set_prefix(rank > 0 || level == LogLevel::debug ? "crimp (rank " + std::to_string(rank) + "): "
                                                            : "crimp: ");
}

void log(LogLevel level, const std::string& line) {
  const HeldSignals held;
  // Names in it are the program's, or a file's. A line that is plain takes no memory: calls that must go on say some.
  constexpr const char* kKept = "\n\t";
  if (is_plain_text(line, kKept)) Log::get().logger.log(level_of(level), line);
  else Log::get().logger.log(level_of(level), plain_text(line, kKept));
}

void log_failure(const char* what, const char* why) noexcept {
  try {
    log(LogLevel::error, std::string(what) + ": " + why);
  } catch (...) {
  }
}

}  // namespace crimp
