#include "cluster_profile.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "input_file.hpp"

namespace crimp::tools {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostPoints = 1000, kMostBytes = std::size_t{16} << 20;

nlohmann::ordered_json put(const Curve& curve) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& point : curve.points()) out.push_back({{"bytes", point.bytes}, {"s", point.s}});
  return out;
}

double number_in(const Json& from) {
  const double x = from.get<double>();
  if (!(x >= 0) || !std::isfinite(x)) throw std::runtime_error("a number below 0");
  return x;
}

// Of two sizes at least. In no time nothing is sent: what is compared would be 0 / 0.
void check_calls(const Curve& curve, const char* few) {
  if (curve.points().size() < 2) throw std::runtime_error(few);
  for (const auto& point : curve.points())
    if (!(point.s > 0)) throw std::runtime_error("calls that take no time");
}

Curve curve_in(const Json& from) {
  if (!from.is_array() || from.size() > kMostPoints) throw std::runtime_error("a curve that is none");
  Curve curve;
  double last = -1;
  for (const Json& point : from) {
    const double bytes = number_in(point.at("bytes"));
    if (bytes <= last) throw std::runtime_error("a curve whose bytes do not rise");
    curve.add(last = bytes, number_in(point.at("s")));
  }
  return curve;
}

int whole_in(const Json& from, int least, int most) {
  const auto x = from.is_number_integer() ? from.get<std::int64_t>() : -1;
  if (x < least || x > most) throw std::runtime_error("a number out of range");
  return static_cast<int>(x);
}

}  // namespace

nlohmann::ordered_json ClusterProfile::json() const {
  nlohmann::ordered_json out{
      {"crimp_profile", 1}, {"ranks", ranks}, {"nodes", nodes}, {"device", device}, {"mpi", mpi}};
  out["network"] = {{"allgather", put(network.allgather)},
                    {"alltoall", put(network.alltoall)},
                    {"step", put(network.step)},
                    {"plain", put(network.plain)}};
  for (const auto& [spec, of] : codecs) {
    auto& to = out["codecs"][spec];
    to = {{"encode_s", of.cost.encode_s},
          {"decode_s", of.cost.decode_s},
          {"scan_s", of.cost.scan_s},
          {"add_s", of.cost.add_s},
          {"launch_s", of.cost.launch_s},
          {"payload_bytes", of.cost.payload_bytes},
          {"calls", nlohmann::ordered_json::object()}};
    for (const auto& [algorithm, curve] : of.calls) to["calls"][algorithm] = put(curve);
  }
  return out;
}

ClusterProfile ClusterProfile::parse(const std::string& text) {
  ClusterProfile out;
  try {
    if (text.size() > kMostBytes) throw std::runtime_error("more than 16 MiB");
    const Json from = parse_json(text);
    if (whole_in(from.at("crimp_profile"), 0, 1 << 30) != 1) throw std::runtime_error("another version than 1");
    out.measured = true;
    out.ranks = whole_in(from.at("ranks"), 2, 1 << 20);
    out.nodes = whole_in(from.at("nodes"), 1, out.ranks);
    out.mpi = from.value("mpi", "");
    out.device = from.value("device", "host");
    const Json& network = from.at("network");
    out.network.ranks = out.ranks;
    out.network.allgather = curve_in(network.at("allgather"));
    out.network.alltoall = curve_in(network.at("alltoall"));
    out.network.step = curve_in(network.at("step"));
    out.network.plain = curve_in(network.at("plain"));
    for (const Curve* curve : {&out.network.allgather, &out.network.alltoall, &out.network.plain})
      check_calls(*curve, "a network's curve of fewer than two sizes");
    for (const auto& [spec, of] : from.at("codecs").items()) {
      OfCodec& to = out.codecs[spec];
      to.cost = {.encode_s = number_in(of.at("encode_s")),
                 .decode_s = number_in(of.at("decode_s")),
                 .payload_bytes = number_in(of.at("payload_bytes")),
                 .scan_s = number_in(of.at("scan_s")),
                 .add_s = number_in(of.at("add_s")),
                 .launch_s = number_in(of.at("launch_s"))};
      for (const auto& [algorithm, curve] : of.at("calls").items()) {
        to.calls[algorithm] = curve_in(curve);
        check_calls(to.calls[algorithm], "calls of fewer than two sizes");
      }
    }
  } catch (const Json::exception&) {
    throw std::runtime_error("no profile: it lacks what `crimp plan --measure` writes");
  }
  return out;
}

