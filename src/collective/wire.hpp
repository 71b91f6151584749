// The header in front of every payload (src/codec/WIRE_FORMAT.md, section 2). Little endian, 64 bytes.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/types.hpp"
#include "schedule/delay_control.hpp"

namespace crimp {

static_assert(std::endian::native == std::endian::little, "Crimp's wire format is little endian and stored as is");

inline constexpr std::uint32_t kWireMagic = 0x504d5243;  // "CRMP"
inline constexpr std::uint8_t kWireVersion = 1;
// A leader whose node's ranks are in different calls changes this bit of the call's number.
inline constexpr std::uint32_t kNoCall = 0x80000000;

enum WireFlag : std::uint8_t {
  kFlagExact = 1,     // the sender's input holds NaN, Inf or a value outside the codec's range or is too small for it:
                      // everybody sends this call through MPI
  kFlagNoMemory = 2,  // the sender could not allocate its buffers, or its device failed: likewise
  kFlagForeign = 8,   // the sender's values do not look like the tensor's that the layout takes them for: likewise, and
                      // the tensor keeps waiting for its call
  kFlagOutlier = 16,  // the sender's values are the tensor's, but far from its usual size: likewise, and its residual
                      // stays as it is
  kFlagNoGradient = 32,  // the sender's values are none that a gradient has: likewise
  kFlagFirst = 64,       // a tensor that a trainer names has not been summed before: likewise
  kFlagCorrupt = 4,      // not in the first chunk's first stage: the sender has no body, because what it received was
                         // corrupt or its device failed
};
inline constexpr std::uint8_t kKnownFlags =
    kFlagExact | kFlagNoMemory | kFlagForeign | kFlagOutlier | kFlagNoGradient | kFlagFirst | kFlagCorrupt;

struct Header {
  std::uint32_t magic = kWireMagic;
  std::uint8_t version = kWireVersion;
  std::uint8_t codec = 0;  // Codec::Traits::wire_id
  std::uint8_t dtype = 0;
  std::uint8_t flags = 0;
  std::uint64_t count = 0;       // elements in this chunk
  std::uint64_t body_bytes = 0;  // multiple of kPayloadAlign; 0 when a flag is set
  std::uint64_t body_hash = 0;   // XXH3-64 of the body, seed 0; 0 where checksums are off
  std::uint32_t call = 0;        // how many compressed calls this communicator has seen
  std::uint32_t chunk = 0;       // index of the chunk in the call
  std::uint32_t parameters = 0;  // Codec::parameter_word()
  std::uint32_t layout = 0;      // low 32 bits of Layout::digest()
  std::uint32_t encode_us = 0;   // the sender's time to encode this chunk
  std::uint32_t wire_us = 0;     // the sender's wait for the chunk before the previous one
  Algorithm algorithm = Algorithm::allgather;
  std::uint8_t stage = 0;    // which of the call's exchanges of chunk bodies it announces
  std::uint16_t period = 0;  // DelayNote, in stage 0: the sender's word to CRIMP_CONTROL; zeros without
  std::uint32_t wait = 0;
  void say(const DelayNote& note) { period = note.period, wait = note.wait; }
  DelayNote delay() const { return {period, wait}; }
};
static_assert(sizeof(Header) == 64);

// What makes `got` unacceptable for a rank that itself sent `mine`, as a program's author can mend it; empty when
// nothing does. Flags, body size, hash and times are the sender's own; everything else must be equal on all ranks.
// where: `mine` is from, as in "the codec is fp16, here 3lc".
std::string disagreement(const Header& mine, const Header& got, const char* where = "here");
std::string differing(const char* what, const std::string& its, const std::string& mine, const char* where);
std::string differing(const char* what, std::uint64_t its, std::uint64_t mine, const char* where);
std::string other_tensors(const char* where);

inline constexpr const char* kOnFirst = "on rank 0";
// "rank 2 and rank 0 are not in the same MPI_Allreduce: on rank 2 the element count is 99, on rank 0 100": of
// differing("the element count", 99, 100, kOnFirst).
std::string not_in_one(const char* call, std::size_t rank, const std::string& what);

}  // namespace crimp
