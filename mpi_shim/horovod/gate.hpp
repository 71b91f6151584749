// The held-bit gate: makes unmodified Horovod fuse exactly the groups of a merge plan.
//
// Horovod reduces a tensor in a cycle only if every rank's input to the AND has its ready bit; a bit that is missing is
// tried again in the next cycle. So a rank that clears a tensor's bit in its own input holds the tensor back, without
// harm. The gate lets only the plan's current group pass, when all of it is ready here: what is reduced together is
// then one group, in every step the same.
//
// Never held: anything while this rank reports shutdown, uncached or invalid tensors (new tensors, hvd.join and stall
// warnings show as these); tensors outside the plan; and nothing for longer than the bound while no tensor of the plan
// is reduced, after which all pass until one is. Tensors that made the bound run out in two steps of eight leave the
// plan, and those for which other ranks did in four steps one after the other. Which group is current follows from what
// was reduced, so all ranks agree but for tensors that have left; what is held is each rank's own matter.
//
//   Hold     this rank               becomes
//   closed   lets everything pass    holding: tensors are ready that must wait
//   holding  clears bits             closed: none are any more, or this rank reports something, while which the bound
//                                    goes on; or a tensor of the plan was reduced
//                                    open: the bound is over, held_since_ being when something had to wait first
//   open     lets everything pass    closed: a tensor of the plan was reduced
//
//   Group    the current group       becomes
//   waiting  is not complete here    passed: all of it was ready once, which counts as Release::complete
//   passed   may pass                waiting: the next group is current
//
// Horovod's own groups (hvd.grouped_allreduce) stay whole in every plan, or out of it: of a group that it keeps apart
// it expects all tensors in one cycle, and ends the process where some were held. So none of a group is held where one
// cannot be: it has no bit, as where it has another shape in this step, or has left the plan. Under CRIMP_MERGE=auto
// the plan changes at the end of a step, on all ranks before the same AND (search.hpp); without a plan nothing is held.
//
// The masks of bits are stale after a reduction and when the cache has changed; read_bits() makes them anew.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/clock.hpp"
#include "horovod/record.hpp"
#include "horovod/response_cache.hpp"
#include "horovod/search.hpp"
#include "schedule/merge_plan.hpp"

namespace crimp::horovod {

class Gate {
 public:
  // leader: of a plan that is searched; but for what is late, of any.
  Gate(const MergePlan& plan, std::chrono::milliseconds bound, Leader leader = {}) : plan_(plan), bound_(bound) {
    late_ = std::move(leader.late);
    if (plan.searched()) search_.emplace(std::move(leader));
  }

  void reduced(const std::string& name, std::uint64_t bytes);  // a tensor was reduced; the same on all ranks
  // This rank's input of the AND: bits of tensors that wait for their group are cleared. time() is asked only while
  // something is held, or timed. Collective at the end of some steps where the plan is searched.
  void hold(std::span<std::int64_t> own_bits, const ResponseCache&, Clock::time_point (*time)() = Clock::now);

  std::vector<std::size_t> groups() const;  // tensors of each; empty: nothing planned yet
  // Of the codecs that the tensor's rule leaves; the same on all ranks.
  std::uint8_t codec(const std::string& tensor) const;
  bool planned() const { return holds_ && !members_.empty(); }
  std::size_t unmerged() const;                               // tensors that have left the plan on this rank
  std::size_t remembered() const { return tensors_.size(); }  // names
  // A data call of so many bytes of tensors took so long here.
  void called(std::uint64_t bytes, double s) {
    if (search_) search_->called(bytes, s);
  }
  std::optional<SearchRecord> search() const { return search_ ? search_->record() : std::nullopt; }
  std::vector<PlanTurns> turns() const { return search_ ? search_->turns() : std::vector<PlanTurns>(); }
  std::uint64_t releases(Release why) const { return releases_[static_cast<std::size_t>(why)]; }
  const auto& releases() const { return releases_; }

