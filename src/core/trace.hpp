// Spans of time for CRIMP_TRACE, in the Chrome trace event format that Perfetto opens. Thread-safe; off: one branch per
// span.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace crimp {

using Clock = std::chrono::steady_clock;
inline double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

class Trace {
 public:
  void add(const char* name, std::uint32_t call, std::uint32_t chunk, Clock::time_point begin,
           Clock::time_point end) noexcept;
  // This rank's events, comma separated, no brackets; `origin` is the time called 0, rank becomes the process id.
  std::string events(int rank, Clock::time_point origin) const;

 private:
  struct Span {
    const char* name;  // literal
    std::uint32_t call, chunk;
    Clock::time_point begin, end;
    std::uint64_t thread;
  };
  static constexpr std::size_t kMost =
      1u << 20;  // spans kept; later ones, and those without memory, are dropped and counted
  mutable std::mutex mutex_;
  std::vector<Span> spans_;
  std::uint64_t dropped_ = 0;
};

}  // namespace crimp
