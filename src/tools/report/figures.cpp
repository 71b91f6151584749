#include "report/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "input_file.hpp"

namespace crimp::tools {
namespace {

using nlohmann::json;

constexpr double kMostRanks = 1 << 24;

void add_sums(std::map<std::string, CallSums>& to, const json& from, bool separated, double share) {
  for (auto it = from.begin(); it != from.end(); ++it) to[it.key()] += sums_in(it.value(), separated) * share;
}

TimeSums time_in(const json& of, double share) {
  TimeSums t{share * number_in(of, "calls"), share * number_in(of, "took_s"), {}, {}, {}};
  const auto otherwise = [&](const json& from, const char* s) {
    const double took_s = share * number_in(from, "took_s");
    return TimeSums::Otherwise{share * number_in(from, "calls"), took_s,
                               from.contains("own_s") ? share * number_in(from, "own_s") : took_s,
                               share * number_in(from, s)};
  };
  t.best = otherwise(object_in(of, "best"), "best_s");
  const json& without = object_in(of, "without_crimp");
  t.plain_measured = otherwise(object_in(without, "measured"), "plain_s");
  t.plain_predicted = otherwise(object_in(without, "predicted"), "plain_s");
  return t;
}

std::uint64_t size_in(const std::string& text) {
  std::uint64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error != std::errc{} || end != text.data() + text.size())
    throw std::runtime_error("a class of sizes called '" + text + "', which is no number of bytes");
  return bytes;
}

// A tensor comes once a step.
double steps_in(const json& rank) {
  double steps = 0;
  for (const json& tensor : array_in(object_in(rank, "tensors"), "listed"))
    steps = std::max(steps, number_in(tensor, "calls"));
  const json& search = object_in(object_in(object_in(rank, "horovod"), "merge"), "search");
  steps = std::max(steps, number_in(search, "steps"));
  for (const json& trace : array_in(rank, "steps")) steps = std::max(steps, number_in(trace, "steps"));
  return steps;
}

void read(Figures& f) {
  const json& report = f.report;
  f.status = text_in(report, "status");
  const json& settings = object_in(report, "settings");
  for (auto it = settings.begin(); it != settings.end(); ++it)
    f.settings[it.key()] = text_in(settings, it.key().c_str());
  const json& ranks = array_in(report, "per_rank");
  const double said = number_in(report, "ranks");
  if (ranks.empty()) throw std::runtime_error("no ranks");
  if (!(said >= 0 && said <= kMostRanks)) throw std::runtime_error("a number of ranks that is none");
  f.ranks = static_cast<int>(ranks.size());
  const double share = 1.0 / static_cast<double>(ranks.size());
  for (const json& rank : ranks) {
    if (!rank.is_object()) throw std::runtime_error("a rank's part that is no object");
    const bool separated = !object_in(rank, "skew").empty();
    f.of_rank.push_back(sums_in(rank, separated));
    f.all += f.of_rank.back() * share;
    add_sums(f.codecs, object_in(rank, "codecs"), separated, share);
    add_sums(f.algorithms, object_in(rank, "algorithms"), separated, share);
    add_sums(f.layouts, object_in(rank, "layouts"), separated, share);
    const json& sizes = object_in(rank, "size_classes");
    for (auto it = sizes.begin(); it != sizes.end(); ++it)
      f.sizes[size_in(it.key())] += sums_in(it.value(), separated) * share;
    const json& passed = object_in(rank, "passed_through");
    for (auto it = passed.begin(); it != passed.end(); ++it)
      f.passed[it.key()] += number_in(passed, it.key().c_str()) * share;
    f.errors += number_in(rank, "errors");
    f.unrecorded += number_in(rank, "unrecorded");
    f.steps = std::max(f.steps, steps_in(rank));
  }
  f.time = time_in(object_in(report, "time"), share);
}

}  // namespace

void CallSums::operator+=(const CallSums& more) {
  calls += more.calls;
  bytes_in += more.bytes_in;
  sent_bytes += more.sent_bytes;
  received_bytes += more.received_bytes;
  encode_s += more.encode_s;
  wire_s += more.wire_s;
  decode_s += more.decode_s;
  total_s += more.total_s;
  if (more.wait_s) wait_s = wait_s.value_or(0) + *more.wait_s;
  for (const auto& [reason, n] : more.why) why[reason] += n;
}

