// PowerSGD on the host. All three products read the tensor once from memory for up to four columns: rank 1 to 4 cost
// what memory costs.
#include "codec/powersgd/powersgd.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "codec/powersgd/powersgd_extents.hpp"
#include "codec/registry.hpp"
#include "memory/workers.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/powersgd/powersgd_host.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace crimp::powersgd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using Df = hn::CappedTag<float, 16>;
constexpr std::size_t kMostVectors = kLanes / 4;  // of the narrowest target

template <bool memory>
HWY_INLINE hn::Vec<Df> load(const float* values, const float* residual, std::uint64_t i) {
  const Df d;
  const auto v = hn::LoadU(d, values + i);
  return memory ? hn::Add(v, hn::LoadU(d, residual + i)) : v;
}

// sums[k] = the dot product of n elements with column k of `columns` columns, `stride` apart.
template <bool memory, int columns>
HWY_INLINE void dots(const float* values, const float* residual, std::uint64_t n, const float* q, std::uint64_t stride,
                     float* sums) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d), vectors = kLanes / lanes;
  HWY_ALIGN float lane[columns][kLanes];
  const auto run = [&](auto fixed) HWY_ATTR {
    constexpr std::size_t n_vectors = decltype(fixed)::value;
    hn::Vec<Df> acc[columns][n_vectors];
    for (int k = 0; k < columns; ++k)
      for (std::size_t v = 0; v < n_vectors; ++v) acc[k][v] = hn::Zero(d);
    for (std::uint64_t j = 0; j + kLanes <= n; j += kLanes)
      for (std::size_t v = 0; v < n_vectors; ++v) {
        const auto a = load<memory>(values, residual, j + v * lanes);
        for (int k = 0; k < columns; ++k)
          acc[k][v] =
              hn::Add(acc[k][v], hn::Mul(a, hn::LoadU(d, q + static_cast<std::uint64_t>(k) * stride + j + v * lanes)));
      }
    for (int k = 0; k < columns; ++k)
      for (std::size_t v = 0; v < n_vectors; ++v) hn::Store(acc[k][v], d, lane[k] + v * lanes);
  };
  if (vectors == 2) run(std::integral_constant<std::size_t, 2>());
  else if (vectors == 4) run(std::integral_constant<std::size_t, 4>());
  else run(std::integral_constant<std::size_t, kMostVectors>());
  for (int k = 0; k < columns; ++k) {
    float* l = lane[k];
    for (std::uint64_t j = n / kLanes * kLanes; j < n; ++j)
      l[j % kLanes] += (memory ? values[j] + residual[j] : values[j]) * q[static_cast<std::uint64_t>(k) * stride + j];
    for (std::uint32_t half = kLanes / 2; half > 0; half /= 2)
      for (std::uint32_t i = 0; i < half; ++i) l[i] += l[i + half];
    sums[k] = l[0];
  }
}

template <bool memory, int columns>
void multiply_columns(const Matrix& m, Source a, const float* q, float* p, std::uint64_t first, std::uint64_t last) {
  float sums[columns];
  for (std::uint64_t i = first; i < last; ++i) {
    const std::uint64_t at = i * m.cols;
    dots<memory, columns>(a.values + at, memory ? a.residual + at : nullptr, std::min(m.cols, m.count - at), q, m.cols,
                          sums);
    for (int k = 0; k < columns; ++k) p[static_cast<std::uint64_t>(k) * m.rows + i] = sums[k];
  }
}

// Rows [row, row + rows) of one tile of columns; the compiler keeps the columns' sums in registers.
template <bool memory, int columns, int rows>
HWY_INLINE void add_rows(const Matrix& m, Source a, const float* p, float* q, std::uint64_t row, std::uint64_t first,
                         std::uint64_t last) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  const float* values = a.values + row * m.cols;
  const float* residual = memory ? a.residual + row * m.cols : nullptr;
  std::uint64_t j = first;
  for (; j + lanes <= last; j += lanes) {
    hn::Vec<Df> sum[columns];
    for (int k = 0; k < columns; ++k) sum[k] = hn::LoadU(d, q + static_cast<std::uint64_t>(k) * m.cols + j);
    for (int r = 0; r < rows; ++r) {
      const auto x = load<memory>(values + static_cast<std::uint64_t>(r) * m.cols,
                                  memory ? residual + static_cast<std::uint64_t>(r) * m.cols : nullptr, j);
      for (int k = 0; k < columns; ++k)
        sum[k] = hn::Add(
            sum[k],
            hn::Mul(x, hn::Set(d, p[static_cast<std::uint64_t>(k) * m.rows + row + static_cast<std::uint64_t>(r)])));
    }
    for (int k = 0; k < columns; ++k) hn::StoreU(sum[k], d, q + static_cast<std::uint64_t>(k) * m.cols + j);
  }
  for (; j < last; ++j)
    for (int k = 0; k < columns; ++k)
      for (int r = 0; r < rows; ++r) {
        const std::uint64_t i = static_cast<std::uint64_t>(r) * m.cols + j;
        q[static_cast<std::uint64_t>(k) * m.cols + j] +=
            (memory ? values[i] + residual[i] : values[i]) *
            p[static_cast<std::uint64_t>(k) * m.rows + row + static_cast<std::uint64_t>(r)];
      }
}

