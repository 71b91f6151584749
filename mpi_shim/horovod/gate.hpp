// The held-bit gate: makes unmodified Horovod fuse exactly the groups of a merge plan.
//
// Horovod reduces a tensor in a cycle only if every rank's input to the AND has its ready bit; a bit that is missing is tried again in
// the next cycle. So a rank that clears a tensor's bit in its own input holds the tensor back, without harm. The gate lets only the
// plan's current group pass, when all of it is ready here: what is reduced together is then one group, in every step the same.
//
// Never held: anything while a rank reports shutdown, uncached or invalid tensors here; tensors outside the plan; and nothing for longer
// than the bound, after which all pass until something has been reduced. Tensors that made the bound run out twice leave the plan.
// Which group is current follows from what was reduced, so all ranks agree; what is held is each rank's own matter.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "horovod/response_cache.hpp"
#include "schedule/merge_plan.hpp"

namespace crimp::horovod {

class Gate {
 public:
  using Clock = std::chrono::steady_clock;
  Gate(const MergePlan& plan, std::chrono::milliseconds bound) : plan_(plan), bound_(bound) {}

  void reduced(const std::string& name, std::uint64_t bytes);  // a tensor was reduced; the same on all ranks
  void forget();                                              // tensors changed: record again
  void hold(std::span<std::int64_t> own_bits, const ResponseCache&, Clock::time_point now);

  std::size_t groups() const { return members_.size(); }  // 0: nothing planned yet
  std::uint64_t timeouts() const { return timeouts_; }

 private:
  // Reduced this often, a tensor has shown its place in the step.
  static constexpr std::uint32_t kRecorded = 4;
  struct Tensor {
    std::string name;
    std::uint64_t bytes;
    std::uint32_t reductions = 0, missed = 0;
    bool excluded = false, done = false;
    int group = -1;
  };
  void make_plan();
  bool done(std::size_t group) const;
  void read_bits(const ResponseCache&);

  MergePlan plan_;
  std::chrono::milliseconds bound_;
  std::vector<Tensor> tensors_;  // in the order of their first reduction
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<std::vector<std::size_t>> members_;  // of each group
  std::size_t current_ = 0;
  std::vector<int> tensor_of_bit_;
  std::uint64_t cache_version_ = ~0ull, timeouts_ = 0;
  bool open_ = false, holding_ = false;
  Clock::time_point held_since_;
};

}  // namespace crimp::horovod
