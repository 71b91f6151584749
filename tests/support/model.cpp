#include "support/model.hpp"

#include <algorithm>

namespace crimp::test {
namespace {

constexpr std::size_t kPiece = 10240;

void pad(Bytes& bytes) { bytes.resize((bytes.size() + 63) / 64 * 64); }

}  // namespace

ModelBody ModelCodec::encode(std::span<const float> a, std::span<const std::size_t> groups,
                             const RandomCounter& counter) const {
  ModelBody body;
  Bytes pieces;
  std::size_t begin = 0;
  for (const std::size_t count : groups) {
    RandomCounter here = counter;
    here.element += begin;
    const Selection selection = codec_->select(a.subspan(begin, count), here);
    for (std::size_t at = 0; at < count; at += kPiece) {
      const auto values = a.subspan(begin + at, std::min(kPiece, count - at));
      RandomCounter of_piece = here;
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

std::vector<float> model_contribution(const ModelCodec& codec, std::span<const float> values,
                                      std::vector<float>& residual, std::span<const ModelSegment> segments,
                                      std::size_t chunk, std::uint32_t step, std::uint32_t rank) {
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
    const ModelBody body =
        codec.encode(std::span<const float>(a).subspan(begin, end - begin), groups, {begin, step, rank});
    decoded.insert(decoded.end(), body.decoded.begin(), body.decoded.end());
    if (!residual.empty())
      std::copy(body.residual.begin(), body.residual.end(), residual.begin() + static_cast<std::ptrdiff_t>(begin));
  }
  return decoded;
}

std::vector<float> model_two_shot(const ModelCodec& codec, std::span<const ModelRank> ranks,
                                  std::span<const ModelSegment> segments, std::size_t chunk, std::uint32_t step) {
  const std::size_t n = ranks.size(), count = ranks[0].values.size();
  std::vector<float> out(count);
  const auto add = [](std::vector<float> a, const std::vector<float>& residual, std::size_t from) {
    for (std::size_t i = 0; i < a.size() && !residual.empty(); ++i) a[i] = a[i] + residual[from + i];
    return a;
  };
  const auto replace = [](std::vector<float>& residual, const std::vector<float>& by, std::size_t from) {
    if (!residual.empty()) std::copy(by.begin(), by.end(), residual.begin() + static_cast<std::ptrdiff_t>(from));
  };
  for (std::size_t begin = 0; begin < count; begin += chunk) {
    const std::size_t end = std::min(count, begin + chunk);
    struct Piece {
      std::size_t begin, count, segment;
    };
    std::vector<Piece> pieces;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      const std::size_t from = std::max(begin, segments[s].offset),
                        to = std::min(end, segments[s].offset + segments[s].count);
      for (std::size_t at = from; at < to; at += kPiece) pieces.push_back({at, std::min(kPiece, to - at), s});
    }
    for (std::size_t q = 0; q < n; ++q) {
      const std::size_t first = pieces.size() * q / n, last = pieces.size() * (q + 1) / n;
      if (first == last) continue;
      std::vector<std::size_t> groups;
      std::size_t length = 0;
      for (std::size_t p = first; p < last; ++p) {
        if (p > first && pieces[p].segment == pieces[p - 1].segment) {
          groups.back() += pieces[p].count;
        } else {
          groups.push_back(pieces[p].count);
        }
        length += pieces[p].count;
      }
      const std::size_t at = pieces[first].begin;
      std::vector<std::vector<float>> contributions;
      for (std::size_t r = 0; r < n; ++r) {
        const auto values = ranks[r].values.subspan(at, length);
        const ModelBody body = codec.encode(add({values.begin(), values.end()}, *ranks[r].residual, at), groups,
                                            {at, step, static_cast<std::uint32_t>(r)});
        contributions.push_back(body.decoded);
        replace(*ranks[r].residual, body.residual, at);
      }
      std::vector<float>& owner = *ranks[q].owner_residual;
      const ModelBody sum = codec.encode(add(model_sum(codec, contributions), owner, at), groups,
                                         {at, step, 0x80000000u + static_cast<std::uint32_t>(q)});
      replace(owner, sum.residual, at);
      // Decoding starts from +0, as every sum does.
      for (std::size_t i = 0; i < length; ++i)
        out[at + i] = codec.reference().finish(0.0f + sum.decoded[i], static_cast<int>(n));
    }
  }
  return out;
}

std::vector<float> model_sum(const ModelCodec& codec, const std::vector<std::vector<float>>& contributions) {
  std::vector<float> sum(contributions.at(0).size());
  for (const auto& c : contributions)
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + c[i];
  for (float& x : sum) x = codec.reference().finish(x, static_cast<int>(contributions.size()));
  return sum;
}

}  // namespace crimp::test
