// Codecs: how a run of floats becomes a payload and is added back.
//
// Terms as in GRACE: a codec encodes, decodes and has a memory (the residual of error feedback). The framing that every
// codec shares (piece lengths, threads, memories, checks) is in codec/payload.hpp; a codec supplies the operations on
// one piece.
//
// Threading: a Codec is immutable; every member may be called from any number of threads at once.
// Errors: encode_piece cannot fail. decode_add_piece returns false on bytes that the format does not allow, and then
// has added nothing outside [acc, acc + count).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/parameter.hpp"
#include "core/types.hpp"

namespace crimp {

// Where and when a piece is encoded: random numbers are functions of it (src/codec/coding/dither.hpp). All but `rank`
// is equal on all ranks.
struct RandomCounter {
  std::uint64_t element = 0;  // index of the first element in the call's buffer
  std::uint32_t step = 0;     // compressed calls on this communicator so far: never the same twice
  // Who encodes: a rank, XOR what tells it from a rank of other communicators (CallBuffers::salt); + kSums where it
  // encodes sums. Decoding does not depend on it.
  std::uint32_t rank = 0;
};
// In RandomCounter::rank: what is encoded are sums of decoded payloads (two_shot's owners), so a codec that scales must
// not do it again.
inline constexpr std::uint32_t kSums = 0x80000000;

// What the encoder of a group sends, for codecs that select: a > up, a < -down, and of the elements equal to a
// threshold those whose index in the group is below up_ties (down_ties). Thresholds are not negative; +Inf selects
// nothing. Codecs with scale=tensor find `scale` instead: what they would take from a piece, of the whole group.
struct Selection {
  float up = 0.0f, down = 0.0f;
  std::uint64_t up_ties = 0, down_ties = 0;
  float scale = 0.0f;
};

// GRACE's memories: what of a gradient is kept for later calls. g: the gradient, a: what is encoded, d: what the
// payload decodes to.
enum class FeedbackKind : std::uint8_t {
  none,      // a = g
  residual,  // a = gamma * g + decay * r, r = a - d
  momentum,  // DGC (Lin et al., ICLR 2018, sections 3.2 and 3.3): u = momentum * u + g, a = v + u, v = a - d, u = 0
             // where a - d differs from a; nesterov: u = momentum * (u + g), a = v + (u + g)
  average,   // Signum (Bernstein et al., ICML 2018): m = momentum * m + (1 - momentum) * g, a = m
};
const char* name_of(FeedbackKind);

struct FeedbackPolicy {
  FeedbackKind kind = FeedbackKind::none;
  float decay = 1.0f, gamma = 1.0f, momentum = 0.9f;
  bool nesterov = false;
  float clip = 0.0f;  // of memory momentum, 0: none: most of a tensor's Euclidean norm in the sum over the ranks; each
                      // rank's gradients have 1 / sqrt(ranks) of it
  bool kept() const { return kind != FeedbackKind::none; }
  // Arrays of one float32 per element that are kept per tensor.
  int arrays() const { return kind == FeedbackKind::none ? 0 : kind == FeedbackKind::momentum ? 2 : 1; }
  // The codec adds the residual itself, while it reads the values.
  bool fused() const {
    return kind == FeedbackKind::none || (kind == FeedbackKind::residual && decay == 1.0f && gamma == 1.0f);
  }
};

// One piece to encode: a = values + residual_in (null: values alone).
struct PieceSource {
  const float* values;
  const float* residual_in;
  float* residual_out;  // receives a - decode(a) unless null; may equal residual_in, and where the codec
                        // marks_changes() values
  std::uint64_t count;  // 1..kPieceElements
  RandomCounter counter;
  Selection selection;               // the group's, where the codec selects
  std::uint64_t in_group = 0;        // index of the piece's first element in its group
  std::uint64_t* changed = nullptr;  // unless null, and where the codec marks_changes(): receives a bit per element,
                                     // set where residual_out differs from a
};

class Homomorphic;  // codec/homomorphic.hpp

class Codec {
 public:
  struct Traits {
    const char* name;                // as in CRIMP_CODEC
    std::uint8_t wire_id;            // WIRE_FORMAT.md, section 2; never reused
    bool fixed_size;                 // piece bytes depend on the piece's element count only
    bool biased;                     // needs a memory to converge; replaced where none can be kept
    FeedbackKind memory;             // the default
    float max_magnitude;             // |value| above this (or NaN, Inf) sends the call through MPI
    float min_magnitude = 0x1p-80f;  // as does a tensor (where they are unknown: a buffer) whose largest |value| is
                                     // below this, unless it is 0
    bool summable =
        false;  // sums of payloads are payloads: two-shot exchanges lose nothing (fp16, bf16: round once more)
    bool selects = false;                 // select() looks at the whole group first
    bool votes = false;                   // finish_piece() turns the sum into the result
    bool diverges_with_residual = false;  // memory=residual and memory=momentum are refused unless force=1
    bool whole_tensors =
        false;  // works on tensors, not on pieces: the algorithm low_rank alone runs it, no piece function is called
    bool hides_stores = false;  // on the host decoding takes long enough for stores to memory behind it, so that to
                                // make them apart (memory/streamed.hpp) would take longer
  };
  virtual ~Codec() = default;
  virtual const Traits& traits() const = 0;
  // The canonical text, all parameters written out: "3lc:s=1,zero_run=1". make_codec(spec()) gives an equal codec.
  const std::string& spec() const { return spec_; }
  const FeedbackPolicy& feedback() const { return feedback_; }
  // The value of one of the codec's own parameters: what its kernels are made with. Throws Error{codec_unknown} where
  // the codec has none of the row's key.
  template <class T>
  T parameter(const Parameter<T>& row) const {
    return static_cast<T>(parameter_value(row.key));
  }
  // What a receiver must know beyond the traits; equal on all ranks, checked in the header.
  virtual std::uint32_t parameter_word() const { return 0; }

