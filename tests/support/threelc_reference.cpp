#include "support/threelc_reference.hpp"

#include <cmath>
#include <cstring>

#include "support/reference.hpp"

namespace crimp::test {
namespace {

class ThreeLc final : public ReferenceCodec {
 public:
  explicit ThreeLc(const std::string& spec) : s_(std::stof(parameter(spec, "s"))), zero_run_(parameter(spec, "zero_run") == "1") {}
  bool fixed_size() const override { return !zero_run_; }
  Bytes encode(const ReferencePiece& p) const override {
    const float m = scale(p.a);
    Bytes bytes(4);
    std::memcpy(bytes.data(), &m, 4);
    const Bytes base = threelc_base_bytes(p.a, m), coded = zero_run_ ? threelc_run_coded(base) : base;
    bytes.insert(bytes.end(), coded.begin(), coded.end());
    return bytes;
  }
  std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count, const Place&) const override {
    float m;
    std::memcpy(&m, piece.data(), 4);
    piece = piece.subspan(4);
    return threelc_values(zero_run_ ? threelc_expanded(piece, (count + 4) / 5).value() : Bytes(piece.begin(), piece.end()), count, m);
  }
  double allowed(std::span<const float> a, std::size_t) const override {
    return static_cast<double>(scale(a)) * 0.5 * (1 + 0x1p-22) + 0x1p-149;
  }

 private:
  float scale(std::span<const float> a) const {
    float peak = 0;
    for (const float x : a) peak = std::fabs(x) > peak ? std::fabs(x) : peak;
    return s_ * peak;
  }
  float s_;
  bool zero_run_;
};

}  // namespace

std::unique_ptr<const ReferenceCodec> threelc_reference(const std::string& spec) { return std::make_unique<ThreeLc>(spec); }

}  // namespace crimp::test
