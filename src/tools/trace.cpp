// crimp trace: what a file of CRIMP_TRACE comes to, or what differs between two.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/plain_text.hpp"
#include "table.hpp"
#include "trace_steps.hpp"
#include "trace_summary.hpp"

namespace crimp::tools {
namespace {

constexpr std::size_t kTensors = 10;

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }
// "-": nothing but headers was sent.
template <class Count>
std::string ratio(Count bytes, Count sent) {
  return bytes > 0 && sent > 0 ? fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(sent)) : "-";
}
std::string ms(double s) { return fmt::format("{:.2f}", 1e3 * s); }
template <class Count>
double megabytes(Count bytes) {
  return 1e-6 * static_cast<double>(bytes);
}

// Names come from the program: nothing of them reaches a terminal but text.
std::string printable(const std::string& name, std::size_t most) {
  std::string out = plain_text(name);
  if (out.size() <= most) return out;
  std::size_t cut = most - 3;
  while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xc0) == 0x80) --cut;  // within a character
  return out.substr(0, cut) + "...";
}

nlohmann::ordered_json as_json(const TraceSummary& of) {
  nlohmann::ordered_json out{{"crimp", of.version},
                             {"ranks", of.ranks.size()},
                             {"span_s", of.span_s},
                             {"clock_uncertainty_us", of.uncertainty_us()},
                             {"dropped", of.dropped()},
                             {"skew", {{"measured", of.measured}, {"per_rank", nlohmann::json::array()}}},
                             {"per_rank", nlohmann::json::array()},
                             {"tensors", nlohmann::json::array()}};
  for (const auto& [rank, r] : of.ranks) {
    out["skew"]["per_rank"].push_back(
        {{"rank", rank}, {"calls", r.meetings}, {"waited_s", r.waited_s}, {"late_s", r.late_s}, {"last", r.last}});
    out["per_rank"].push_back({{"rank", rank},
                               {"host", r.host},
                               {"calls", r.calls},
                               {"calls_s", r.calls_s},
                               {"encode_s", r.encode_s},
                               {"hidden_s", r.hidden_s},
                               {"wire_s", r.wire_s},
                               {"asked_s", r.asked_s},
                               {"under_way_s", r.under_way_s},
                               {"decode_s", r.decode_s},
                               {"wait_s", of.measured ? r.waited_s : 0},
                               {"passed", r.passed},
                               {"passed_s", r.passed_s},
                               {"bytes", r.bytes},
                               {"sent_bytes", r.sent_bytes}});
  }
  for (std::size_t i = 0; i < std::min(kTensors, of.tensors.size()); ++i) {
    const auto& t = of.tensors[i];
    out["tensors"].push_back({{"name", t.name},
                              {"calls", t.calls},
                              {"wire_s", t.wire_s},
                              {"calls_s", t.calls_s},
                              {"bytes", t.bytes},
                              {"sent_bytes", t.sent_bytes}});
  }
  return out;
}

void print_ranks(const TraceSummary& of) {
  std::printf("\n# Milliseconds in each track\n%-5s %7s %10s %10s %10s %10s %10s %10s %12s %7s\n", "rank", "calls",
              "in calls", "encode", "wire", "decode", "wait", "under way", "passed to MPI", "ratio");
  for (const auto& [rank, r] : of.ranks)
    std::printf("%-5d %7llu %10s %10s %10s %10s %10s %10s %12s %7s\n", rank, static_cast<unsigned long long>(r.calls),
                ms(r.calls_s).c_str(), ms(r.encode_s).c_str(), ms(r.wire_s).c_str(), ms(r.decode_s).c_str(),
                of.measured ? ms(r.waited_s).c_str() : "-", ms(r.under_way_s).c_str(), ms(r.passed_s).c_str(),
                ratio(r.bytes, r.sent_bytes).c_str());
  const auto mean = of.mean();
  std::printf("%.0f %% of the encoding ran while something was under way.\n",
              100 * share(mean.hidden_s, mean.encode_s));
  if (mean.asked_s > 0)
    std::printf("Before calls that MPI did ranks waited %s ms, in the mean, to agree on that.\n",
                ms(mean.asked_s).c_str());
}

void print_skew(const TraceSummary& of) {
  std::printf("\n# Who waits for whom%s\n%-5s %7s %12s %12s %10s\n",
              of.measured
                  ? ""
                  : fmt::format(", estimated from when calls began, clocks within {:.0f} us (CRIMP_SKEW=1 measures it)",
                                of.uncertainty_us())
                        .c_str(),
              "rank", "calls", "waited [ms]", "late [ms]", "came last");
  const TraceSummary::Rank* latest = nullptr;
  int which = 0;
  double all_s = 0;
  for (const auto& [rank, r] : of.ranks) {
    std::printf("%-5d %7llu %12s %12s %10llu\n", rank, static_cast<unsigned long long>(r.meetings),
                ms(r.waited_s).c_str(), ms(r.late_s).c_str(), static_cast<unsigned long long>(r.last));
    all_s += r.late_s;
    if (!latest || r.late_s > latest->late_s) latest = &r, which = rank;
  }
  if (latest && latest->late_s > 0)
    std::printf("The others waited longest for rank %d (%s): %s of %s ms that ranks lost by late ones.\n", which,
                printable(latest->host, 64).c_str(), ms(latest->late_s).c_str(), ms(all_s).c_str());
}

