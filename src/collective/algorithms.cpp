#include "collective/algorithms.hpp"

#include <algorithm>

#include "collective/pipeline.hpp"

namespace crimp {

std::string AlgorithmEntry::obstacle(const Codec& codec, int ranks) const {
  if (whole_tensors == codec.traits().whole_tensors) return needs(codec, ranks);
  return whole_tensors ? "it runs codecs of whole tensors only (powersgd)" : "the codec works on whole tensors; its algorithm is low_rank";
}

std::span<const AlgorithmEntry> algorithms() {
  static const AlgorithmEntry all[] = {allgather_algorithm(), two_shot_algorithm(),    homomorphic_algorithm(),
                                       integer_sum_algorithm(), low_rank_algorithm(), hierarchical_algorithm()};
  return all;
}

const AlgorithmEntry& entry_of(Algorithm algorithm) {
  for (const auto& entry : algorithms())
    if (entry.algorithm == algorithm) return entry;
  throw Error(ErrorCode::argument_invalid, "algorithm " + std::to_string(static_cast<int>(algorithm)) + " is not in this build");
}

const AlgorithmEntry* find_algorithm(std::string_view name) {
  for (const auto& entry : algorithms())
    if (name == entry.name) return &entry;
  return nullptr;
}

Algorithm first_algorithm(const Codec& codec, int ranks) {
  for (const auto& entry : algorithms())
    if (!entry.mpi_adds && entry.obstacle(codec, ranks).empty()) return entry.algorithm;
  throw Error(ErrorCode::argument_invalid, "no algorithm runs codec " + codec.spec());
}

std::string algorithms_for(const Codec& codec, int ranks) {
  std::string names;
  for (const auto& entry : algorithms())
    if (entry.obstacle(codec, ranks).empty()) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

std::uint64_t arena_bytes(const CollectiveCall& call, int ranks) { return entry_of(call.algorithm).arena_bytes(call, ranks); }

std::uint64_t value_bytes(const CollectiveCall& call) {
  const auto& entry = entry_of(call.algorithm);
  return entry.value_bytes ? entry.value_bytes(call) : Pipeline::own_bytes(call);
}

std::uint64_t chunk_elements(std::uint64_t setting, const Codec& codec, int ranks, Algorithm algorithm) {
  return entry_of(algorithm).chunk_elements(setting, codec, ranks);
}

CollectiveResult allreduce_compressed(Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace) {
  return entry_of(call.algorithm).run(transport, arena, workers, call, trace);
}

}  // namespace crimp
