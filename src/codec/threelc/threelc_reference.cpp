#include "codec/threelc/threelc_reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/coding/prefix_code.hpp"
#include "support/reference.hpp"

namespace crimp::test {

// Bit by bit; the tables of codes are the library's (codec/coding/prefix_code_test.cpp looks at them).
Bytes threelc_prefix_coded(const Bytes& symbols, std::size_t base) {
  const int density = threelc::density_of(symbols.size(), base);
  const auto& code = threelc::prefix_code(density);
  std::vector<bool> bits[4];
  for (std::size_t i = 0; i < symbols.size(); ++i)
    for (int b = 0; b < code.length[symbols[i]]; ++b) bits[i % 4].push_back(code.code[symbols[i]] >> b & 1);
  Bytes out{static_cast<std::uint8_t>(density)};
  const auto number = [&](std::size_t x) {
    out.push_back(static_cast<std::uint8_t>(x & 255));
    out.push_back(static_cast<std::uint8_t>(x >> 8));
  };
  number(symbols.size());
  for (int s = 0; s < 3; ++s) number((bits[s].size() + 7) / 8);
  for (const auto& stream : bits)
    for (std::size_t i = 0; i < stream.size(); i += 8) {
      int byte = 0;
      for (std::size_t b = i; b < std::min(i + 8, stream.size()); ++b) byte |= static_cast<int>(stream[b]) << (b - i);
      out.push_back(static_cast<std::uint8_t>(byte));
    }
  if (out.size() <= symbols.size()) return out;
  out.assign(1, threelc::kPlain);
  out.insert(out.end(), symbols.begin(), symbols.end());
  return out;
}

Bytes threelc_prefix_expanded(std::span<const std::uint8_t> in) {
  if (in[0] == threelc::kPlain) return {in.begin() + 1, in.end()};
  const auto& code = threelc::prefix_code(in[0]);
  const auto number = [&](std::size_t i) { return static_cast<std::size_t>(in[1 + 2 * i] | in[2 + 2 * i] << 8); };
  std::size_t at[4] = {9 * 8};
  for (std::size_t s = 1; s < 4; ++s) at[s] = at[s - 1] + 8 * number(s);
  Bytes symbols;
  for (std::size_t i = 0; i < number(0); ++i) {
    unsigned word = 0;
    for (unsigned length = 1, found = 0; !found; ++length) {
      word |= static_cast<unsigned>(in[at[i % 4] / 8] >> at[i % 4] % 8 & 1) << (length - 1);
      ++at[i % 4];
      for (unsigned s = 0; s < 256 && !found; ++s)
        if (code.length[s] == length && code.code[s] == word)
          symbols.push_back(static_cast<std::uint8_t>(s)), found = 1;
    }
  }
  return symbols;
}

namespace {

class ThreeLc final : public ReferenceCodec {
 public:
  explicit ThreeLc(const std::string& spec)
      : s_(std::stof(parameter(spec, "s"))), zero_run_(parameter(spec, "zero_run") == "1"),
        entropy_(parameter(spec, "entropy") == "1"), tensor_(parameter(spec, "scale") == "tensor") {}
  Selection select(std::span<const float> group, const RandomCounter&) const override { return {.scale = peak(group)}; }
  bool fixed_size() const override { return !zero_run_; }
  Bytes encode(const ReferencePiece& p) const override {
    const float m = tensor_ ? s_ * p.selection.scale : scale(p.a);
    Bytes bytes(4);
    std::memcpy(bytes.data(), &m, 4);
    const Bytes base = threelc_base_bytes(p.a, m);
    Bytes coded = zero_run_ ? threelc_run_coded(base) : base;
    if (entropy_) coded = threelc_prefix_coded(coded, base.size());
    bytes.insert(bytes.end(), coded.begin(), coded.end());
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                            const RandomCounter&) const override {
    float m;
    std::memcpy(&m, piece.data(), 4);
    piece = piece.subspan(4);
    Bytes coded;
    if (entropy_) {
      coded = threelc_prefix_expanded(piece);
      piece = coded;
    }
    return threelc_values(
        zero_run_ ? threelc_expanded(piece, (count + 4) / 5).value() : Bytes(piece.begin(), piece.end()), count, m);
  }
  std::vector<double> allowed(std::span<const float> a) const override {
    const double most = tensor_ ? -1 : static_cast<double>(scale(a)) * 0.5 * (1 + 0x1p-22) + 0x1p-149;
    return std::vector<double>(a.size(), most);
  }

 private:
  static float peak(std::span<const float> a) {
    float peak = 0;
    for (const float x : a) peak = std::fabs(x) > peak ? std::fabs(x) : peak;
    return peak;
  }
  float scale(std::span<const float> a) const { return s_ * peak(a); }
  float s_;
  bool zero_run_, entropy_, tensor_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> threelc_reference(const std::string& spec) {
  if (codec_of(spec) != "3lc") return nullptr;
  return std::make_unique<ThreeLc>(spec);
}

}  // namespace crimp::test