template <bool memory, int columns>
void transposed_columns(const Matrix& m, Source a, const float* p, float* q, std::uint64_t first, std::uint64_t last) {
  for (int k = 0; k < columns; ++k)
    std::fill(q + static_cast<std::uint64_t>(k) * m.cols + first, q + static_cast<std::uint64_t>(k) * m.cols + last,
              0.0f);
  const std::uint64_t full = m.count / m.cols;
  std::uint64_t row = 0;
  for (; row + 4 <= full; row += 4) add_rows<memory, columns, 4>(m, a, p, q, row, first, last);
  for (; row < full; ++row) add_rows<memory, columns, 1>(m, a, p, q, row, first, last);
  if (full < m.rows)
    add_rows<memory, columns, 1>(m, a, p, q, full, first, std::max(first, std::min(last, m.count - full * m.cols)));
}

// fn(integral constant, first column) for all columns, four, two or one at a time.
template <class Fn>
void by_columns(std::uint32_t rank, Fn&& fn) {
  std::uint32_t k = 0;
  for (; k + 4 <= rank; k += 4) fn(std::integral_constant<int, 4>(), k);
  for (; k + 2 <= rank; k += 2) fn(std::integral_constant<int, 2>(), k);
  for (; k < rank; ++k) fn(std::integral_constant<int, 1>(), k);
}

void Multiply(const Matrix& m, Source a, const float* q, float* p, std::uint64_t first, std::uint64_t last) {
  by_columns(m.rank, [&](auto columns, std::uint32_t k) {
    if (a.residual) multiply_columns<true, columns()>(m, a, q + k * m.cols, p + k * m.rows, first, last);
    else multiply_columns<false, columns()>(m, a, q + k * m.cols, p + k * m.rows, first, last);
  });
}

void MultiplyTransposed(const Matrix& m, Source a, const float* p, float* q, std::uint64_t first, std::uint64_t last) {
  by_columns(m.rank, [&](auto columns, std::uint32_t k) {
    if (a.residual) transposed_columns<true, columns()>(m, a, p + k * m.rows, q + k * m.cols, first, last);
    else transposed_columns<false, columns()>(m, a, p + k * m.rows, q + k * m.cols, first, last);
  });
}

template <bool memory, bool keep>
void rebuild_rows(const Matrix& m, Source a, const float* p, const float* q, float share, float* out,
                  float* residual_out, std::uint64_t first, std::uint64_t last) {
  const Df d;
  const std::size_t lanes = hn::Lanes(d);
  const auto part = hn::Set(d, share);
  for (std::uint64_t i = first; i < last; ++i) {
    const std::uint64_t at = i * m.cols, n = std::min(m.cols, m.count - at);
    std::uint64_t j = 0;
    for (; j + lanes <= n; j += lanes) {
      auto sum = hn::Zero(d);
      for (std::uint32_t k = 0; k < m.rank; ++k)
        sum = hn::Add(sum, hn::Mul(hn::Set(d, p[k * m.rows + i]), hn::LoadU(d, q + k * m.cols + j)));
      if constexpr (keep)
        hn::StoreU(hn::Sub(load<memory>(a.values, a.residual, at + j), hn::Mul(sum, part)), d, residual_out + at + j);
      hn::StoreU(sum, d, out + at + j);
    }
    for (; j < n; ++j) {
      float sum = 0.0f;
      for (std::uint32_t k = 0; k < m.rank; ++k) sum += p[k * m.rows + i] * q[k * m.cols + j];
      if constexpr (keep)
        residual_out[at + j] = (memory ? a.values[at + j] + a.residual[at + j] : a.values[at + j]) - sum * share;
      out[at + j] = sum;
    }
  }
}

void Rebuild(const Matrix& m, Source a, const float* p, const float* q, float share, float* out, float* residual_out,
             std::uint64_t first, std::uint64_t last) {
  if (!residual_out) rebuild_rows<false, false>(m, a, p, q, share, out, residual_out, first, last);
  else if (a.residual) rebuild_rows<true, true>(m, a, p, q, share, out, residual_out, first, last);
  else rebuild_rows<false, true>(m, a, p, q, share, out, residual_out, first, last);
}

