#include "core/progress.hpp"

#include <cmath>
#include <cstdio>

namespace crimp {
namespace {

template <class... Numbers>
std::string formatted(const char* format, Numbers... numbers) {
  char text[96];
  std::snprintf(text, sizeof text, format, numbers...);
  return text;
}

std::string clock_text(double s) {
  const auto all = static_cast<unsigned long long>(s > 0 ? s : 0);
  return all < 3600 ? formatted("%llu:%02llu", all / 60, all % 60)
                    : formatted("%llu:%02llu:%02llu", all / 3600, all / 60 % 60, all % 60);
}

std::string rate_text(double bytes_per_s) {
  return bytes_per_s >= 1e9 ? formatted("%.2f GB/s", 1e-9 * bytes_per_s) : formatted("%.1f MB/s", 1e-6 * bytes_per_s);
}

std::string duration_text(double s) {
  if (s < 10) return formatted("%.2f s", s);
  return s < 600 ? formatted("%.1f s", s) : formatted("%.0f s", s);
}

// What plain MPI would have taken longer than these calls did, where that is known of any.
std::string saved_text(const TimeRecord& times) {
  const auto &measured = times.plain_measured, &predicted = times.plain_predicted;
  if (measured.calls + predicted.calls == 0) return "";
  const double saved = measured.s - measured.took_s + predicted.s - predicted.took_s;
  return ", " + duration_text(std::fabs(saved)) + (saved < 0 ? " lost" : " saved") +
         (predicted.calls == 0  ? " (measured)"
          : measured.calls == 0 ? " (predicted)"
                                : " (measured, partly predicted)");
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
  if (now.sent > 0)
    text += formatted(": %.1fx less", static_cast<double>(now.bytes_in) / static_cast<double>(now.sent));
  if (s > 0) text += ", " + rate_text(bytes / s);
  return text + saved_text(now.times);
}

}  // namespace crimp
