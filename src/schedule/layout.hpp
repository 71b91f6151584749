// Which tensors lie in a buffer. Error feedback needs the answer: a residual belongs to a tensor, never to an address.
//
// Sources, best first (design: README, "Which tensor is this?"): named segments through crimp_allreduce; the Horovod negotiation
// decoder (mpi_shim/horovod/); calls that proved to carry the same tensors (src/schedule/call_sequence.hpp); unknown.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace crimp {

struct Segment {
  std::string key;  // names the tensor on this communicator; its residual is stored under it
  std::uint64_t offset, count;
  // skip: padding (Horovod's GPU buffers have it, uninitialised), or another codec's tensor. Neither read nor written.
  enum class Use : std::uint8_t { sum, skip } use = Use::sum;
};

struct Layout {
  enum class Source { unknown, periodic, negotiated, named };
  Source source = Source::unknown;
  std::vector<Segment> segments;  // tile [0, count) in order; one keyless segment where unknown

  bool known() const { return source != Source::unknown; }
  std::uint64_t digest() const;  // of source, keys, offsets and counts; equal on ranks that agree

  static Layout unknown(std::uint64_t count);
};

const char* name_of(Layout::Source);

}  // namespace crimp