ClusterProfile ClusterProfile::read(const std::string& file) {
  std::ifstream in = input_file(file);
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::argument_invalid, "--profile: '" + file + "' " + why);
  };
  if (!in) throw refuse("cannot be read; `crimp run -np N -- crimp plan --measure FILE` writes one");
  std::string text;
  for (std::istreambuf_iterator<char> at(in), end; at != end && text.size() <= kMostBytes; ++at) text += *at;
  try {
    return parse(text);
  } catch (const std::runtime_error& e) {
    throw refuse(std::string("has ") + e.what());
  }
}

Curve steadied(const Curve& measured) {
  Curve out;
  double most = 0;
  for (const auto& point : measured.points()) out.add(point.bytes, most = std::max(most, point.s));
  const auto& points = out.points();
  if (points.size() < 2) return out;
  const auto slope = [](const Curve::Point& a, const Curve::Point& b) { return (b.s - a.s) / (b.bytes - a.bytes); };
  const Curve::Point last = points.back();
  const double whole = slope(points.front(), last);
  if (slope(points[points.size() - 2], last) < whole / 2) out.add(64 * last.bytes, last.s + 63 * last.bytes * whole);
  return out;
}

double ClusterShape::crowd(int threads_each) const {
  if (cores == 0) return 1;
  const double here = one_machine ? ranks : std::ceil(static_cast<double>(ranks) / nodes);
  return std::max(1.0, here * threads_each / cores);
}

ClusterProfile profile_of(const ClusterShape& shape, const std::map<std::string, CodecCost>& codecs) {
  ClusterProfile out;
  out.ranks = shape.ranks;
  out.nodes = shape.nodes;
  const double crowd = shape.crowd(shape.threads), per_node = std::ceil(static_cast<double>(shape.ranks) / shape.nodes);
  const double add = shape.add_bytes_per_s / shape.crowd(1);  // MPI's additions: one thread a rank
  const NetworkModel alone = NetworkModel::of(shape.ranks, shape.latency_s, shape.bytes_per_s, add);
  if (per_node > 1) {
    // The ranks of a node share its link. What they send each other does not pass it, and plain MPI's ring passes it
    // once for all of them.
    const double others = shape.ranks - 1, elsewhere = shape.ranks - per_node;
    const double share = elsewhere > 0 ? shape.bytes_per_s * others / (per_node * elsewhere) : add;
    out.network = NetworkModel::of(shape.ranks, shape.latency_s, share, add);
    out.network.plain = elsewhere > 0 ? alone.plain : out.network.plain;
    HierarchyModel& nodes = out.hierarchy.emplace();
    nodes.leaders = NetworkModel::of(std::max(1, shape.nodes), shape.latency_s, shape.bytes_per_s, add);
    nodes.node = {.ranks = static_cast<int>(per_node), .byte_s = 3 / add, .barrier_s = 1e-6};
    if (shape.nodes < 2) out.hierarchy.reset();
  } else {
    out.network = alone;
  }
  for (const auto& [spec, cost] : codecs)
    out.codecs[spec].cost = {.encode_s = cost.encode_s * crowd,
                             .decode_s = cost.decode_s * crowd,
                             .payload_bytes = cost.payload_bytes,
                             .scan_s = cost.scan_s * crowd,
                             .add_s = cost.add_s * crowd,
                             .launch_s = cost.launch_s};
  return out;
}

}  // namespace crimp::tools
