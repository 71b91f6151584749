// Codecs: how a run of floats becomes a payload and is added back.
//
// Terms as in GRACE: a codec encodes, decodes and has a memory (the residual of error feedback). The framing that every codec shares
// (scales, piece lengths, threads, checks) is in crimp/payload.hpp; a codec supplies the operations on one group and one piece.
//
// Threading: a Codec is immutable; every member may be called from any number of threads at once.
// Errors: encode_* cannot fail. decode_add_piece returns false on bytes that the format does not allow, and then has added nothing
// outside [acc, acc + count).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crimp/types.hpp"

namespace crimp {

class Codec {
 public:
  struct Traits {
    const char* name;        // as in CRIMP_CODEC
    std::uint8_t wire_id;    // WIRE_FORMAT.md, section 2; never reused
    bool fixed_size;         // piece bytes depend on the piece's element count only
    bool has_scale;          // one float32 per group goes in front of the pieces
    bool needs_residual;     // biased: meant to run with error feedback, replaced where no residual can be kept
    float max_magnitude;     // |value| above this (or NaN, Inf) sends the call through MPI
  };
  virtual ~Codec() = default;
  virtual const Traits& traits() const = 0;
  // The canonical text, all parameters written out: "3lc:s=1,zero_run=1". make_codec(spec()) gives an equal codec.
  virtual std::string spec() const = 0;
  // What a receiver must know beyond the traits; equal on all ranks, checked in the header.
  virtual std::uint32_t parameter_word() const { return 0; }

  // Bytes that encode_piece may write for `count` elements (exactly this many where fixed_size). At most 65535 where not.
  virtual std::size_t piece_bound(std::uint64_t count) const = 0;

  // The scale of a group: values[i] + residual[i] over count elements (residual may be null). Order-free: max or integer sums.
  virtual float measure(const float* /*values*/, const float* /*residual*/, std::uint64_t /*count*/) const { return 0.0f; }

  // Encodes a = values + residual (residual_in null: values alone) of one piece, writes a - decode(a) to residual_out unless that
  // is null (it may equal residual_in), and returns the bytes written to `out`, which has room for piece_bound(count).
  virtual std::size_t encode_piece(const float* values, const float* residual_in, float* residual_out, std::uint64_t count,
                                   float scale, std::uint8_t* out) const = 0;

  // acc[i] += decoded[i] for the piece's count elements.
  virtual bool decode_add_piece(const std::uint8_t* in, std::size_t bytes, std::uint64_t count, float scale, float* acc) const = 0;
};

struct CodecParameter {
  std::string_view key, default_value, legal, meaning;
};
struct CodecInfo {
  std::string_view name, summary, source;  // source: the paper, section or standard
  Codec::Traits traits;
  std::vector<CodecParameter> parameters;
};

// Every codec of this build, in wire_id order; src/codec/registry.cpp holds one line per codec.
std::span<const CodecInfo> codecs();
// Parses "name" or "name:key=value,key=value". Throws Error{codec_unknown} that names the bad part and lists what is legal.
std::shared_ptr<const Codec> make_codec(std::string_view spec);
// The codec with this wire id, default parameters; null where unknown. For reading traits of what arrived.
const CodecInfo* find_codec(std::uint8_t wire_id);

// How many float32 lanes the chosen SIMD target has, and its name ("AVX3").
std::string simd_target();

}  // namespace crimp
