#include "support/model.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "support/half_reference.hpp"
#include "support/threelc_reference.hpp"

namespace crimp::test {
namespace {

constexpr std::size_t kPiece = 10240, kBlock = 10240;

float peak_of(std::span<const float> a) {
  float peak = 0;
  for (const float x : a) peak = std::fabs(x) > peak ? std::fabs(x) : peak;
  return peak;
}

void pad(std::vector<std::uint8_t>& bytes) { bytes.resize((bytes.size() + 63) / 64 * 64); }

}  // namespace

ModelCodec::ModelCodec(const std::string& spec) {
  int zero_run = 1;
  if (spec == "none") {
    kind_ = Kind::none;
  } else if (spec == "fp16") {
    kind_ = Kind::fp16;
  } else if (spec == "bf16") {
    kind_ = Kind::bf16;
  } else if (std::sscanf(spec.c_str(), "3lc:s=%f,zero_run=%d", &s_, &zero_run) == 2) {
    kind_ = Kind::threelc;
    zero_run_ = zero_run != 0;
  } else {
    throw std::invalid_argument("the model does not know codec " + spec + "; extend tests/support/model.cpp");
  }
}

std::vector<std::uint8_t> ModelCodec::encode_piece(std::span<const float> a, float scale) const {
  if (kind_ == Kind::threelc) {
    auto base = threelc_base_bytes(a, scale);
    return zero_run_ ? threelc_run_coded(base) : base;
  }
  std::vector<std::uint8_t> bytes(a.size() * (kind_ == Kind::none ? 4 : 2));
  if (kind_ == Kind::none && !a.empty()) std::memcpy(bytes.data(), a.data(), bytes.size());
  if (kind_ == Kind::none) return bytes;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::uint16_t h = (kind_ == Kind::fp16 ? kHalf : kBfloat).nearest(static_cast<double>(a[i]));
    bytes[2 * i] = static_cast<std::uint8_t>(h & 0xff);
    bytes[2 * i + 1] = static_cast<std::uint8_t>(h >> 8);
  }
  return bytes;
}

std::vector<float> ModelCodec::decode_piece(std::span<const std::uint8_t> bytes, std::size_t count, float scale) const {
  if (kind_ == Kind::threelc) {
    const std::size_t n = (count + 4) / 5;
    return threelc_values(zero_run_ ? threelc_expanded(bytes, n).value() : std::vector<std::uint8_t>(bytes.begin(), bytes.end()), count, scale);
  }
  std::vector<float> values(count);
  if (kind_ == Kind::none && count) std::memcpy(values.data(), bytes.data(), bytes.size());
  if (kind_ == Kind::none) return values;
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(
        (kind_ == Kind::fp16 ? kHalf : kBfloat).value(static_cast<std::uint16_t>(bytes[2 * i] | bytes[2 * i + 1] << 8)));
  return values;
}

ModelBody ModelCodec::encode(std::span<const float> a, std::span<const ModelGroup> groups) const {
  ModelBody body;
  std::vector<std::uint8_t> lengths, pieces;
  std::size_t begin = 0;
  for (const auto& group : groups) {
    const float m = has_scale() ? scale(group.peak) : 0.0f;
    if (has_scale()) {
      std::uint8_t bits[4];
      std::memcpy(bits, &m, 4);
      body.bytes.insert(body.bytes.end(), bits, bits + 4);
    }
    for (std::size_t at = 0; at < group.count; at += kPiece) {
      const auto values = a.subspan(begin + at, std::min(kPiece, group.count - at));
      const auto piece = encode_piece(values, m);
      if (!fixed_size()) {
        lengths.push_back(static_cast<std::uint8_t>(piece.size() & 0xff));
        lengths.push_back(static_cast<std::uint8_t>(piece.size() >> 8));
      }
      pieces.insert(pieces.end(), piece.begin(), piece.end());
      const auto decoded = decode_piece(piece, values.size(), m);
      for (std::size_t i = 0; i < values.size(); ++i) {
        body.decoded.push_back(decoded[i]);
        body.residual.push_back(values[i] - decoded[i]);
      }
    }
    begin += group.count;
  }
  body.bytes.insert(body.bytes.end(), lengths.begin(), lengths.end());
  pad(body.bytes);
  pad(pieces);
  body.bytes.insert(body.bytes.end(), pieces.begin(), pieces.end());
  return body;
}

std::vector<float> model_contribution(const ModelCodec& codec, std::span<const float> values, std::vector<float>& residual,
                                      std::span<const ModelSegment> segments, std::size_t chunk) {
  std::vector<float> a(values.begin(), values.end());
  for (std::size_t i = 0; i < residual.size(); ++i) a[i] = values[i] + residual[i];
  const std::span<const float> all(a);
  std::vector<float> decoded;
  for (std::size_t begin = 0; begin < a.size(); begin += chunk) {
    const std::size_t end = std::min(a.size(), begin + chunk);
    std::vector<ModelGroup> groups;
    for (const auto& s : segments) {
      const std::size_t from = std::max(begin, s.offset), to = std::min(end, s.offset + s.count);
      if (from >= to) continue;
      if (s.one_scale) {
        groups.push_back({to - from, peak_of(all.subspan(s.offset, s.count))});
      } else {
        for (std::size_t at = from; at < to; at += kBlock)
          groups.push_back({std::min(kBlock, to - at), peak_of(all.subspan(at, std::min(kBlock, to - at)))});
      }
    }
    const ModelBody body = codec.encode(all.subspan(begin, end - begin), groups);
    decoded.insert(decoded.end(), body.decoded.begin(), body.decoded.end());
    if (!residual.empty()) std::copy(body.residual.begin(), body.residual.end(), residual.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return decoded;
}

std::vector<float> model_sum(const std::vector<std::vector<float>>& contributions) {
  std::vector<float> sum(contributions.at(0).size());
  for (const auto& c : contributions)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + c[i];
  return sum;
}

}  // namespace crimp::test
