#include "report/finding.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace crimp::tools {
namespace {

const CallSums& of(const std::map<std::string, CallSums>& sums, const char* name) {
  static const CallSums none;
  const auto found = sums.find(name);
  return found == sums.end() ? none : found->second;
}

}  // namespace

std::string time_text(double s) { return s >= 1 ? fmt::format("{:.2f} s", s) : fmt::format("{:.1f} ms", 1e3 * s); }

std::string setting(const Job& j, const char* name, const char* otherwise) {
  const auto found = j.f.settings.find(name);
  return found == j.f.settings.end() ? otherwise : found->second;
}

CallSums encoded(const Job& j) {
  CallSums out = j.f.all;
  out += of(j.f.algorithms, "node_sum") * -1;
  return out;
}

UnknownCalls encoded_unknown(const Job& j) {
  const CallSums &unknown = of(j.f.layouts, "unknown"), &exact = of(j.f.algorithms, "node_sum");
  const bool told_apart = exact.calls <= 0 || unknown.calls <= 0 || unknown.calls >= j.f.all.calls;
  return {std::max(0.0, unknown.calls - exact.calls), std::max(0.0, unknown.total_s - exact.total_s), told_apart};
}

}  // namespace crimp::tools
