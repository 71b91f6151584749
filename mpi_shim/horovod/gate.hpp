// The held-bit gate: makes unmodified Horovod fuse exactly the groups of a merge plan.
//
// Horovod reduces a tensor in a cycle only if every rank's input to the AND has its ready bit; a bit that is missing is
// tried again in the next cycle. So a rank that clears a tensor's bit in its own input holds the tensor back, without
// harm. The gate lets only the plan's current group pass, when all of it is ready here: what is reduced together is
// then one group, in every step the same.
//
// Never held: anything while this rank reports shutdown, uncached or invalid tensors (new tensors, hvd.join and stall
// warnings show as these); tensors outside the plan; and nothing for longer than the bound, after which all pass until
// something has been reduced. Tensors that made the bound run out twice leave the plan. Which group is current follows
// from what was reduced, so all ranks agree; what is held is each rank's own matter.
//
//   Hold     this rank               becomes
//   closed   had nothing to hold     holding: tensors are ready that must wait
//   holding  clears bits             closed: none are any more, this rank reports something, or a tensor was reduced;
//            since held_since_       open: the bound is over
//   open     lets everything pass    closed: a tensor was reduced
//
//   Group    the current group       becomes
//   waiting  is not complete here    passed: all of it was ready once, which counts as Release::complete
//   passed   may pass                waiting: the next group is current
//
// The masks of bits are stale after a reduction and when the cache has changed; read_bits() makes them anew.
#pragma once
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "horovod/record.hpp"
#include "horovod/response_cache.hpp"
#include "schedule/merge_plan.hpp"

namespace crimp::horovod {

class Gate {
 public:
  using Clock = std::chrono::steady_clock;
  Gate(const MergePlan& plan, std::chrono::milliseconds bound) : plan_(plan), bound_(bound) {}

  void reduced(const std::string& name, std::uint64_t bytes);  // a tensor was reduced; the same on all ranks
  // This rank's input of the AND: bits of tensors that wait for their group are cleared. time() is asked only while
  // something is held.
  void hold(std::span<std::int64_t> own_bits, const ResponseCache&, Clock::time_point (*time)() = Clock::now);

  std::vector<std::size_t> groups() const;  // tensors of each; empty: nothing planned yet
  bool planned() const { return !members_.empty(); }
  std::uint64_t releases(Release why) const { return releases_[static_cast<std::size_t>(why)]; }
  const auto& releases() const { return releases_; }

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
  void begin_step();
  void read_bits(const ResponseCache&);
  void open(std::span<const std::int64_t> own_bits);  // the bound is over
  void release(Release why) { ++releases_[static_cast<std::size_t>(why)]; }

  MergePlan plan_;
  std::chrono::milliseconds bound_;
  std::vector<Tensor> tensors_;  // in the order of their first reduction
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<std::vector<std::size_t>> members_;  // of each group
  std::vector<std::size_t> left_;                  // of each: still to be reduced in this step
  std::size_t current_ = 0;
  std::vector<int> tensor_of_bit_;
  std::uint64_t cache_version_ = ~0ull;
  // As Horovod lays out its bits: tensors of the plan; of its current group; those of them that are still to be
  // reduced.
  std::vector<std::uint64_t> planned_bits_, group_bits_, wanted_bits_;
  enum class Masks { stale, partial, whole };  // partial: something that is wanted has no bit; whole: all of it has
  Masks masks_ = Masks::stale;
  enum class Hold { closed, holding, open };
  Hold hold_ = Hold::closed;
  enum class Group { waiting, passed };
  Group group_ = Group::waiting;
  Clock::time_point held_since_;
  std::array<std::uint64_t, static_cast<std::size_t>(Release::count)> releases_{};
};

}  // namespace crimp::horovod