void print_tensors(const TraceSummary& of) {
  if (of.tensors.empty()) return;
  const double n = static_cast<double>(of.ranks.size());
  std::printf("\n# Tensors by what ranks waited for their payloads, mean of the ranks\n%-44s %7s %10s %10s %10s %7s\n",
              "call of", "calls", "wire [ms]", "call [ms]", "MB", "ratio");
  for (std::size_t i = 0; i < std::min(kTensors, of.tensors.size()); ++i) {
    const auto& t = of.tensors[i];
    std::printf("%-44s %7.0f %10s %10s %10.2f %7s\n", printable(t.name, 44).c_str(), static_cast<double>(t.calls) / n,
                ms(t.wire_s / n).c_str(), ms(t.calls_s / n).c_str(), megabytes(t.bytes) / n,
                ratio(t.bytes, t.sent_bytes).c_str());
  }
  if (of.tensors.size() > kTensors) std::printf("and %zu others\n", of.tensors.size() - kTensors);
}

void print(const std::string& file, const TraceSummary& of) {
  std::printf("%s: %zu ranks, %.3f s from the first event to the last, clocks within %.0f us, by Crimp %s\n",
              file.c_str(), of.ranks.size(), of.span_s, of.uncertainty_us(), printable(of.version, 32).c_str());
  if (const auto dropped = of.dropped())
    std::printf("%llu spans are missing for want of room: sums are too small\n",
                static_cast<unsigned long long>(dropped));
  print_skew(of);
  print_ranks(of);
  print_tensors(of);
}

void compare(const TraceSummary& a, const TraceSummary& b) {
  const auto x = a.mean(), y = b.mean();
  std::printf("%-34s %12s %12s %8s\n", "# mean of the ranks", "first", "second", "change");
  const auto row = [](const char* name, double first, double second) {
    const std::string change = first > 0 ? fmt::format("{:+.0f} %", 100 * (second / first - 1)) : "-";
    std::printf("%-34s %12s %12s %8s\n", name, number(first).c_str(), number(second).c_str(), change.c_str());
  };
  row("ranks", static_cast<double>(a.ranks.size()), static_cast<double>(b.ranks.size()));
  row("first event to the last [ms]", 1e3 * a.span_s, 1e3 * b.span_s);
  row("compressed calls", x.calls, y.calls);
  row("in them [ms]", 1e3 * x.calls_s, 1e3 * y.calls_s);
  row("encode [ms]", 1e3 * x.encode_s, 1e3 * y.encode_s);
  row("encode while under way [%]", 100 * share(x.hidden_s, x.encode_s), 100 * share(y.hidden_s, y.encode_s));
  row("wire [ms]", 1e3 * x.wire_s, 1e3 * y.wire_s);
  row("decode [ms]", 1e3 * x.decode_s, 1e3 * y.decode_s);
  row(a.measured && b.measured ? "waiting for late ranks [ms]" : "waiting for late ranks, est. [ms]", 1e3 * x.waited_s,
      1e3 * y.waited_s);
  row("passed calls", x.passed, y.passed);
  row("passed to MPI [ms]", 1e3 * x.passed_s, 1e3 * y.passed_s);
  row("MB", megabytes(x.bytes), megabytes(y.bytes));
  row("MB sent", megabytes(x.sent_bytes), megabytes(y.sent_bytes));
  if (a.dropped() || b.dropped()) std::printf("Spans are missing for want of room: sums are too small.\n");
}

}  // namespace

int trace(Arguments arguments) {
  std::string file, other, json;
  CommandLine app(
      "Says what a trace comes to: who waits for whom, the time in each track, the tensors that waited longest for the network. Of two\n"
      "traces it says what differs.",
      "crimp trace");
  const auto first = app.option("trace", file, "What CRIMP_TRACE wrote");
  const auto second = app.option("other", other, "Another one, to be compared with the first");
  const auto write = app.option("--json", json, "Write JSON to a file, or in place of the tables").value_optional();
  if (const auto code = app.parse(arguments)) return *code;
  if (!first.given()) throw Error(ErrorCode::argument_invalid, "crimp trace needs the file that CRIMP_TRACE wrote");
  if (write.given() && json.empty()) json = "-";
  if (json != "-" && !json.empty() && is_trace(json))
    throw Error(
        ErrorCode::argument_invalid,
        "crimp trace --json " + json +
            ": that is a trace, which would be written over; name another file, or give --json behind the traces");
  const TraceSummary a = read_trace(file);
  if (!second.given()) {
    if (json != "-") print(file, a);
    if (!json.empty()) write_json(json, as_json(a));
    return 0;
  }
  const TraceSummary b = read_trace(other);
  if (json != "-") compare(a, b);
  if (!json.empty()) write_json(json, nlohmann::ordered_json::array({as_json(a), as_json(b)}));
  return 0;
}

}  // namespace crimp::tools
