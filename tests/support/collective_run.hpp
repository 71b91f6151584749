// A compressed allreduce with ranks as threads, and the model of its result.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collective/algorithms.hpp"
#include "support/model.hpp"
#include "support/thread_transport.hpp"

namespace crimp::test {

struct Setup {
  std::shared_ptr<const Codec> codec;
  std::shared_ptr<const Layout> layout;
  std::uint64_t count, chunk = 40960;
  bool in_place = false, feedback = true, checksum = true;
  int threads = 1;
  Algorithm algorithm = Algorithm::allgather;
  int radix = 1;  // of relays, where the algorithm can have them
};

// For CAPTURE: what a failure happened with.
std::string text_of(const Setup&);

// One rank's buffers. `residual` holds the segments' residuals behind one another and stays from call to call.
struct Rank {
  std::vector<float> values, residual, out;
  std::vector<float> owner_residual;  // likewise, of the sums that this rank owns; empty where the algorithm has none
  std::uint8_t flags = 0;
  bool no_memory = false;
  std::vector<bool> idle;      // as in CallBuffers; residuals of such segments wait
  Backend* backend = nullptr;  // null: the host's
  DelayNote delay;
  std::uint32_t sequence = 0;
  CollectiveResult result;
  int exchanges = 0, messages = 0;
};

// Named segments of the given sizes, the last one cut or prolonged so that they tile `count`.
std::shared_ptr<const Layout> named_layout(std::uint64_t count, const std::vector<std::uint64_t>& sizes);
// The same with another use of some segments, or another source.
std::shared_ptr<const Layout> changed(const Layout&, Layout::Source, const std::function<void(std::vector<Segment>&)>&);
// Ranks with values of their own and residuals of zero.
std::vector<Rank> make_ranks(const Setup&, int ranks, std::uint64_t seed);

// Of setup.algorithm, in chunks of setup.chunk.
std::shared_ptr<const RoutePlan> route_of(const Setup&, int ranks);
// One rank's buffers without residuals and arena. In place: `out` receives the values.
CallBuffers buffers_of(const Setup&, Rank&);
// One rank's call; throws what allreduce_compressed throws.
void call(Transport&, const Setup&, Rank&, Workers&);
// Changes a header on its way: its body has so many bytes more.
void announce_more(std::span<std::uint8_t> header, std::uint64_t bytes);
// The call on all ranks.
void run_all(const Setup&, std::vector<Rank>&, const RunOptions& = {});
// What every rank must have in `out` then. Takes the ranks as before the call; their residuals become the new ones.
std::vector<float> model_all(const Setup&, std::vector<Rank>&);

}  // namespace crimp::test
