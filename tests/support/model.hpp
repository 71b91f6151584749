// The wire format without SIMD, threads or pipeline: bodies, decoded values, new residuals and whole calls, from WIRE_FORMAT.md alone.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace crimp::test {

// A run of elements with one scale; `peak` is the largest |a| that sets it (of the whole tensor).
struct ModelGroup {
  std::size_t count;
  float peak;
};

struct ModelBody {
  std::vector<std::uint8_t> bytes;
  std::vector<float> decoded, residual;  // residual = a - decoded
};

class ModelCodec {
 public:
  explicit ModelCodec(const std::string& spec);  // canonical text
  bool has_scale() const { return kind_ == Kind::threelc; }
  bool fixed_size() const { return kind_ != Kind::threelc || !zero_run_; }
  float scale(float peak) const { return s_ * peak; }
  // Groups tile `a`.
  ModelBody encode(std::span<const float> a, std::span<const ModelGroup> groups) const;

 private:
  enum class Kind { none, fp16, bf16, threelc };
  std::vector<std::uint8_t> encode_piece(std::span<const float> a, float scale) const;
  std::vector<float> decode_piece(std::span<const std::uint8_t> bytes, std::size_t count, float scale) const;
  Kind kind_;
  float s_ = 1.0f;
  bool zero_run_ = true;
};

struct ModelSegment {
  std::size_t offset, count;
  bool one_scale;
};

// One rank's part of a call: encodes `values` + `residual` (empty: no error feedback) chunk by chunk. Returns the decoded values;
// `residual` becomes the new one.
std::vector<float> model_contribution(const ModelCodec&, std::span<const float> values, std::vector<float>& residual,
                                      std::span<const ModelSegment>, std::size_t chunk);
// The sums over ranks in rank order, from +0.
std::vector<float> model_sum(const std::vector<std::vector<float>>& contributions);

}  // namespace crimp::test
