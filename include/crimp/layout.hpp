// Which tensors lie in a buffer. Error feedback needs the answer: a residual belongs to a tensor, never to an address.
//
// Sources, best first (design: README, "Which tensor is this?"): named segments through crimp_allreduce; the Horovod negotiation
// decoder (mpi_shim/horovod/); a call sequence that proved periodic; unknown.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "crimp/types.hpp"

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

// Recognises when the eligible calls of one communicator repeat, from their counts and types alone, so that all ranks see it alike.
//
// A period p is proved when the calls have repeated with lag p for (periods - 1) * p calls and at least kMinMatches; the shortest
// proved period wins. Then call n is tensor n modulo p until a call differs; all keys are void from there, and every refutation
// doubles the number of periods asked for, so that a net of like layers is not mistaken for one tensor again and again.
class CallSequence {
 public:
  static constexpr std::uint32_t kLongestPeriod = 4096;
  static constexpr std::uint32_t kMinMatches = 7;
  explicit CallSequence(int periods) : periods_(static_cast<std::uint32_t>(periods)) {}

  // Notes one call; its layout is periodic or unknown.
  Layout observe(std::uint64_t count, Dtype type);
  static constexpr const char* kKeyPrefix = "#";  // of all its keys
  std::uint32_t period() const { return period_; }            // 0 where nothing is proved
  std::uint32_t refutations() const { return refutations_; }  // how often a proved period ended

 private:
  std::uint32_t periods_, period_ = 0, phase_ = 0, generation_ = 0, refutations_ = 0;
  std::vector<std::uint64_t> history_;  // signatures since the start or the last refutation, newest last, at most 2 * kLongestPeriod
  std::vector<std::uint32_t> matches_;  // matches_[p - 1]: consecutive calls equal to the one p calls earlier
};

}  // namespace crimp
