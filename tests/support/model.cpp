#include "support/model.hpp"

#include <algorithm>

namespace crimp::test {
namespace {

constexpr std::size_t kPiece = 10240;

void pad(Bytes& bytes) { bytes.resize((bytes.size() + 63) / 64 * 64); }

}  // namespace

ModelBody ModelCodec::encode(std::span<const float> a, std::span<const std::size_t> groups, const Place& place) const {
  ModelBody body;
  Bytes pieces;
  std::size_t begin = 0;
  for (const std::size_t count : groups) {
    Place here = place;
    here.element += begin;
    const Selection selection = codec_->select(a.subspan(begin, count), here);
    for (std::size_t at = 0; at < count; at += kPiece) {
      const auto values = a.subspan(begin + at, std::min(kPiece, count - at));
      Place of_piece = here;
      of_piece.element += at;
      const Bytes piece = codec_->encode({values, of_piece, selection, at});
      if (!codec_->fixed_size()) {
        body.bytes.push_back(static_cast<std::uint8_t>(piece.size() & 0xff));
        body.bytes.push_back(static_cast<std::uint8_t>(piece.size() >> 8));
      }
      pieces.insert(pieces.end(), piece.begin(), piece.end());
      const auto decoded = codec_->decode(piece, values.size(), {of_piece.element, of_piece.step, 0});
      for (std::size_t i = 0; i < values.size(); ++i) {
        body.decoded.push_back(decoded[i]);
        body.residual.push_back(values[i] - decoded[i]);
      }
    }
    begin += count;
  }
  pad(body.bytes);
  pad(pieces);
  body.bytes.insert(body.bytes.end(), pieces.begin(), pieces.end());
  return body;
}

std::vector<float> model_contribution(const ModelCodec& codec, std::span<const float> values, std::vector<float>& residual,
                                      std::span<const ModelSegment> segments, std::size_t chunk, std::uint32_t step, std::uint32_t rank) {
  std::vector<float> a(values.begin(), values.end());
  for (std::size_t i = 0; i < residual.size(); ++i) a[i] = values[i] + residual[i];
  std::vector<float> decoded;
  for (std::size_t begin = 0; begin < a.size(); begin += chunk) {
    const std::size_t end = std::min(a.size(), begin + chunk);
    std::vector<std::size_t> groups;
    for (const auto& s : segments) {
      const std::size_t from = std::max(begin, s.offset), to = std::min(end, s.offset + s.count);
      if (from < to) groups.push_back(to - from);
    }
    const ModelBody body = codec.encode(std::span<const float>(a).subspan(begin, end - begin), groups, {begin, step, rank});
    decoded.insert(decoded.end(), body.decoded.begin(), body.decoded.end());
    if (!residual.empty()) std::copy(body.residual.begin(), body.residual.end(), residual.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return decoded;
}

std::vector<float> model_sum(const ModelCodec& codec, const std::vector<std::vector<float>>& contributions) {
  std::vector<float> sum(contributions.at(0).size());
  for (const auto& c : contributions)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + c[i];
  for (float& x : sum) x = codec.reference().finish(x, static_cast<int>(contributions.size()));
  return sum;
}

}  // namespace crimp::test
