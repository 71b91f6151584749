// topk, threshold, dgc (exact selection), sidco and adaq, from WIRE_FORMAT.md, sections 4.17, 4.18 and 4.20 to 4.22.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>

#include "support/half_reference.hpp"
#include "support/reference.hpp"

namespace crimp::test {
namespace {

using Key = std::function<float(float)>;
float magnitude(float a) { return std::fabs(a); }
float positive(float a) { return a > 0 ? a : 0; }
float negative(float a) { return a < 0 ? -a : 0; }

std::size_t share(float ratio, double count) {
  return std::max<std::size_t>(1, static_cast<std::size_t>(std::floor(static_cast<double>(ratio) * count + 0.5)));
}

struct Limit {
  float threshold;
  std::uint64_t ties;
};
// By sorting everything.
Limit largest(std::span<const float> a, std::size_t k, const Key& key) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (key(a[i]) > 0) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return key(a[x]) > key(a[y]); });
  if (order.empty()) return {0, 0};
  const std::size_t last = order[std::min(k, order.size()) - 1];
  return {key(a[last]), last + 1};
}

std::vector<std::size_t> selected(const ReferencePiece& p) {
  std::vector<std::size_t> indices;
  const Selection& s = p.selection;
  for (std::size_t i = 0; i < p.a.size(); ++i) {
    const float a = p.a[i];
    const std::size_t at = p.in_group + i;
    if (a > s.up || a < -s.down || (a > 0 && a == s.up && at < s.up_ties) ||
        (a < 0 && a == -s.down && at < s.down_ties))
      indices.push_back(i);
  }
  return indices;
}

void append(Bytes& to, const void* data, std::size_t n) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  to.insert(to.end(), bytes, bytes + n);
}

Bytes bits_of(const std::vector<std::size_t>& places, std::size_t n) {
  Bytes bits((n + 7) / 8);
  for (const std::size_t i : places) bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] + (1 << i % 8));
  return bits;
}

// Head, what is sent of the selected elements, and their set.
Bytes piece_of(const std::vector<std::size_t>& indices, std::size_t n, const Bytes& values) {
  Bytes gaps;
  std::size_t next = 0;
  for (const std::size_t i : indices) {
    std::size_t gap = i - next;
    while (gap >= 240) {
      const std::size_t skip = std::min<std::size_t>(gap / 240, 16);
      gaps.push_back(static_cast<std::uint8_t>(239 + skip));
      gap -= 240 * skip;
    }
    gaps.push_back(static_cast<std::uint8_t>(gap));
    next = i + 1;
  }
  const bool bitmap = gaps.size() >= (n + 7) / 8;
  const auto head = static_cast<std::uint16_t>(indices.size() + (bitmap ? 0x8000 : 0));
  const Bytes set = bitmap ? bits_of(indices, n) : gaps;
  Bytes piece(2 + values.size() + set.size());
  std::memcpy(piece.data(), &head, 2);
  std::copy(set.begin(), set.end(), std::copy(values.begin(), values.end(), piece.begin() + 2));
  return piece;
}
std::vector<std::size_t> indices_of(std::span<const std::uint8_t> bytes, std::uint16_t head, std::size_t n) {
  std::vector<std::size_t> indices;
  std::size_t next = 0;
  for (std::size_t i = 0; head >= 0x8000 && i < n; ++i)
    if (bytes[i / 8] >> i % 8 & 1) indices.push_back(i);
  for (std::size_t j = 0; head < 0x8000 && j < bytes.size(); ++j) {
    if (bytes[j] >= 240) {
      next += (bytes[j] - 239u) * 240;
    } else {
      indices.push_back(next + bytes[j]);
      next = indices.back() + 1;
    }
  }
  return indices;
}