  // Floats of memory that a tensor of `count` elements has: its arrays, then kStateFloats for each group of it that
  // keeps a state.
  virtual std::uint64_t feedback_elements(std::uint64_t count) const {
    return count * static_cast<std::uint64_t>(feedback_.arrays()) + state_elements(count);
  }
  // Whether select_again() takes a state from call to call. It lives and dies with the memory; where none is kept every
  // call begins anew.
  virtual bool keeps_state() const { return false; }
  static constexpr std::uint64_t kStateFloats = 2;
  std::uint64_t state_elements(std::uint64_t count) const { return keeps_state() ? state_at(count) + kStateFloats : 0; }
  // Where the state of the group is that begins with this element of the tensor, behind the arrays. Groups of a tensor
  // begin at least a piece apart, but for the first one, which may be shorter.
  static std::uint64_t state_at(std::uint64_t element) {
    return kStateFloats * ((element + kPieceElements - 1) / kPieceElements);
  }

  // Bytes that encode_piece may write for `count` elements (exactly this many where fixed_size). At most 65535.
  virtual std::size_t piece_bound(std::uint64_t count) const = 0;

  // Looks at a whole group, a = values + residual (residual may be null), before its pieces are encoded. Only where
  // traits().selects.
  virtual Selection select(const float* /*values*/, const float* /*residual*/, std::uint64_t /*count*/,
                           const RandomCounter&) const {
    return {};
  }

  // The same with the state of the call before, zeros at first, and what the next call shall see; `next` may be
  // `state`. Only where keeps_state().
  virtual Selection select_again(const float* values, const float* residual, std::uint64_t count,
                                 const RandomCounter& counter, const float* /*state*/, float* /*next*/) const {
    return select(values, residual, count, counter);
  }

  // The same for codecs whose parameters change with the tensor's turns: `turn` compressed calls have seen its memory
  // before this one. Where none is kept: calls of the communicator. What is decoded does not depend on it.
  virtual Selection select_in_turn(const float* values, const float* residual, std::uint64_t count,
                                   const RandomCounter& counter, std::uint32_t /*turn*/) const {
    return select(values, residual, count, counter);
  }

  // Encodes one piece and returns the bytes written to `out`, which has room for piece_bound(count).
  virtual std::size_t encode_piece(const PieceSource&, std::uint8_t* out) const = 0;

  // Whether encode_piece() fills PieceSource::changed, and may write the residual over the values.
  virtual bool marks_changes() const { return false; }

  // acc[i] += decoded[i] for the piece's count elements.
  virtual bool decode_add_piece(std::span<const std::uint8_t> in, std::uint64_t count, const RandomCounter&,
                                float* acc) const = 0;

  // The error of what is encoded twice, by its ranks and then as a sum (two_shot), over the error of what is encoded
  // once, for ranks whose values are independent of each other: of squared errors; with a residual, which returns them,
  // of the norms of what all residuals hold. About, and not too low: 2 is one more error like the first. Equal on all
  // ranks. docs/codecs.md, "What an algorithm does to a codec", has the sources.
  virtual double error_of_two_encodings() const {
    return feedback_.kind == FeedbackKind::residual || feedback_.kind == FeedbackKind::momentum ? 1.5 : 2.0;
  }

  // Makes the result of a piece from the sum over `ranks` payloads: a majority vote. Only where traits().votes.
  virtual void finish_piece(float* /*acc*/, std::uint64_t /*count*/, int /*ranks*/) const {}

  // How payloads are summed without being decoded, null where they are not. Lives as long as the codec.
  virtual const Homomorphic* homomorphic() const { return nullptr; }

 private:
  friend std::shared_ptr<const Codec> make_codec(std::string_view spec);
  double parameter_value(std::string_view key) const;
  std::string spec_;
  FeedbackPolicy feedback_;
  std::vector<std::pair<std::string_view, double>> parameters_;
};

struct CodecInfo {
  std::string_view name = {};                 // the registry's
  std::string_view summary, formula, source;  // source: the paper, section or standard
  std::string_view bits, use;                 // bits per value as a text; when to use it
  Codec::Traits traits;
  std::vector<CodecParameter> parameters = {};
};

// Every codec of this build, in wire_id order: the rows of src/codec/registry.def.
std::span<const CodecInfo> codecs();
// Parses "name" or "name:key=value,key=value". Besides its own parameters every codec knows
// memory=none|residual|momentum|average, decay=0..1 and gamma=0..1 (of a residual), momentum=0..1, nesterov=1 (of
// momentum) and force=1 (a memory with which the codec is known to diverge). Throws Error{codec_unknown} that names the
// bad part and lists what is legal.
std::shared_ptr<const Codec> make_codec(std::string_view spec);

}  // namespace crimp
