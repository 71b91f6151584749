// The wire format without SIMD, threads or pipeline: bodies, decoded values, new residuals and whole calls, from
// WIRE_FORMAT.md alone.
#pragma once
#include "support/reference.hpp"

namespace crimp::test {

struct ModelBody {
  Bytes bytes;
  std::vector<float> decoded, residual;  // residual = a - decoded
};

class ModelCodec {
 public:
  explicit ModelCodec(const std::string& spec) : codec_(make_reference(spec)) {}  // canonical text
  const ReferenceCodec& reference() const { return *codec_; }
  // Groups of the given lengths tile `a`; `counter` is that of its first element.
  ModelBody encode(std::span<const float> a, std::span<const std::size_t> groups, const RandomCounter& counter) const;

 private:
  std::unique_ptr<const ReferenceCodec> codec_;
};

struct ModelSegment {
  std::size_t offset, count;
};

// One rank's part of a call: encodes `values` + `residual` (empty: no error feedback) chunk by chunk. Returns the
// decoded values; `residual` becomes the new one.
std::vector<float> model_contribution(const ModelCodec&, std::span<const float> values, std::vector<float>& residual,
                                      std::span<const ModelSegment>, std::size_t chunk, std::uint32_t step,
                                      std::uint32_t rank);
struct ModelRank {
  std::span<const float> values;
  std::vector<float>*residual, *owner_residual;  // become the new ones; empty: none
};
// The two-shot sums on all ranks. A chunk's pieces are dealt to ranks in runs, rank q's beginning with piece P q / n of
// P; every run is encoded on its own, its sum over the ranks once more by its owner.
std::vector<float> model_two_shot(const ModelCodec&, std::span<const ModelRank>, std::span<const ModelSegment>,
                                  std::size_t chunk, std::uint32_t step);
// The sums over ranks in rank order, from +0, finished.
std::vector<float> model_sum(const ModelCodec&, const std::vector<std::vector<float>>& contributions);

}  // namespace crimp::test