// SIDCo with the C library's functions in long double and sums in plain order: its own log and exp give the same
// float32 threshold.
class SidcoThreshold {
 public:
  SidcoThreshold(std::span<const float> a, float ratio, std::string tail, int stages)
      : a_(a), tail_(std::move(tail)), stages_(stages), ratio_(ratio) {}
  Limit limit() {
    const std::size_t wanted = share(ratio_, static_cast<double>(a_.size()));
    const auto k = static_cast<long double>(wanted);
    look(0);
    if (n_ <= k) return {0, 0};
    const bool staged = stages_ > 1 && k / n_ < 0.25L;
    float eta =
        static_cast<float>(tail_ == "gamma" ? gamma_fit(staged ? 0.25L : k / n_) : fit(staged ? 0.25L : k / n_));
    const long double rho = staged ? std::pow(k / n_ / 0.25L, 1.0L / (stages_ - 1)) : 0;
    for (int stage = 1; staged && stage < stages_ && usable(eta); ++stage) {
      look(eta);
      if (n_ == 0) break;
      eta = static_cast<float>(fit(rho));
    }
    if (usable(eta)) {
      look(eta);
      if (n_ >= 0.8L * k && n_ <= 1.2L * k) return {eta, 0};
      if (n_ > 0) {
        eta = static_cast<float>(from_ - mean_ * std::log(k / n_));
        if (usable(eta)) {
          look(eta);
          if (n_ > 0 && n_ >= 0.5L * k && n_ <= 2 * k) return {eta, 0};
        }
      }
    }
    return largest(a_, wanted, magnitude);
  }

 private:
  static bool usable(float eta) { return eta > 0 && std::isfinite(eta); }
  void look(float from) {
    from_ = from;
    n_ = mean_ = variance_ = logs_ = 0;
    for (const float x : a_)
      if (std::fabs(x) > from) {
        ++n_;
        mean_ += static_cast<long double>(std::fabs(x)) - from_;
        logs_ += std::log(static_cast<long double>(std::fabs(x)));
      }
    if (n_ == 0) return;
    mean_ /= n_;
    for (const float x : a_)
      if (std::fabs(x) > from) variance_ += (std::fabs(x) - from_ - mean_) * (std::fabs(x) - from_ - mean_) / n_;
  }
  long double fit(long double rho) const {
    const long double exponential = from_ - mean_ * std::log(rho);
    if (tail_ == "exp" || variance_ <= 1e-6L * mean_ * mean_) return exponential;
    const long double ratio = mean_ * mean_ / variance_, k = (ratio - 1) / 2, power = k * std::log(rho);
    if (std::fabs(k) < 1e-6L || std::fabs(power) > 700) return exponential;
    return from_ + mean_ * (ratio + 1) / 2 * (1 - std::exp(power)) / k;
  }
  long double gamma_fit(long double rho) const {
    const long double s = std::log(mean_) - logs_ / n_;
    long double shape = s > 1.0L / 128 ? (3 - s + std::sqrt((s - 3) * (s - 3) + 24 * s)) / (12 * s) : 64;
    shape = std::clamp(shape, 1.0L / 64, 64.0L);
    long double low = 0, high = 4 * shape + 60;
    for (int i = 0; i < 80; ++i) {
      const long double x = (low + high) / 2;
      long double term = 1, sum = 1;
      for (int j = 1; j < 2000 && term > 1e-22L * sum; ++j) sum += term *= x / (shape + j);
      (sum * std::exp(shape * std::log(x) - x - std::lgamma(shape + 1)) < 1 - rho ? low : high) = x;
    }
    return mean_ / shape * low;
  }
  std::span<const float> a_;
  std::string tail_;
  int stages_;
  float ratio_;
  long double from_ = 0, n_ = 0, mean_ = 0, variance_ = 0, logs_ = 0;
};

