#include "report/heat_map.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "core/time_bins.hpp"
#include "report/digest.hpp"

namespace crimp::tools {
namespace {

using Json = nlohmann::ordered_json;
using nlohmann::json;
using Amounts = TimeBins::Amounts;

constexpr const char* kNames[TimeBins::kinds] = {"calls",   "passed",    "bytes_in", "sent_bytes", "encode_us",
                                                 "wire_us", "decode_us", "wait_us",  "in_calls_us"};

// A rank's, as it wrote it; seconds and bytes.
struct Line {
  double width_s = 0;
  std::vector<Amounts> bins;
};

Line line_of(const json& timeline) {
  Line line;
  if (!timeline.is_object()) return line;
  const json& bins = object_in(timeline, "bins");
  const double n = number_in(bins, "bins");
  line.width_s = number_in(bins, "width_s");
  if (bins.empty()) return line;
  const double doublings = std::log2(line.width_s / TimeBins::kFirstWidth_s);
  if (!(n >= 0 && n <= TimeBins::kBins && line.width_s > 0 && doublings >= 0 && doublings < 64 &&
        doublings == std::floor(doublings)))
    throw std::runtime_error("a timeline whose bins are none");
  line.bins.resize(static_cast<std::size_t>(n));
  for (std::size_t k = 0; k < TimeBins::kinds; ++k) {
    const json& values = array_in(bins, kNames[k]);
    if (values.size() > line.bins.size()) throw std::runtime_error("a timeline with more values than bins");
    for (std::size_t b = 0; b < values.size(); ++b) {
      if (!values[b].is_number()) throw std::runtime_error("a timeline with what is no number");
      line.bins[b][k] = values[b].get<double>() * (k >= TimeBins::encode_s ? 1e-6 : 1);
    }
  }
  return line;
}

// Ranks end on either side of a doubling.
void widen(Line& line, double width_s) {
  for (; line.width_s > 0 && line.width_s < width_s; line.width_s *= 2) {
    for (std::size_t b = 0; b < line.bins.size(); ++b) {
      if (b % 2 == 0) line.bins[b / 2] = line.bins[b];
      else
        for (std::size_t k = 0; k < TimeBins::kinds; ++k) line.bins[b / 2][k] += line.bins[b][k];
    }
    line.bins.resize((line.bins.size() + 1) / 2);
  }
}

struct Rows {
  std::size_t count, together;  // of so many ranks each, but for the last
};
Rows rows_of(std::size_t ranks) {
  const std::size_t together = (ranks + kShownRows - 1) / kShownRows;
  return {(ranks + together - 1) / together, together};
}

}  // namespace

Json heat_map(const Figures& f) {
  const json& timelines = array_in(f.report, "timeline");
  std::vector<Line> lines;
  double width_s = 0;
  std::size_t bins = 0;
  for (const json& timeline : timelines) {
    lines.push_back(line_of(timeline));
    width_s = std::max(width_s, lines.back().width_s);
  }
  for (Line& line : lines) {
    widen(line, width_s);
    bins = std::max(bins, line.bins.size());
  }
  if (bins == 0) return nullptr;
  const bool waits = std::any_of(timelines.begin(), timelines.end(), [](const json& t) {
    return t.is_object() && object_in(t, "bins").contains("wait_us");
  });
  const Rows rows = rows_of(lines.size());
  Json out{
      {"width_s", width_s}, {"bins", bins}, {"waits", waits}, {"ranks_a_row", rows.together}, {"rows", Json::array()}};
  std::vector<Amounts> total(bins);
  for (std::size_t r = 0; r < rows.count; ++r) {
    const std::size_t first = r * rows.together, end = std::min(first + rows.together, lines.size());
    std::vector<Amounts> sum(bins);
    for (std::size_t rank = first; rank < end; ++rank)
      for (std::size_t b = 0; b < lines[rank].bins.size(); ++b)
        for (std::size_t k = 0; k < TimeBins::kinds; ++k) {
          sum[b][k] += lines[rank].bins[b][k];
          total[b][k] += lines[rank].bins[b][k];
        }
    const double ranks = static_cast<double>(end - first);
    const auto column = [&](auto&& value) {
      Json values = Json::array();
      for (const Amounts& of : sum) values.push_back(static_cast<std::int64_t>(std::llround(value(of))));
      return values;
    };
    const auto share = [&](double s) { return std::min(1000.0, 1000 * s / (ranks * width_s)); };
    Json row{{"from", first},
             {"to", end - 1},
             {"in_calls", column([&](const Amounts& a) { return share(a[TimeBins::in_calls_s]); })},
             {"codec", column([&](const Amounts& a) { return share(a[TimeBins::encode_s] + a[TimeBins::decode_s]); })},
             {"wire", column([&](const Amounts& a) { return share(a[TimeBins::wire_s]); })},
             {"sent", column([&](const Amounts& a) { return a[TimeBins::sent_bytes] / ranks; })}};
    if (waits) row["wait"] = column([&](const Amounts& a) { return share(a[TimeBins::wait_s]); });
    out["rows"].push_back(std::move(row));
  }
  // Per rank, so that a bin's seconds can be laid beside its width.
  Json& over = out["over_time"] = Json::object();
  for (std::size_t k = 0; k < TimeBins::kinds; ++k) {
    std::string name = kNames[k];
    if (name.ends_with("_us")) name.replace(name.size() - 3, 3, "_s");
    over[name] = Json::array();
    for (const Amounts& of : total)
      over[name].push_back(std::round(1e6 * of[k] / static_cast<double>(lines.size())) / 1e6);
  }
  return out;
}

Json ranks_object(const Figures& f) {
  const Rows rows = rows_of(f.of_rank.size());
  Json out{{"ranks_a_row", rows.together}, {"rows", Json::array()}};
  for (std::size_t r = 0; r < rows.count; ++r) {
    const std::size_t first = r * rows.together, end = std::min(first + rows.together, f.of_rank.size());
    CallSums sum;
    for (std::size_t rank = first; rank < end; ++rank) sum += f.of_rank[rank];
    sum = sum * (1.0 / static_cast<double>(end - first));
    Json row{{"from", first},
             {"to", end - 1},
             {"encode_s", sum.encode_s},
             {"wire_s", sum.wire_s},
             {"decode_s", sum.decode_s},
             {"wait_s", nullptr},
             {"total_s", sum.total_s},
             {"sent_bytes", sum.sent_bytes}};
    if (sum.wait_s) row["wait_s"] = *sum.wait_s;
    out["rows"].push_back(std::move(row));
  }
  return out;
}

}  // namespace crimp::tools
