// Horovod's controller as its ranks see it, reduced to what decides which tensors share a buffer: ready tensors, the
// response cache, the bit vectors, the coordinator's ResponseList and fusion. Written from the behaviour of Horovod
// 0.28.1; shares no code with the decoder, not even the FlatBuffers schema.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/types.hpp"

namespace crimp::test {

struct HorovodEvent {
  enum Kind {
    ready_bits,
    invalid_bits,
    gathered,
    broadcast,
    data
  } kind;  // broadcast: after gathered the ResponseList, else parameters
  std::vector<std::int64_t> words;
  std::vector<std::uint8_t> bytes;
  // data: what lies in the buffer.
  struct Part {
    std::string name;
    std::uint64_t offset, count;
  };
  std::vector<Part> parts;
  std::uint64_t count = 0;
  Dtype type = Dtype::f32;
  bool on_device = false;
};

struct HorovodRun {
  int ranks = 2;
  std::size_t capacity = 1024;
  std::int64_t threshold = 128ll << 20;
  int tensors = 40;
  bool timeline = false, mixed_types = false, equal_sizes = false;
  bool pads_counted = false;    // a CUDA build: fusion counts 16-byte pads
  bool pads_in_buffer = false;  // tensors on a GPU: pads lie in the buffers
  int groups = 0;               // this many groups of tensors that become ready together
  bool separate_groups = false;
  bool reshapes = false, joins = false, adasum = false, allgathers = false, unnamed = false, minima = false;
  bool autotune = false;            // as the environment says it to the decoder
  int tuned_every = 0;              // about so many cycles between changes of the threshold by autotuning; 0: never
  std::int64_t threshold_unit = 1;  // tuned thresholds are rounded up to it
  int cache_every = 0;              // steps between switching the cache off and on again
  std::uint64_t seed = 1;
  // A rank's input of the AND, to be changed; with all events of this step so far.
  std::function<void(std::size_t rank, std::span<std::int64_t> words, const std::vector<HorovodEvent>&)> gate = {};
};

class HorovodSimulator {
 public:
  friend std::vector<std::uint8_t> response_list(const std::vector<std::pair<std::string, std::int64_t>>&);
  explicit HorovodSimulator(const HorovodRun&);
  std::vector<HorovodEvent> step();  // one training step: every rank's tensors once
  std::uint64_t fast_cycles() const { return fast_; }
  std::uint64_t slow_cycles() const { return slow_; }
  std::uint64_t evictions() const { return evictions_; }
  std::uint64_t erasures() const { return erasures_; }

 private:
  enum Kind : std::int8_t { allreduce = 0, allgather = 1, join = 3, adasum = 4 };
  struct Tensor {
    std::string name;
    Kind kind = allreduce;
    std::int8_t type = 7, op = 1;
    std::int64_t count = 0;  // elements; allgather: rows of each rank
    std::int64_t row = 1;    // allgather: elements of a row
    double postscale = 1;
    int group = -1;
    std::vector<std::int64_t> dims;
  };
  struct Answer {  // a response of one or, once fused, several tensors
    Tensor head;
    std::vector<Tensor> all;
    std::vector<std::int32_t> devices;
  };
  struct Known {
    Tensor tensor;
    std::int8_t answered_op;
  };
  struct RankState {
    std::deque<Tensor> todo, queue;
    bool joined = false, join_sent = false;
  };

  void plan();
  void tune(std::vector<HorovodEvent>&);
  void cycle(std::vector<HorovodEvent>&);
  int lookup(const Tensor&) const;  // 1: the same is cached, 0: it is not, -1: another of this name is
  void remember(const Answer&);
  void renumber();
  void pack(std::vector<Answer> in, std::vector<Answer>& out) const;
  std::vector<std::uint8_t> serialise(const std::vector<Answer>&) const;
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  HorovodRun run_;
  std::mt19937_64 random_;
  std::vector<Tensor> model_;
  std::vector<RankState> ranks_;
  std::vector<std::pair<std::string, std::vector<std::string>>> groups_;
  // Order of use, oldest first; place in `slots_` is the bit. An empty name is a hole.
  std::list<std::string> age_;
  std::vector<std::string> slots_;
  std::map<std::string, Known> known_;
  bool holes_ = false, cache_on_ = true;
  struct Waiting {
    Tensor tensor;
    int ranks = 0;
  };
  std::map<std::string, Waiting> table_;
  int joined_ = 0, steps_ = 0;
  std::uint64_t unnamed_ = 0, fast_ = 0, slow_ = 0, evictions_ = 0, erasures_ = 0;
};

// The message of one allreduce of float32 tensors.
std::vector<std::uint8_t> response_list(const std::vector<std::pair<std::string, std::int64_t>>& tensors);

}  // namespace crimp::test
