// The algorithms: one row each. A call names one (CollectiveCall::algorithm); every rank must name the same.
#pragma once
#include <span>
#include <string>
#include <string_view>

#include "collective/collective.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

struct AlgorithmEntry {
  Algorithm algorithm;
  const char* name;     // as in CRIMP_ALGORITHM
  const char* summary;  // one line: what travels
  // Empty where the algorithm can run this codec on so many ranks, else why not ("it needs a codec that ..."). Equal on all ranks.
  std::string obstacle(const Codec&, int ranks) const;
  // Likewise what this algorithm alone asks for.
  std::string (*needs)(const Codec&, int ranks) = [](const Codec&, int) { return std::string(); };
  // Elements of a chunk, a multiple of kPieceElements, where CRIMP_CHUNK says `setting`.
  std::uint64_t (*chunk_elements)(std::uint64_t setting, const Codec&, int ranks);
  // Bytes that run() takes of the arena. Only `count`, `chunk`, `codec`, `layout`, and whether there are memories, count.
  std::uint64_t (*arena_bytes)(const CollectiveCall&, int ranks);
  CollectiveResult (*run)(Transport&, Arena*, Workers&, const CollectiveCall&, Trace*);
  // Seconds that a call is predicted to take. Null: run where CRIMP_ALGORITHM names it, or nothing else can run the codec.
  double (*cost)(const CostQuery&);
  // About how much more error its results have than allgather's with the same codec (in the terms of Codec::error_of_two_encodings(); at least 1). Equal on
  // all ranks. Of hierarchical: what the algorithm between the leaders says.
  double (*error)(const Codec&, int ranks) = [](const Codec&, int) { return 1.0; };
  // Sums are encoded: inputs must leave room for them within the codec's range.
  bool sums_encoded = false;
  // MPI adds over the whole communicator: not between nodes' leaders.
  bool mpi_adds = false;
  // Sees values only through the call's Backend, so that they may lie anywhere. Otherwise in host memory.
  bool any_backend = false;
  // Its arena is in pinned host memory whatever MPI can take: sums of floats are the host's.
  bool host_bodies = false;
  // Runs codecs of whole tensors (Codec::Traits::whole_tensors), and nothing else does.
  bool whole_tensors = false;
  // Bytes that run() takes of CollectiveCall::values, where there is one; null: what Pipeline::begin() takes.
  std::uint64_t (*value_bytes)(const CollectiveCall&) = nullptr;
  // Wants CollectiveCall::owner_residuals with this codec.
  bool (*owner_memory)(const Codec&) = [](const Codec&) { return false; };
};

// In the order of the enum's values.
std::span<const AlgorithmEntry> algorithms();
const AlgorithmEntry& entry_of(Algorithm);
const AlgorithmEntry* find_algorithm(std::string_view name);  // null where unknown
// The first that can run the codec; never one in which MPI adds, so that it may run between leaders, too.
Algorithm first_algorithm(const Codec&, int ranks);
// "allgather, two_shot": those that can run the codec on so many ranks.
std::string algorithms_for(const Codec&, int ranks);

// The rows; each is defined beside its algorithm.
AlgorithmEntry allgather_algorithm();
AlgorithmEntry two_shot_algorithm();
AlgorithmEntry hierarchical_algorithm();
AlgorithmEntry homomorphic_algorithm();
AlgorithmEntry integer_sum_algorithm();
AlgorithmEntry low_rank_algorithm();

}  // namespace crimp