double Dot(const float* a, const float* b, std::uint64_t n) {
  alignas(64) double lane[kDotLanes] = {};
  std::uint64_t i = 0;
  for (; i + kDotLanes <= n; i += kDotLanes)
    for (std::uint32_t l = 0; l < kDotLanes; ++l)
      lane[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);
  for (std::uint32_t l = 0; l < n - i; ++l) lane[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);
  for (std::uint32_t half = kDotLanes / 2; half > 0; half /= 2) {
    if (half >= n) continue;  // lanes without elements are +0, and none is -0
    for (std::uint32_t l = 0; l < half; ++l) lane[l] += lane[l + half];
  }
  return lane[0];
}

}  // namespace crimp::powersgd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp {
namespace powersgd {
HWY_EXPORT(Multiply);
HWY_EXPORT(MultiplyTransposed);
HWY_EXPORT(Rebuild);
HWY_EXPORT(Dot);

void multiply(const Matrix& m, Source a, const float* q, float* p, std::uint64_t first, std::uint64_t last) {
  HWY_DYNAMIC_DISPATCH(Multiply)(m, a, q, p, first, last);
}
void multiply_transposed(const Matrix& m, Source a, const float* p, float* q, std::uint64_t first, std::uint64_t last) {
  HWY_DYNAMIC_DISPATCH(MultiplyTransposed)(m, a, p, q, first, last);
}
void rebuild(const Matrix& m, Source a, const float* p, const float* q, float share, float* out, float* residual_out,
             std::uint64_t first, std::uint64_t last) {
  HWY_DYNAMIC_DISPATCH(Rebuild)(m, a, p, q, share, out, residual_out, first, last);
}

namespace {

constexpr std::uint32_t kRankBits = 4;  // of the parameter word; the rest is the parameter min
inline constexpr Parameter<std::uint32_t> kRank{
    {.key = "r", .default_value = 1, .least = 1, .most = kMostRank, .step = 1, .help = "rank: columns of P and Q"}};
inline constexpr Parameter<std::uint32_t> kMin{
    {.key = "min",
     .default_value = 4096,
     .least = 1,
     .most = 0x1p28 - 1,
     .step = 1,
     .help = "tensors with fewer elements are summed exactly, as are those that would not become 4 times smaller"}};
inline constexpr Parameter<std::uint64_t> kCols{
    {.key = "cols",
     .default_value = 0,
     .least = 0,
     .most = 0x1p24,
     .step = 1,
     .help = "columns of the tensor's matrix, the product of all its extents but the first; 0: they are found"}};
inline constexpr Parameter<std::uint32_t> kStart{
    {.key = "start",
     .default_value = 0,
     .least = 0,
     .most = 0x1p24,
     .step = 1,
     .help = "so many compressed calls of a tensor are summed exactly before"}};

}  // namespace

Matrix matrix_of(std::uint64_t count, std::uint32_t parameter_word, std::uint64_t cols) {
  const std::uint32_t rank = parameter_word & ((1u << kRankBits) - 1);
  Matrix m{count, 0, 0, 0};
  if (count == 0 || count < parameter_word >> kRankBits) return m;
  m.cols = std::min(cols, count);
  if (cols == 0) {
    auto root = static_cast<std::uint64_t>(std::sqrt(static_cast<double>(count)));
    while (root * root < count) ++root;
    while (root > 1 && (root - 1) * (root - 1) >= count) --root;
    m.cols = root;
    // A divisor beside the root is wanted: rows of the tensor's own matrix then stay whole, or are cut alike, and its
    // rank stays low.
    for (std::uint64_t c = root; c <= 4 * root && c <= count; ++c)
      if (count % c == 0) {
        m.cols = c;
        break;
      }
  }
  m.rows = (count + m.cols - 1) / m.cols;
  if (4 * rank * (m.rows + m.cols) <= count) m.rank = rank;
  return m;
}

void orthonormalise(float* columns, std::uint64_t length, std::uint32_t rank, const Fresh* fresh) {
  orthonormalise_with(
      columns, length, rank, fresh,
      [&](const float* a, const float* b) { return HWY_DYNAMIC_DISPATCH(Dot)(a, b, length); },
      [&](auto&& use) {
        for (std::uint64_t e = 0; e < length; ++e) use(e);
      });
}

void run_step(Step step, std::span<const Tensor> tensors, float share, Workers& workers, const Progress& progress) {
  // body(first, last) over [0, n) on all workers, cut at multiples of a cache line of floats.
  const auto share_out = [&](std::uint64_t n, auto body) {
    constexpr std::uint64_t kLine = 16;
    const auto work = [&](int part, int parts) {
      const auto cut = [&](int i) {
        return i == parts ? n : n * static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(parts) / kLine * kLine;
      };
      if (cut(part) < cut(part + 1)) body(cut(part), cut(part + 1));
    };
    workers.run(std::ref(work));  // no copy, which would be an allocation
    if (progress) progress();
  };
  for (const Tensor& t : tensors) {
    const Matrix& m = t.matrix;
    const Source source{t.values, t.memory};
    const std::size_t whole = m.count * sizeof(float), factor = m.right() * sizeof(float);
    switch (step) {
      case Step::project:
        if (m.rank == 0) {
          std::memcpy(t.left, t.values, whole);
          break;
        }
        if (t.memory) std::memcpy(t.before, t.memory + m.count, factor);
        else std::memset(t.before, 0, factor);
        orthonormalise(t.before, m.cols, m.rank, &t.fresh);
        share_out(m.rows,
                  [&](std::uint64_t first, std::uint64_t last) { multiply(m, source, t.before, t.left, first, last); });
        break;
      case Step::project_back:
        if (m.rank == 0) break;
        orthonormalise(t.left, m.rows, m.rank, nullptr);
        share_out(m.cols, [&](std::uint64_t first, std::uint64_t last) {
          multiply_transposed(m, source, t.left, t.right, first, last);
        });
        break;
      case Step::rebuild:
        if (m.rank == 0) {
          std::memcpy(t.out, t.left, whole);
          break;
        }
        share_out(m.rows, [&](std::uint64_t first, std::uint64_t last) {
          rebuild(m, source, t.left, t.right, share, t.out, t.memory, first, last);
        });
        if (t.memory) std::memcpy(t.memory + m.count, t.right, factor);
        break;
    }
  }
}

namespace {

class PowerSgd final : public Codec {
 public:
  explicit PowerSgd(const SpecValues& values)
      : parameters_{.rank = values[kRank], .min = values[kMin], .start = values[kStart], .cols = values[kCols]},
        word_(parameters_.min << kRankBits | parameters_.rank) {
    const FeedbackPolicy memory = values.feedback(kTraits);
    if (memory.kind != FeedbackKind::none && memory.kind != FeedbackKind::residual)
      values.refuse(kMemory, "residual or none: PowerSGD's memory is the residual and Q");
    if (memory.decay != 1.0f) values.refuse(kDecay, "1 for this codec");
    if (memory.gamma != 1.0f) values.refuse(kGamma, "1 for this codec");
  }
  const Traits& traits() const override { return kTraits; }
  std::uint32_t parameter_word() const override { return word_; }
  std::uint64_t feedback_elements(std::uint64_t count) const override {
    return powersgd::feedback_elements(count, *this, nullptr);
  }
  const Parameters& parameters() const { return parameters_; }
  // Traits::whole_tensors: there are no pieces.
  std::size_t piece_bound(std::uint64_t) const override { return 0; }
  std::size_t encode_piece(const PieceSource&, std::uint8_t*) const override { return 0; }
  bool decode_add_piece(std::span<const std::uint8_t>, std::uint64_t, const RandomCounter&, float*) const override {
    return false;
  }

