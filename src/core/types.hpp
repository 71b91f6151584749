// Element types and the few sizes that the wire format fixes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace crimp {

// Values of both enums are wire values (src/codec/WIRE_FORMAT.md, section 2).
enum class Dtype : std::uint8_t { f32 = 1, f64 = 2, f16 = 3, bf16 = 4 };

constexpr std::size_t size_of(Dtype t) { return t == Dtype::f64 ? 8 : t == Dtype::f32 ? 4 : 2; }
constexpr const char* name_of(Dtype t) {
  switch (t) {
    case Dtype::f32: return "float32";
    case Dtype::f64: return "float64";
    case Dtype::f16: return "float16";
    case Dtype::bf16: return "bfloat16";
  }
  return "?";
}

// How a call's payloads travel; the table of algorithms is src/collective/algorithms.hpp.
enum class Algorithm : std::uint8_t {
  allgather = 0,
  two_shot = 1,
  homomorphic = 2,
  low_rank = 3,
  hierarchical = 4,
  integer_sum = 5,
  reduce_scatter = 6,
  one_shot = 7,
  node_sum = 8
};

// Codecs see float32 only; other types are widened (or, float64, narrowed) on entry and rounded once on exit.

// A piece is what one worker (or one CUDA block) encodes or decodes on its own, with scales of its own: merged buffers
// mix layers, and longer blocks mix more of them (docs/design_notes.md). 64 tiles of 160 elements, ten rotations of
// 1024; 40 KiB of floats stay in L1.
inline constexpr std::uint64_t kPieceElements = 10240;
// Payload bodies are padded to this, so that MPI counts and displacements in these units reach 128 GiB per message.
inline constexpr std::uint64_t kPayloadAlign = 64;

constexpr std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit * unit; }
constexpr std::uint64_t div_up(std::uint64_t n, std::uint64_t unit) { return (n + unit - 1) / unit; }

}  // namespace crimp
