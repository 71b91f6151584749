#include "schedule/step_trace.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "schedule/plan_json.hpp"

namespace crimp {
namespace {

constexpr double kLeastShare = 0.02;  // of the shortest call's time, that a call of no bytes takes

double time_in(const nlohmann::json& number) {
  const double s = number.get<double>();
  if (!(s >= 0) || !std::isfinite(s)) throw std::runtime_error("a time below 0");
  return s;
}

Curve curve_in(const nlohmann::json& from) {
  Curve curve;
  double last = -1;
  for (const auto& point : from) {
    const double bytes = time_in(point.at("bytes"));
    if (bytes <= last) throw std::runtime_error("sizes of calls that do not rise");
    curve.add(last = bytes, time_in(point.at("s")));
  }
  return curve;
}

}  // namespace

double median(std::vector<double> of) {
  if (of.empty()) return 0;
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

Curve curve_of(const std::vector<std::vector<Curve::Point>>& calls) {
  struct Pool {
    double bytes, s, weight, last;
  };
  std::vector<Pool> pools;
  for (const auto& of : calls) {
    std::vector<double> times;
    double bytes = 0;
    for (const auto& call : of) times.push_back(call.s), bytes += call.bytes;
    const auto n = static_cast<double>(of.size());
    pools.push_back({bytes / n, median(std::move(times)), n, bytes / n});
    while (pools.size() > 1 && pools[pools.size() - 2].s > pools.back().s) {
      const Pool b = pools.back();
      pools.pop_back();
      Pool& a = pools.back();
      a.s = (a.s * a.weight + b.s * b.weight) / (a.weight + b.weight);
      a.weight += b.weight;
      a.last = b.last;
    }
  }
  Curve curve;
  if (pools.size() > 1) {
    const Pool &a = pools[0], &b = pools[1];
    const double of_none = a.s - (b.s - a.s) / (b.bytes - a.bytes) * a.bytes;
    curve.add(0, std::max(of_none, kLeastShare * a.s));
  }
  for (const Pool& pool : pools) {
    curve.add(pool.bytes, pool.s);
    if (pool.last > pool.bytes) curve.add(pool.last, pool.s);
  }
  return curve;
}

Timeline StepTrace::timeline(double extra_s) const {
  Timeline step;
  step.codecs = static_cast<std::uint8_t>(calls.size());
  step.call = [this, extra_s](std::uint64_t bytes, std::uint8_t codec) {
    const Curve& curve = calls[codec];
    const double s = curve.points().size() < 2 ? INFINITY : curve.at(static_cast<double>(bytes));
    return CallTime{.wire_s = s + extra_s};
  };
  for (const Unit& unit : units) {
    step.ready_s.push_back(stalls ? units.back().ready_s : unit.ready_s);  // all must be computed, before or between
    step.bytes.push_back(unit.bytes);
  }
  return step;
}

Cuts StepTrace::first_tensors(const Cuts& first_units) const {
  Cuts out;
  std::uint32_t tensor = 0;
  auto cut = first_units.begin();
  for (std::uint32_t u = 0; u < units.size(); tensor += units[u++].tensors)
    if (cut != first_units.end() && *cut == u) out.push_back(tensor), ++cut;
  return out;
}

std::string StepTrace::json() const {
  nlohmann::json out{{"tensors", tensors},
                     {"units", nlohmann::json::array()},
                     {"calls", nlohmann::json::array()},
                     {"stalls", stalls},
                     {"step_s", step_s},
                     {"steps", steps}};
  for (const Unit& unit : units)
    out["units"].push_back({{"tensors", unit.tensors}, {"bytes", unit.bytes}, {"ready_s", unit.ready_s}});
  for (const Curve& curve : calls) {
    nlohmann::json points = nlohmann::json::array();
    for (const Curve::Point& point : curve.points()) points.push_back({{"bytes", point.bytes}, {"s", point.s}});
    out["calls"].push_back(std::move(points));
  }
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

StepTrace StepTrace::parse(std::string_view text) {
  StepTrace out;
  try {
    const auto from = nlohmann::json::parse(text);
    from.at("tensors").get_to(out.tensors);
    from.at("stalls").get_to(out.stalls);
    out.step_s = time_in(from.at("step_s"));
    out.steps = natural(from.at("steps"));
    std::uint64_t tensors = 0;
    for (const auto& unit : from.at("units")) {
      const std::uint64_t of_unit = natural(unit.at("tensors"));
      if (of_unit == 0 || of_unit > out.tensors.size())
        throw std::runtime_error("a unit of no tensors, or of too many");
      tensors += of_unit;
      out.units.push_back(
          {static_cast<std::uint32_t>(of_unit), natural(unit.at("bytes")), time_in(unit.at("ready_s"))});
    }
    if (tensors != out.tensors.size() || tensors == 0)
      throw std::runtime_error("units whose tensors are not those of the trace");
    for (const auto& points : from.at("calls")) out.calls.push_back(curve_in(points));
    if (out.calls.empty() || out.calls.size() > 255) throw std::runtime_error("no times of calls");
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error("a trace that lacks 'tensors', 'units', 'calls', 'stalls', 'steps' or 'step_s'");
  }
  return out;
}

}  // namespace crimp