CallSums CallSums::operator*(double share) const {
  CallSums s = *this;
  for (double* x :
       {&s.calls, &s.bytes_in, &s.sent_bytes, &s.received_bytes, &s.encode_s, &s.wire_s, &s.decode_s, &s.total_s})
    *x *= share;
  if (s.wait_s) *s.wait_s *= share;
  for (auto& [_, n] : s.why) n *= share;
  return s;
}

const TimeSums::Otherwise* TimeSums::plain() const {
  if (plain_measured.calls >= plain_predicted.calls && plain_measured.s != plain_measured.own_s) return &plain_measured;
  return plain_predicted.calls > 0 ? &plain_predicted : nullptr;
}

double Figures::passed_calls() const {
  double n = 0;
  for (const auto& [_, calls] : passed) n += calls;
  return n;
}

double Figures::setting(const std::string& name) const {
  const auto found = settings.find(name);
  double value = 0;
  if (found != settings.end())
    std::from_chars(found->second.data(), found->second.data() + found->second.size(), value);
  return value;
}

namespace {

// Null: it is not there.
const json* found_in(const json& object, const char* key) {
  if (!object.is_object()) throw std::runtime_error(std::string("no object where '") + key + "' should be");
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

double number_in(const json& object, const char* key) {
  const json* const found = found_in(object, key);
  if (!found) return 0;
  if (!found->is_number()) throw std::runtime_error(std::string("a '") + key + "' that is no number");
  const double value = found->get<double>();
  return std::isfinite(value) ? value : 0;
}

std::string text_in(const json& object, const char* key) {
  const json* const found = found_in(object, key);
  if (!found) return {};
  if (!found->is_string()) throw std::runtime_error(std::string("a '") + key + "' that is no text");
  return found->get<std::string>();
}

const json& object_in(const json& object, const char* key) {
  static const json none = json::object();
  const json* const found = found_in(object, key);
  if (!found) return none;
  if (!found->is_object()) throw std::runtime_error(std::string("a '") + key + "' that is no object");
  return *found;
}

const json& array_in(const json& object, const char* key) {
  static const json none = json::array();
  const json* const found = found_in(object, key);
  if (!found) return none;
  if (!found->is_array()) throw std::runtime_error(std::string("a '") + key + "' that is no list");
  return *found;
}

CallSums sums_in(const json& of, bool separated) {
  CallSums s;
  s.calls = number_in(of, "calls");
  s.bytes_in = number_in(of, "bytes_in");
  s.sent_bytes = number_in(of, "sent_bytes");
  s.received_bytes = number_in(of, "received_bytes");
  s.encode_s = number_in(of, "encode_s");
  s.wire_s = number_in(of, "wire_s");
  s.decode_s = number_in(of, "decode_s");
  s.total_s = number_in(of, "total_s");
  if (separated) s.wait_s = number_in(of, "wait_s");
  const json& why = object_in(of, "why");
  for (auto it = why.begin(); it != why.end(); ++it) s.why[it.key()] = number_in(why, it.key().c_str());
  return s;
}

Figures figures_of(json report, const std::string& file) {
  const auto bad = [&](const std::string& why) { return Error(ErrorCode::argument_invalid, "'" + file + "' " + why); };
  if (!report.is_object() || !report.contains("per_rank") || !report["per_rank"].is_array())
    throw bad("is no report of Crimp; legal is a file that CRIMP_REPORT wrote");
  Figures f;
  f.file = file;
  f.report = std::move(report);
  try {
    read(f);
  } catch (const std::exception& e) {
    throw bad(std::string("is damaged: it has ") + e.what());
  }
  return f;
}

Figures read_figures(const std::string& file) {
  return figures_of(parse_json(input_text(file, "a file that CRIMP_REPORT wrote")), file);
}

std::string percent(double share) { return fmt::format("{:.0f} %", 100 * share); }

}  // namespace crimp::tools
