// What is done with a call, as far as its tensors, its type, its count and the settings say: the same in every training
// step, so it is made once and kept.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/choice.hpp"
#include "collective/codec_rules.hpp"
#include "collective/node.hpp"
#include "collective/tensor_codecs.hpp"
#include "core/bounded_map.hpp"
#include "core/pass_reason.hpp"

namespace crimp {

// The tensors of a call that have one codec.
struct PlannedPart {
  PartPlan plan;
  ChoiceQuery query;
  // Its carriage among so many ranks, planned when it is first asked for. nodes: the communicator's, where these are
  // wanted.
  std::shared_ptr<const RoutePlan> route(const Carriage&, const Hierarchy* nodes, int ranks) const;
  Carriage as_it_runs(Carriage) const;  // what it leaves open is as the settings say
  std::uint64_t footprint() const;
  bool of_ladder = false;  // its codec is a level of CRIMP_LADDER

 private:
  struct Route {
    Carriage carriage;
    std::shared_ptr<const RoutePlan> plan;
    std::uint64_t bytes = plan->footprint();
  };
  mutable std::vector<Route> routes_;

 public:
  PlannedPart(PartPlan of, ChoiceQuery asks) : plan(std::move(of)), query(asks) {}
};

// Immutable but for the routes of its parts. Equal on all ranks.
struct CallPlan {
  std::shared_ptr<const Layout> layout;
  std::shared_ptr<const Shares> shares;  // null: allreduce
  // The whole call is for MPI, with momentum where a segment has it; else there are parts.
  std::optional<PassReason> pass;
  std::vector<const Codec*> codecs;   // of each segment; null: it is summed exactly, or skipped
  std::vector<const Codec*> momenta;  // the codec whose memory `momentum` each segment has; null: none
  std::vector<PlannedPart> parts;     // one for each codec
  std::vector<std::size_t> part_of;   // each segment's, where it has a codec
  std::vector<std::size_t> excluded;  // segments to which rules and program give no codec, and ends of unnamed tensors
  // Segments that are summed exactly: these, and those without a name that can have no codec.
  std::vector<std::size_t> exact;
  std::uint64_t exact_bytes = 0;  // in the call's type
  // What a call is to who repeats it: "float32 x 60000: 3lc:... x 50000 + fp16 x 10000", type, elements, and codec and
  // elements of each part; nothing that another process would say otherwise. Its digest.
  std::string kind;
  std::uint64_t kind_digest = 0;
  std::vector<Group> scanned;            // the elements of the segments that have a codec, one after another
  const Codec* lost_momentum = nullptr;  // whose momentum segments without a name lack; null: none
  bool means_more =
      false;  // MPI's sum, without momentum, votes or gamma, would be another result, not only a faster one
  bool clips = false;
  bool controlled = false;    // a part has a codec of CRIMP_LADDER
  bool has_momentum() const;  // of any segment
  // The same call in 16 bits a value, where ChoiceQuery::halves of its one part says so: what a choice of that runs.
  // Its part asks the chooser as this one's.
  std::shared_ptr<const CallPlan> halves;
  std::shared_ptr<const CallPlan> exactly;  // likewise, where ChoiceQuery::exact says so: float32 as it is
  const CallPlan& of(const Carriage& carriage) const {
    return carriage.algorithm == Algorithm::node_sum ? *exactly : carriage.halves ? *halves : *this;
  }
  // PlannedPart::route() of the part that is carried so.
  std::shared_ptr<const RoutePlan> route(std::size_t part, const Carriage& carriage, const Hierarchy* nodes,
                                         int ranks) const {
    return of(carriage).parts[part].route(carriage, nodes, ranks);
  }
  std::size_t largest_part() const;  // the first of those with the most elements; of a call that has parts
  std::uint64_t footprint() const;   // bytes of memory that it takes, about
};

// A communicator's plans. Not thread-safe.
class Planner {
 public:
  static constexpr std::size_t kMostPlans = 1024;
  static constexpr std::uint64_t kMostBytes =
      std::uint64_t{64} << 20;  // that all plans take, about; beyond either some are made anew as they are needed

  Planner(const Settings& settings, CodecRules& rules) : settings_(settings), rules_(rules), said_(rules.pool()) {}
  // The plan of a call. It stays as it is for those who hold it. level: of CRIMP_LADDER, in place of CRIMP_CODEC; below
  // 0: none.
  // shares: null for allreduce.
  std::shared_ptr<const CallPlan> plan(Dtype, std::uint64_t count, std::shared_ptr<const Layout>, int level = -1,
                                       std::shared_ptr<const Shares> shares = nullptr);
  std::size_t kept() const { return plans_.size(); }
  std::uint64_t made() const { return made_; }    // so far
  std::uint64_t bytes() const { return bytes_; }  // of those that are kept, but for what the last call added to its own
  // crimp_set_codec, for calls from now on.
  void set_codec(const std::string& pattern, const char* spec);
  // Why an algorithm can run none of the codecs that settings and program name; empty where it can, or none is named.
  std::string why_none_runs(const AlgorithmEntry&, int ranks) const;
  bool any_codecs() const { return said_.any(); }  // set_codec() has named some
  // Of a segment that is summed. Null: exactly.
  const Codec* codec_of(const Layout&, const Segment&) const;
  // The codec whose memory `momentum` tensors of this codec (null: that are summed exactly) have, but for those that
  // CRIMP_RULES spare; null: they have none.
  const Codec* momentum_of(const Codec*) const;

 private:
  // Type, count, layout's digest, level, collective, digest of shares.
  using Key = std::tuple<Dtype, std::uint64_t, std::uint64_t, int, Collective, std::uint64_t>;
  std::shared_ptr<CallPlan> make(Dtype, std::uint64_t count, std::shared_ptr<const Layout>, int level,
                                 std::shared_ptr<const Shares>, const Codec* stand_in = nullptr) const;
  // False: the call is for MPI.
  bool choose_codecs(CallPlan&, int level) const;
  void make_parts(CallPlan&, Dtype, std::uint64_t count, int level) const;
  bool by_default(const Layout&, const Segment&) const;  // it has CRIMP_CODEC because nobody says otherwise
  bool plain(const Layout&, const Segment&) const;       // CodecRules::plain(), and the program does not say otherwise

  struct Kept {
    std::shared_ptr<const CallPlan> plan;
    std::uint64_t bytes = 0;  // as bytes_ counts it
  };
  void weigh(Kept&);
  void evict();
  void forget();  // all

  const Settings& settings_;
  CodecRules& rules_;
  TensorCodecs said_;
  BoundedMap<Key, Kept> plans_{kMostPlans};
  Kept* asked_ = nullptr;      // the last call's, to which that may have added routes
  std::uint64_t bytes_ = 0;    // of all
  std::uint32_t version_ = 0;  // of the rules that the plans are made of
  std::uint64_t made_ = 0;
};

}  // namespace crimp
