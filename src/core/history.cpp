#include "core/history.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/environment.hpp"

namespace crimp {
namespace {

constexpr std::size_t kProgram = 1000;  // characters of the command line that are kept

double now_s() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

// As it was started, with its arguments.
std::string command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  std::string text;
  for (char c; text.size() < kProgram && in.get(c);) text += c == 0 || c == '\n' ? ' ' : c;
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text;
}

nlohmann::json bins_object(const TimeBins& bins) {
  static constexpr const char* kNames[TimeBins::kinds] = {"calls",   "passed",    "bytes_in", "sent_bytes", "encode_us",
                                                          "wire_us", "decode_us", "wait_us",  "in_calls_us"};
  nlohmann::json out{{"width_s", bins.width_s()}, {"bins", bins.used()}};
  for (std::size_t k = 0; k < TimeBins::kinds; ++k) {
    const double unit = k >= TimeBins::encode_s ? 1e6 : 1;
    std::vector<std::int64_t> values;
    double sum = 0, before = 0;
    // Of sums, so that what is rounded here is not lost but comes in the next one.
    for (std::size_t b = 0; b < bins.used(); ++b) {
      sum += unit * bins.bins()[b][k];
      values.push_back(static_cast<std::int64_t>(std::round(sum) - before));
      before = std::round(sum);
    }
    if (sum > 0) out[kNames[k]] = std::move(values);
  }
  return out;
}

nlohmann::json tensors_object(const TensorLog& log) {
  using nlohmann::json;
  json out{{"listed", json::array()}, {"unlisted_calls", log.unlisted_calls()}};
  std::vector<const std::string*> names;
  for (const auto& [name, _] : log.tensors()) names.push_back(&name);
  std::sort(names.begin(), names.end(), [](const auto* a, const auto* b) { return *a < *b; });
  for (const std::string* name : names) {
    const TensorLog::Tensor& t = log.tensors().find(*name)->second;
    json one{{"name", *name},           {"source", t.source},     {"elements", t.elements},
             {"calls", t.calls},        {"bytes_in", t.bytes_in}, {"sent_bytes", std::round(t.sent_bytes)},
             {"codecs", json::object()}};
    for (const auto& codec : t.codecs) one["codecs"][codec.spec] = codec.calls;
    if (!t.samples.empty()) one["memory"] = t.memory;
    for (const auto& s : t.samples)
      one["residual"].push_back({{"call", s.call}, {"at_s", s.at_s}, {"norm", s.norm}, {"values_norm", s.values_norm}});
    out["listed"].push_back(std::move(one));
  }
  return out;
}

}  // namespace

History::History(Clock::time_point origin) : origin_(origin), started_(now_s()) {}

void History::called(Clock::time_point begin, Clock::time_point end, TimeBins::Amounts amounts) {
  amounts[TimeBins::in_calls_s] = seconds(end - begin);
  std::lock_guard lock(mutex_);
  bins_.note(seconds(begin - origin_), seconds(end - origin_), amounts);
}

void History::tensor(std::string_view name, const char* source, std::uint64_t elements, std::string_view codec,
                     double bytes_in, double sent_bytes) {
  std::lock_guard lock(mutex_);
  tensors_.called(name, source, elements, codec, bytes_in, sent_bytes);
}

void History::sampled(std::string_view name, const char* memory, std::uint64_t call, double norm, double values_norm) {
  const double at_s = seconds(Clock::now() - origin_);
  std::lock_guard lock(mutex_);
  tensors_.sampled(name, memory, {call, at_s, norm, values_norm});
}

std::string History::json() const {
  std::lock_guard lock(mutex_);
  const double ended = started_ + seconds(Clock::now() - origin_);  // the system's clock may have been set meanwhile
  nlohmann::json out{{"host", host_name()}, {"program", command_line()}, {"started", started_}, {"ended", ended}};
  if (!bins_.bins().empty()) out["bins"] = bins_object(bins_);
  if (!tensors_.tensors().empty()) out["tensors"] = tensors_object(tensors_);
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace crimp
