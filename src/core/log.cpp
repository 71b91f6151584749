#include "core/log.hpp"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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

spdlog::logger& logger() {
  // Leaked and not in spdlog's registry: the host program may use spdlog itself, and may finalize MPI from atexit.
  static auto& l = *[] {
    auto* made = new spdlog::logger("crimp", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("crimp: %v");
    made->set_level(spdlog::level::info);
    return made;
  }();
  return l;
}

}  // namespace

void set_log(LogLevel level, int rank) {
  logger().set_level(level_of(level));
  logger().set_pattern(rank > 0 || level == LogLevel::debug ? "crimp (rank " + std::to_string(rank) + "): %v"
                                                            : "crimp: %v");
}

void log(LogLevel level, const std::string& line) {
  const HeldSignals held;
  // Names in it are the program's, or a file's. A line that is plain takes no memory: calls that must go on say some.
  constexpr const char* kKept = "\n\t";
  if (is_plain_text(line, kKept)) logger().log(level_of(level), line);
  else logger().log(level_of(level), plain_text(line, kKept));
}

void log_failure(const char* what, const char* why) noexcept {
  try {
    log(LogLevel::error, std::string(what) + ": " + why);
  } catch (...) {
  }
}

}  // namespace crimp