  // Above 2^80 the sums of squares of residuals could leave float32.
  static constexpr Traits kTraits{.name = "powersgd",
                                  .wire_id = 24,
                                  .fixed_size = true,
                                  .biased = true,
                                  .memory = FeedbackKind::residual,
                                  .max_magnitude = 0x1p80f,
                                  .summable = true,
                                  .whole_tensors = true};

 private:
  Parameters parameters_;
  std::uint32_t word_;
};

}  // namespace

Parameters parameters_of(const Codec& codec) { return static_cast<const PowerSgd&>(codec).parameters(); }

}  // namespace powersgd

CodecEntry powersgd_entry() {
  return {
      {.summary = "each tensor as a product of two thin matrices, by power iteration; algorithm low_rank only",
       .formula =
           "P = orthonormal(sum of M Q), Q = sum of M^T P, result = P Q^T; M = a as a matrix, Q from the call before",
       .source = "PowerSGD: Vogels, Karimireddy, Jaggi, NeurIPS 2019",
       .bits = "32 r (rows + cols) / count: 0.06 for r = 1 and a million values",
       .use =
           "large tensors on very slow networks, tensor by tensor (not merged ones). Columns are the parameter cols (by rules), or what crimp_set_extents says, or found: "
           "the first call tries the divisors of the element count between a sixteenth of its root and 16 times that",
       .traits = powersgd::PowerSgd::kTraits,
       .parameters = {powersgd::kRank, powersgd::kMin, powersgd::kCols, powersgd::kStart, powersgd::kGemm}},
      make_as<powersgd::PowerSgd>};
}

}  // namespace crimp
#endif
