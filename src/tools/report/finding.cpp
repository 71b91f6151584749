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

CallSums of_rank(const Job& j, std::size_t rank, const char* table, const char* name) {
  const bool separated = j.f.of_rank[rank].wait_s.has_value();
  return sums_in(object_in(object_in(j.f.report["per_rank"][rank], table), name), separated);
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

CallSums encoded(const Job& j, std::size_t rank) {
  CallSums out = j.f.of_rank[rank];
  out += of_rank(j, rank, "algorithms", "node_sum") * -1;
  return out;
}

UnknownCalls encoded_unknown(const Job& j) {
  UnknownCalls out;
  const double share = 1.0 / static_cast<double>(std::max<std::size_t>(1, j.f.of_rank.size()));
  const auto add = [share](UnknownCalls::Bound& to, double calls, double total_s) {
    to.calls += share * std::max(0.0, calls), to.total_s += share * std::max(0.0, total_s);
  };
  for (std::size_t r = 0; r < j.f.of_rank.size(); ++r) {
    const CallSums unknown = of_rank(j, r, "layouts", "unknown"), exact = of_rank(j, r, "algorithms", "node_sum");
    const CallSums others = encoded(j, r);
    add(out.least, unknown.calls - exact.calls, unknown.total_s - exact.total_s);
    add(out.most, std::min(unknown.calls, others.calls), std::min(unknown.total_s, others.total_s));
    const bool all_or_none = unknown.calls <= 0 || unknown.calls >= j.f.of_rank[r].calls;
    out.exactly = out.exactly && (all_or_none || exact.calls <= 0 || others.calls <= 0);
  }
  return out;
}

}  // namespace crimp::tools
