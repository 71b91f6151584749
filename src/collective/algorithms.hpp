// The algorithms: one row each. Every rank of a call must name the same.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "collective/choice.hpp"
#include "collective/collective.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

struct Hierarchy;
struct Settings;

struct AlgorithmEntry {
  Algorithm algorithm;
  const char* name;     // as in CRIMP_ALGORITHM
  const char* summary;  // one line: what travels
  // Empty where the algorithm can run this codec on so many ranks, else why not ("it needs a codec that ..."). Equal on
  // all ranks.
  std::string why_unsupported(const Codec&, int ranks) const;
  // Likewise what this algorithm alone asks for.
  std::string (*needs)(const Codec&, int ranks) = [](const Codec&, int) { return std::string(); };
  // Elements of a chunk, a multiple of kPieceElements, where CRIMP_CHUNK says `setting`.
  std::uint64_t (*chunk_elements)(std::uint64_t setting, const Codec&, int ranks);
  // How it carries a part on so many ranks, in chunks of so many elements. Null of hierarchical, which carries nothing
  // itself: in_nodes() wraps another's plan; and of node_sum, whose ranks need a node: sum_on_node().
  std::unique_ptr<RoutePlan> (*plan)(const PartPlan&, std::uint64_t chunk, int ranks);
  // Likewise by relays of this base (collective/relay.hpp), at least 2; the same result. Null: it always goes directly.
  std::unique_ptr<RoutePlan> (*plan_relayed)(const PartPlan&, std::uint64_t chunk, int ranks, int radix) = nullptr;
  const char* relayed_name = nullptr;  // in reports
  // Seconds that a call is predicted to take. Null: run where CRIMP_ALGORITHM names it, or nothing else can run the
  // codec.
  double (*cost)(const CostQuery&);
  // With looking at the values, in the chunks and by the relays that take the least where the query leaves them open.
  // `cost` is not null.
  struct Prediction {
    double s;
    std::uint64_t chunk_setting;
    int radix;
  };
  Prediction predicted(const NetworkModel&, const CodecCost&, const ChoiceQuery&) const;
  // About how much more error its results have than allgather's with the same codec (in the terms of
  // Codec::error_of_two_encodings(); at least 1). Equal on all ranks.
  double (*error)(const Codec&, int ranks) = [](const Codec&, int) { return 1.0; };
  // Sums are encoded: inputs must leave room for them within the codec's range.
  bool sums_encoded = false;
  // MPI adds over the whole communicator: not between nodes' leaders.
  bool mpi_adds = false;
  // Bodies travel with their headers, as long as their bound: for calls that are short, in host memory.
  bool one_exchange = false;
  // Whether so many ranks can carry a call by it that a rank without memory takes part from its reserve.
  bool fits(const ChoiceQuery&, int ranks) const;
  // Sees values only through CallBuffers::backend, so that they may lie anywhere. Otherwise in host memory.
  bool any_backend = false;
  // Hands them on only to be encoded and decoded, so that they may be of any type that the backend converts.
  bool converts = false;
  // Its arena is in pinned host memory whatever MPI can take: sums of floats are the host's.
  bool host_bodies = false;
  // Runs codecs of whole tensors (Codec::Traits::whole_tensors), and nothing else does.
  bool whole_tensors = false;
  // Wants CallBuffers::owner_residuals with this codec.
  bool (*owner_memory)(const Codec&) = [](const Codec&) { return false; };
};

// Of allreduce.
std::span<const AlgorithmEntry> algorithms();
// Those that carry payloads between ranks: all but hierarchical and node_sum.
std::span<const AlgorithmEntry> carriers();
const AlgorithmEntry& entry_of(Algorithm);
const AlgorithmEntry* find_algorithm(std::string_view name);  // of allreduce; null where unknown
// Throws Error{argument_invalid} that begins with `what` and lists the legal names, unless `name` is one: an
// algorithm's, or "auto".
void check_algorithm(const std::string& what, const std::string& name);
// Likewise of CRIMP_ALGORITHM, which must run CRIMP_CODEC as well (null: none is chosen yet).
void check_algorithm(const Settings&, const Codec*, int ranks);
// Of parts with shares.
const AlgorithmEntry& scattering();
// The first of the carriers that can run the codec; never one in which MPI adds, so that it may run between leaders,
// too. Throws Error{codec_unknown} where there is none.
Algorithm first_algorithm(const Codec&, int ranks);
Algorithm first_algorithm(const ChoiceQuery&, int ranks);  // likewise, of any collective
// The carriers whose cost is known and that can run the codec on so many ranks, with no more error than `quality`
// (CRIMP_QUALITY) allows: any where that is infinite, and where the codec's payloads can be summed without loss only
// what adds no error. limited: some are left out for it. between_nodes: neither those in which MPI adds nor those of
// one exchange, which besides must fit a call.
struct Suitable {
  std::array<const AlgorithmEntry*, 8> entries{};
  std::size_t count = 0;
  bool limited = false;
  auto begin() const { return entries.begin(); }
  auto end() const { return entries.begin() + count; }
};
Suitable suitable(const Codec&, int ranks, double quality, bool between_nodes = false);
// Whether chunks are of other lengths where values lie in a device's memory: where the algorithm works on them there,
// and the codec gives the same results in any chunks.
bool in_device_chunks(const AlgorithmEntry&, const Codec&);
// "allgather, two_shot": those that can run the codec on so many ranks.
std::string algorithms_for(const Codec&, int ranks);

// How an algorithm carries a part (by relays where `radix` is at least 2 and it can), and the same between the leaders
// of nodes, whose plan is `between` (src/collective/node.hpp; what it names stays the caller's). Where a rank lacks
// memory for the plan the others do not know it, so the rank gets one that can only say so: part.declined, with bytes()
// that throw Error{out_of_memory} and a call that has no more than the headers of stage 0.
std::shared_ptr<const RoutePlan> plan_route(Algorithm, const PartPlan&, std::uint64_t chunk, int ranks, int radix = 1);
std::shared_ptr<const RoutePlan> in_nodes(std::shared_ptr<const RoutePlan> between, const Hierarchy&);
// How node_sum carries a part, where all ranks are on one node.
std::shared_ptr<const RoutePlan> sum_on_node(const PartPlan&, const Hierarchy&);

// The rows; each is defined beside its algorithm.
AlgorithmEntry allgather_algorithm();
AlgorithmEntry two_shot_algorithm();
AlgorithmEntry hierarchical_algorithm();
AlgorithmEntry homomorphic_algorithm();
AlgorithmEntry integer_sum_algorithm();
AlgorithmEntry low_rank_algorithm();
AlgorithmEntry one_shot_algorithm();
AlgorithmEntry node_sum_algorithm();
AlgorithmEntry reduce_scatter_algorithm();  // of parts with shares, which have no other

}  // namespace crimp
