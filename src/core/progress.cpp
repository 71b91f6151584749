#include "core/progress.hpp"

#include <fmt/format.h>

#include <cmath>

namespace crimp {
namespace {

std::string clock_text(double s) {
  const auto all = static_cast<unsigned long long>(s > 0 ? s : 0);
  return all < 3600 ? fmt::format("{}:{:02}", all / 60, all % 60)
                    : fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

std::string rate_text(double bytes_per_s) {
  return bytes_per_s >= 1e9 ? fmt::format("{:.2f} GB/s", 1e-9 * bytes_per_s)
                            : fmt::format("{:.1f} MB/s", 1e-6 * bytes_per_s);
}

std::string duration_text(double s) {
  if (s < 10) return fmt::format("{:.2f} s", s);
  return s < 600 ? fmt::format("{:.1f} s", s) : fmt::format("{:.0f} s", s);
}

// What plain MPI would have taken longer than these calls did, where that is known of any. Calls that MPI carried
// itself are measured, too: alone they save nothing, and fewer than those that are predicted do not speak for them.
std::string saved_text(const TimeRecord& times) {
  const auto &measured = times.plain_measured, &predicted = times.plain_predicted;
  const bool is_measured = measured.calls >= predicted.calls && measured.s != measured.own_s;
  if (!is_measured && predicted.calls == 0) return "";
  // A prediction may be wrong by a large factor: it is no part of what was measured.
  const TimeRecord::Otherwise& known = is_measured ? measured : predicted;
  const double saved = known.s - known.own_s;
  return ", " + duration_text(std::fabs(saved)) + (saved < 0 ? " lost" : " saved") +
         (is_measured ? " (measured)" : " (predicted)");
}

}  // namespace

std::string progress_text(const JobProgress& now, const JobProgress& before, double since_start_s) {
  std::string text = clock_text(since_start_s) + ", ";
  text += std::to_string(now.compressed) + (now.compressed == 1 ? " call" : " calls") + " compressed";
  if (now.passed) text += ", " + std::to_string(now.passed) + " passed";
  if (now.compressed == 0) return text;
  const bool since = now.bytes_in > before.bytes_in && now.calls_s > before.calls_s;
  const double bytes = static_cast<double>(since ? now.bytes_in - before.bytes_in : now.bytes_in);
  const double s = since ? now.calls_s - before.calls_s : now.calls_s;
  if (now.bytes_in > 0 && now.sent > 0)
    text += fmt::format(": {:.1f}x less", static_cast<double>(now.bytes_in) / static_cast<double>(now.sent));
  if (bytes > 0 && s > 0) text += ", " + rate_text(bytes / s);
  return text + saved_text(now.times);
}

}  // namespace crimp
