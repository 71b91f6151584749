// Follows Horovod's negotiation on one communicator and says which tensors lie in each data call. It sees what passes
// through MPI anyway (docs/horovod.md): the AND and OR of the ready bits, and the broadcast ResponseList.
//
// A cycle is: AND; OR where a rank has invalid entries; Gatherv and Bcast where a rank has tensors that are not cached;
// data calls. Where this communicator stands in its cycle, and what each call makes of that ("-": it stays):
//
//   Cycle        what comes next           AND, all cached  AND, not all  Gatherv      Bcast of bytes  data call
//   idle         expected data calls       hits             announced     new_list (*) -               -
//   hits         data calls of the hits    hits             announced     new_list (*) -               idle
//   announced    a Gatherv                 hits             announced     cached_list  -               idle
//   cached_list  a list that is cached     hits             announced     -            idle            new_list
//   new_list     a list that is not        hits             announced     - (*)        idle            -
//
// (*) No AND came before it: Horovod's cache is off, and the mirror is emptied.
//
// Hits are looked up as late as the next call that needs them, because the OR that may erase entries comes after the
// AND. In the first three states a Bcast may bring tuned parameters, before which hits are looked up as well (then:
// idle).
//
// Everything here is a function of values equal on all ranks, so all ranks find the same layouts. What it cannot
// explain is unknown for that call, and everything is known again at the next cycle; but behind a list that cannot be
// read, and a hit that the mirror lacks, the mirror is lost: it stays empty, hits are unknown and nothing is held,
// until Horovod's cache is off in some cycle and so begins anew. Not thread-safe: Horovod's background thread is the
// only caller.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "horovod/gate.hpp"
#include "horovod/response_cache.hpp"
#include "schedule/layout.hpp"

namespace crimp::horovod {

// Horovod's own settings, as its variables give them; numbers as Horovod reads them.
struct Options {
  std::size_t cache_capacity = 1024;  // HOROVOD_CACHE_CAPACITY
  std::int64_t fusion_threshold =
      128ll << 20;                  // HOROVOD_FUSION_THRESHOLD, bytes; with HOROVOD_AUTOTUNE where tuning begins
  std::int64_t threshold_unit = 1;  // Horovod rounds it up to a multiple of this
  bool autotune = false;            // HOROVOD_AUTOTUNE: rank 0 broadcasts other thresholds
  bool separate_groups = false;     // HOROVOD_DISABLE_GROUP_FUSION
  bool pads = true;                 // HOROVOD_BATCH_D2D_MEMCOPIES: entries on a GPU are padded to 16 bytes
  static Options from_environment(int ranks_per_host);  // 0: hosts have different numbers of ranks
};

class Negotiation {
 public:
  // A tuned threshold, heard of on one communicator, is for all that share it.
  using Threshold = std::shared_ptr<std::int64_t>;
  Negotiation(int ranks, const Options& options, const MergePlan& plan = {}, std::chrono::milliseconds bound = {},
              Threshold shared = nullptr, Leader leader = {})
      : ranks_(ranks), options_(options),
        threshold_(shared ? std::move(shared) : std::make_shared<std::int64_t>(options.fusion_threshold)),
        cache_(options.cache_capacity), gate_(plan, bound, std::move(leader)) {}

  // This rank's own input of the AND, before it is sent: the gate clears the bits that it holds.
  void hold(std::span<std::int64_t> own_bits) {
    begin_cycle();
    gate_.hold(own_bits, cache_);
  }

  void ready_bits(std::span<const std::int64_t> words);    // the result of the AND
  void invalid_bits(std::span<const std::int64_t> words);  // the result of the OR
  void gathered();                                         // a Gatherv: a ResponseList comes
  void broadcast(const void* bytes,
                 std::size_t size);  // a Bcast of bytes from rank 0: after gathered() a ResponseList, else tuning

  // The layout of the next data call, or unknown. type is the caller's; on_device, asked where ranks have joined, says
  // whether its buffer is in device memory. To be told of every sum of floating-point values, however small: their
  // order is how they are known. Tensors without a name have segments without a key.
  std::shared_ptr<const Layout> data_call(std::uint64_t count, Dtype type, const std::function<bool()>& on_device = {});

  // The last data call, of so many bytes, took so long.
  void called(std::uint64_t bytes, double s) { gate_.called(bytes, s); }

  const ResponseCache& cache() const { return cache_; }
  const Gate& gate() const { return gate_; }
  Record record() const;

 private:
  void begin_cycle();
  void fuse(std::vector<const Response*>& ready);  // reorders them
  void resolve_hits();
  void lose_mirror();
  void tune(const void* parameters);
  std::int64_t threshold() const;
  // Without an AND nothing has been held for a plan.
  enum class Behind { bits, nothing };
  void expect(Response fused, Behind);  // to be reduced next
  bool lies_padded(const Response& fused, const std::function<bool()>& on_device) const;

  int ranks_;
  Options options_;
  Threshold threshold_;
  ResponseCache cache_;
  enum class Mirror { kept, lost };
  Mirror mirror_ = Mirror::kept;
  Gate gate_;
  std::vector<std::size_t> hits_;       // of the cycle's AND, not yet looked up
  std::vector<const Response*> ready_;  // scratch
  enum class Cycle { idle, hits, announced, cached_list, new_list };
  Cycle cycle_ = Cycle::idle;
  std::vector<Response> expected_;  // fused responses, in order
  std::size_t next_ = 0;
  Record record_;                                     // but for what the gate counts
  Unexplained lost_ = Unexplained::nothing_expected;  // why nothing is expected
  enum class LastCall { explained, unexplained };
  LastCall last_call_ = LastCall::explained;
};

}  // namespace crimp::horovod
