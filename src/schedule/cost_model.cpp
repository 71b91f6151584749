#include "schedule/cost_model.hpp"

#include <algorithm>
#include <bit>

namespace crimp {

double Curve::at(double bytes) const {
  if (points_.empty()) return 0;
  if (points_.size() == 1 || bytes <= points_[0].bytes) return points_[0].s;
  std::size_t i = 1;
  while (i + 1 < points_.size() && bytes > points_[i].bytes) ++i;
  const Point a = points_[i - 1], b = points_[i];
  // More bytes never cost less, whatever a noisy measurement says.
  const double slope = std::max(0.0, (b.s - a.s) / (b.bytes - a.bytes));
  return a.s + slope * (bytes - a.bytes);
}

NetworkModel NetworkModel::of(int ranks, double latency_s, double bytes_per_s, double add_bytes_per_s) {
  NetworkModel model;
  model.ranks = ranks;
  const double n = ranks, steps = std::bit_width(static_cast<unsigned>(ranks - 1)), far = 1e9;
  const auto line = [&](Curve& curve, double latency, double per_byte) {
    curve.add(0, latency);
    curve.add(far, latency + per_byte * far);
  };
  line(model.allgather, steps * latency_s, 1 / bytes_per_s);
  line(model.alltoall, (n - 1) * latency_s, 1 / bytes_per_s);
  line(model.step, latency_s, 1 / bytes_per_s);
  // Two lines: recursive doubling sends the buffer in every step, the other twice (n-1)/n of it in twice the steps.
  const double doubling = steps * (1 / bytes_per_s + 1 / add_bytes_per_s);
  const double halving = 2 * (n - 1) / n / bytes_per_s + (n - 1) / n / add_bytes_per_s;
  model.plain.add(0, steps * latency_s);
  if (doubling > halving) {
    const double meet = steps * latency_s / (doubling - halving);
    model.plain.add(meet, steps * latency_s + doubling * meet);
    model.plain.add(meet + far, steps * latency_s + doubling * meet + halving * far);
  } else {
    model.plain.add(far, steps * latency_s + doubling * far);
  }
  return model;
}

double pipelined(double chunks, double computing, double wire) {
  return computing + wire + (chunks - 1) * std::max(computing, wire);
}

}  // namespace crimp