class Sparse final : public ReferenceCodec {
 public:
  explicit Sparse(const std::string& spec)
      : spec_(spec), name_(spec.substr(0, spec.find(':'))), half_(parameter(spec, "value") == "f16") {
    if (name_ == "dgc" && parameter(spec, "sample") != "1")
      throw std::invalid_argument(spec + ": only exact selection has a reference");
  }
  bool fixed_size() const override { return false; }
  Selection select(std::span<const float> group, const RandomCounter&) const override {
    if (name_ == "threshold") {
      const float v = std::stof(parameter(spec_, "v"));
      return {v, v, 0, 0};
    }
    const float ratio = std::stof(parameter(spec_, "ratio"));
    const auto [t, ties] =
        name_ == "sidco"
            ? SidcoThreshold(group, ratio, parameter(spec_, "dist"), std::stoi(parameter(spec_, "stages"))).limit()
            : largest(group, share(ratio, static_cast<double>(group.size())), magnitude);
    return {t, t, ties, ties};
  }
  Bytes encode(const ReferencePiece& p) const override {
    const auto indices = selected(p);
    if (indices.empty()) return {};
    Bytes values;
    int k = 1;  // of the scale 2^(k - 127)
    for (const std::size_t i : indices)
      while (std::fabs(static_cast<double>(p.a[i])) > std::ldexp(65504.0, k - 127) && k < 239) ++k;
    if (half_) values = {static_cast<std::uint8_t>(k), 0};
    for (const std::size_t i : indices) {
      const float a = p.a[i];
      const std::uint16_t h = kHalf.nearest(std::clamp(std::ldexp(static_cast<double>(a), 127 - k), -65504.0, 65504.0));
      half_ ? append(values, &h, 2) : append(values, &a, 4);
    }
    return piece_of(indices, p.a.size(), values);
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    std::vector<float> d(count);
    if (piece.empty()) return d;
    std::uint16_t head;
    std::memcpy(&head, piece.data(), 2);
    const std::size_t size = half_ ? 2 : 4, n = head & 0x3fff, begin = half_ ? 4 : 2;
    const auto indices = indices_of(piece.subspan(begin + n * size), head, count);
    for (std::size_t j = 0; j < n; ++j) {
      std::uint16_t h;
      std::memcpy(half_ ? static_cast<void*>(&h) : &d[indices.at(j)], piece.data() + begin + j * size, size);
      if (half_) d[indices.at(j)] = static_cast<float>(std::ldexp(kHalf.value(h), piece[2] - 127));
    }
    return d;
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    return by_element(a, [](double x) { return std::fabs(x); });
  }

 private:
  std::string spec_, name_;
  bool half_;
};

class AdaQ final : public ReferenceCodec {
 public:
  explicit AdaQ(const std::string& spec) : ratio_(std::stof(parameter(spec, "ratio"))) {}
  bool fixed_size() const override { return false; }
  Selection select(std::span<const float> group, const RandomCounter&) const override {
    const auto some = [&](const Key& key) {
      return share(ratio_,
                   static_cast<double>(std::count_if(group.begin(), group.end(), [&](float a) { return key(a) > 0; })));
    };
    const Limit up = largest(group, some(positive), positive), down = largest(group, some(negative), negative);
    return {up.threshold, down.threshold, up.ties, down.ties};
  }
  Bytes encode(const ReferencePiece& p) const override {
    const auto indices = selected(p);
    if (indices.empty()) return {};
    std::vector<std::size_t> negatives;
    float lanes[2][16] = {};
    for (std::size_t j = 0; j < indices.size(); ++j) {
      const float a = p.a[indices[j]];
      if (a < 0) negatives.push_back(j);
      lanes[a < 0][j % 16] += std::fabs(a);
    }
    float means[2];
    for (int side = 0; side < 2; ++side) {
      const float* l = lanes[side];
      const auto eight = [&](int i) { return l[i] + l[i + 8]; };
      const auto four = [&](int i) { return eight(i) + eight(i + 4); };
      const std::size_t n = side ? negatives.size() : indices.size() - negatives.size();
      means[side] = n ? std::min(((four(0) + four(2)) + (four(1) + four(3))) / static_cast<float>(n), 0x1p114f) : 0.0f;
    }
    const Bytes signs = bits_of(negatives, indices.size());
    Bytes values;
    append(values, means, 8);
    append(values, signs.data(), signs.size());
    return piece_of(indices, p.a.size(), values);
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    std::vector<float> d(count);
    if (piece.empty()) return d;
    std::uint16_t head;
    float means[2];
    std::memcpy(&head, piece.data(), 2);
    std::memcpy(means, piece.data() + 2, 8);
    const std::size_t n = head & 0x3fff;
    const auto signs = piece.subspan(10);
    const auto indices = indices_of(signs.subspan((n + 7) / 8), head, count);
    for (std::size_t j = 0; j < n; ++j) d[indices.at(j)] = signs[j / 8] >> j % 8 & 1 ? -means[1] : means[0];
    return d;
  }
  std::vector<double> allowed(std::span<const float> a) const override { return std::vector<double>(a.size(), -1.0); }

 private:
  float ratio_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> sparse_reference(const std::string& spec) {
  const std::string codec = codec_of(spec);
  if (codec == "adaq") return std::make_unique<AdaQ>(spec);
  if (codec == "topk" || codec == "threshold" || codec == "dgc" || codec == "sidco")
    return std::make_unique<Sparse>(spec);
  return nullptr;
}

}  // namespace crimp::test