 private:
  // Reduced this often, a tensor has shown its place in the step.
  static constexpr std::uint32_t kRecorded = 4;
  // Steps with a deadline behind which a tensor leaves the plan: of one that is not ready here, and of one that other
  // ranks lack. Who lacks it knows first, and lets the others of its group pass from then on.
  static constexpr std::uint32_t kMissed = 2, kAwaited = 4;
  // Steps behind which a deadline of the first kind is forgotten. One tensor that is late now and then costs no more
  // than the bound in so many steps.
  static constexpr std::uint64_t kForgotten = 8;
  // Tensors that are remembered: beside the plan's, at least; and at most, whatever they are.
  static constexpr std::size_t kOthers = 1024, kMost = 65536;
  struct Tensor {
    std::string name;
    std::uint64_t bytes;
    std::uint32_t reductions = 0, missed = 0, awaited = 0;
    std::uint64_t deadline = 0, miss = 0;  // the step that had one of it, and one that counted as missed
    bool excluded = false, done = false;
    int group = -1;
    std::size_t place = 0;  // among planned_, where it has a group
    int together = -1;      // likewise: its group of Horovod's, where it is in one
  };
  Tensor& known(const std::string& name, std::uint64_t bytes);
  void forget_others();
  void count(Tensor&);
  std::uint32_t steps() const;
  bool ends_step(std::uint64_t bytes, std::uint32_t steps);
  void make_plan();
  void leave_out_groups(std::vector<std::size_t>& planned) const;  // of tensors_
  void group_by(const std::vector<bool>& begins);                  // of planned_
  void choose(const MergeTrials::Plan&);
  void group_as_chosen();
  void reorder(const std::vector<std::uint32_t>& order);  // planned_
  std::vector<NamedTensor> named_tensors() const;         // of planned_
  void begin_step();
  void pass_by();  // groups of which nothing is left to wait for
  void read_bits(const ResponseCache&);
  std::vector<std::size_t> lacking() const;  // of each of Horovod's groups: tensors that cannot be held
  std::vector<bool> ready(std::span<const std::int64_t> own_bits) const;  // of tensors_
  void note_ready(std::span<const std::int64_t> own_bits, Clock::time_point);
  void open(std::span<const std::int64_t> own_bits);  // the bound is over
  bool missed(Tensor&);                               // in this step; true: too often
  void release(Release why) { ++releases_[static_cast<std::size_t>(why)]; }

  MergePlan plan_;
  std::chrono::milliseconds bound_;
  std::vector<Tensor> tensors_;  // in the order of their first reduction
  std::unordered_map<std::string, std::size_t> by_name_;
  std::size_t most_ = kOthers;                      // of tensors_, before others are forgotten
  std::map<std::uint32_t, std::uint64_t> carried_;  // bytes of the tensors that have been reduced so often
  std::uint64_t step_ = 1;                          // of the plan
  std::uint32_t unplanned_since_ = 0;               // steps() when there was a plan last
  std::uint64_t most_equal_ = 0;                    // bytes that were equally often reduced since then
  std::vector<std::size_t> planned_;                // in order, which may be CRIMP_PLAN_FILE's
  std::uint64_t planned_bytes_ = 0;                 // of all of them
  std::vector<std::vector<std::size_t>> members_;   // of each group
  std::vector<std::size_t> together_;               // tensors of each of Horovod's groups that are planned
  bool holds_ = true;
  std::function<void(std::size_t unmerged, std::size_t tensors)> late_;
  std::optional<Search> search_;
  MergeTrials::Plan adopted_;      // the search's last one
  std::vector<std::size_t> left_;  // of each: still to be reduced in this step
  std::size_t current_ = 0;
  std::vector<int> tensor_of_bit_;
  std::uint64_t cache_version_ = ~0ull;
  // As Horovod lays out its bits: tensors of the plan that are held; tensors of its current group; those of them that
  // are still to be reduced.
  std::vector<std::uint64_t> planned_bits_, group_bits_, wanted_bits_;
  enum class Masks { stale, partial, whole };  // partial: something that is wanted has no bit; whole: all of it has
  Masks masks_ = Masks::stale;
  enum class Hold { closed, holding, open };
  Hold hold_ = Hold::closed;
  enum class Group { waiting, passed };
  Group group_ = Group::waiting;
  std::optional<Clock::time_point> held_since_;
  std::array<std::uint64_t, static_cast<std::size_t>(Release::count)> releases_{};
};

}  // namespace crimp::horovod
