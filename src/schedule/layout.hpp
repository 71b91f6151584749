// Which tensors lie in a buffer. Error feedback needs the answer: a residual belongs to a tensor, never to an address.
//
// Sources, best first (docs/tensors.md): named segments through crimp_allreduce; the Horovod
// negotiation decoder (mpi_shim/horovod/); calls that proved to carry the same tensors
// (src/schedule/call_sequence.hpp); unknown.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace crimp {

struct Segment {
  std::string key;  // names the tensor on this communicator; its residual is stored under it
  std::uint64_t offset, count;
  // skip: padding (Horovod's GPU buffers have it, uninitialised), or another codec's tensor. Neither read nor written.
  enum class Use : std::uint8_t { sum, skip } use = Use::sum;
  bool summed() const { return use == Use::sum; }
  std::uint8_t alternative = 0;  // of the codecs that its rule leaves to choose from (CRIMP_RULES)
};

// Never changes once it is made, so calls and plans share one: std::shared_ptr<const Layout>.
struct Layout {
  enum class Source { unknown, periodic, negotiated, named };
  Layout(Source, std::vector<Segment>);
  static std::shared_ptr<const Layout> make(Source source, std::vector<Segment> segments) {
    return std::make_shared<const Layout>(source, std::move(segments));
  }
  static std::shared_ptr<const Layout> unknown(std::uint64_t count);

  bool known() const { return source != Source::unknown; }
  std::uint64_t digest() const { return digest_; }  // of source and segments; equal on ranks that agree
  bool operator==(const Layout&) const;

  const Source source;
  const std::vector<Segment> segments;  // tile [0, count) in order; one keyless segment where unknown

 private:
  const std::uint64_t digest_;
};

const char* name_of(Layout::Source);
// The program or the trainer gives the names; another job gives the same tensor the same.
inline bool has_name(Layout::Source source) {
  return source == Layout::Source::named || source == Layout::Source::negotiated;
}
// The tensors that are summed, for people: "conv1.weight + 3 more"; "60000 x float32" where the first has no name.
std::string label_of(const Layout&, Dtype);

// Runs of neighbouring elements that are summed, of one stretch of a layout after the other.
class SummedRuns {
 public:
  explicit SummedRuns(const Layout& layout) : next_(layout.segments.begin()), last_(layout.segments.end()) {}
  // work(from, to) for those in [at, end), which begins where the last stretch ended.
  template <class Work>
  void each(std::uint64_t at, std::uint64_t end, Work&& work) {
    std::uint64_t from = at, to = at;
    for (; next_ != last_; ++next_) {
      const std::uint64_t begin = std::max(at, next_->offset), until = std::min(end, next_->offset + next_->count);
      if (next_->summed() && begin < until) {
        if (begin != to) {
          if (from < to) work(from, to);
          from = begin;
        }
        to = until;
      }
      if (next_->offset + next_->count > end) break;
    }
    if (from < to) work(from, to);
  }

 private:
  std::vector<Segment>::const_iterator next_, last_;
};

}  // namespace crimp
