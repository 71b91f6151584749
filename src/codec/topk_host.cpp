// Top-k: the k elements of the largest magnitude of a group, exactly.
#include "codec/host_codecs.hpp"
#include "codec/select.hpp"
#include "codec/sparse.hpp"

namespace crimp {
namespace {

class TopK final : public SparseCodec {
 public:
  explicit TopK(const SpecValues& values) : SparseCodec(kTraits, values), ratio_(sparse_ratio(values)) {}
  Selection select(const float* values, const float* residual, std::uint64_t count, const Place&) const override {
    const auto [threshold, ties] = select::largest(values, residual, count, share_of(ratio_, count), select::Side::magnitude);
    return {threshold, threshold, ties, ties};
  }
  static constexpr Traits kTraits{.name = "topk", .wire_id = 18, .fixed_size = false, .biased = true, .memory = MemoryKind::residual, .max_magnitude = kSparseMagnitude, .selects = true};

 private:
  float ratio_;
};

}  // namespace

CodecEntry topk_entry() {
  return {{"topk", "the k largest magnitudes of a tensor, exactly, as values and gaps between them", "d = a where |a| is among the k largest (equal ones: lowest index first), else 0",
           "Aji and Heafield, EMNLP 2017; error feedback: Stich et al., NeurIPS 2018", "0.41 at ratio 0.01 (0.25 with f16), 3.8 at 0.1",
           "slow networks and few ranks: payloads of all ranks add up. A threshold kept over steps (Ok-Topk) is not offered: it would be state, codecs have none, and the exact selection "
           "is one pass over the tensor",
           TopK::kTraits, {ratio_parameter(), SparseCodec::value_parameter()}},
          [](const SpecValues& v) -> std::shared_ptr<Codec> { return std::make_shared<TopK>(v); }};
}

}  // namespace crimp
