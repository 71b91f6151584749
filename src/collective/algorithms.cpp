#include "collective/algorithms.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "collective/relay.hpp"
#include "core/nearest.hpp"
#include "core/settings.hpp"

namespace crimp {

std::string AlgorithmEntry::why_unsupported(const Codec& codec, int ranks) const {
  if (whole_tensors == codec.traits().whole_tensors) return needs(codec, ranks);
  return whole_tensors ? "it runs codecs of whole tensors only (powersgd)"
                       : "the codec works on whole tensors; its algorithm is low_rank";
}

AlgorithmEntry::Prediction AlgorithmEntry::predicted(const NetworkModel& network, const CodecCost& codec,
                                                     const ChoiceQuery& query) const {
  const double share = query.collective == Collective::allreduce
                           ? 1
                           : static_cast<double>(query.largest_share) / static_cast<double>(query.count);
  const auto in_chunks = [&](std::uint64_t setting, int radix) {
    const std::uint64_t chunk = chunk_elements(setting, *query.codec, network.ranks);
    return Prediction{codec.scan_s * static_cast<double>(query.count) +
                          cost({network, codec, query.count, chunk, radix, share, query.frame_bytes}),
                      setting, radix};
  };
  const auto relayed = [&](int radix) {
    if (query.chunk_setting != 0) return in_chunks(query.chunk_setting, radix);
    const bool device = codec.launch_s > 0 && radix == 1 && in_device_chunks(*this, *query.codec);
    const std::uint64_t usual = device ? kDeviceChunk : kDefaultChunk;
    Prediction best = in_chunks(usual, radix);
    if (query.codec->traits().selects)
      return best;  // out of a tensor's part in a chunk: other chunks are other results
    const auto consider = [&](std::uint64_t setting) {
      if (const Prediction other = in_chunks(setting, radix); other.s < kWorthMemory * best.s) best = other;
    };
    for (std::uint64_t setting = kDefaultChunk; setting < usual; setting *= kChunkStep) consider(setting);
    for (std::uint64_t setting = kChunkStep * usual; setting / kChunkStep < query.count && setting <= kLongestChunk;
         setting *= kChunkStep)
      consider(setting);
    return best;
  };
  if (plan_relayed && query.radix != 0) return relayed(query.radix);
  const Prediction direct = relayed(1);
  if (!plan_relayed || network.step.empty()) return direct;
  Prediction best = direct;
  for (const int radix : relay_radices(network.ranks))
    if (const Prediction other = relayed(radix); other.s < best.s && other.s < kWorthMemory * direct.s) best = other;
  return best;
}

bool AlgorithmEntry::fits(const ChoiceQuery& query, int ranks) const {
  return !one_exchange || ChoiceQuery::fits_one_exchange(query.frame_bytes, ranks);
}

std::span<const AlgorithmEntry> algorithms() {
  static const AlgorithmEntry all[] = {allgather_algorithm(),    two_shot_algorithm(), homomorphic_algorithm(),
                                       integer_sum_algorithm(),  low_rank_algorithm(), one_shot_algorithm(),
                                       hierarchical_algorithm(), node_sum_algorithm()};
  return all;
}

std::span<const AlgorithmEntry> carriers() {
  const auto all = algorithms();
  return all.first(static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [](const AlgorithmEntry& entry) { return !entry.plan; }) - all.begin()));
}

const AlgorithmEntry& entry_of(Algorithm algorithm) {
  for (const auto& entry : algorithms())
    if (entry.algorithm == algorithm) return entry;
  if (algorithm == Algorithm::reduce_scatter) return scattering();
  throw Error(ErrorCode::argument_invalid,
              "algorithm " + std::to_string(static_cast<int>(algorithm)) + " is not in this build");
}

const AlgorithmEntry& scattering() {
  static const AlgorithmEntry entry = reduce_scatter_algorithm();
  return entry;
}

const AlgorithmEntry* find_algorithm(std::string_view name) {
  for (const auto& entry : algorithms())
    if (name == entry.name) return &entry;
  return nullptr;
}

void check_algorithm(const std::string& what, const std::string& name) {
  std::vector<std::string> names{"auto"};
  for (const auto& entry : algorithms()) names.emplace_back(entry.name);
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw Error(ErrorCode::argument_invalid,
                what + " is '" + name + "'" + did_you_mean(name, names) + "; legal is: " + joined(names));
}

void check_algorithm(const Settings& settings, const Codec* codec, int ranks) {
  if (settings.algorithm == "auto") return;
  check_algorithm("CRIMP_ALGORITHM", settings.algorithm);
  const AlgorithmEntry* const entry = find_algorithm(settings.algorithm);
  const int several = std::max(2, ranks);
  const std::string obstacle = entry && codec ? entry->why_unsupported(*codec, several) : "";
  if (!obstacle.empty())
    throw Error(ErrorCode::argument_invalid, "CRIMP_ALGORITHM is '" + settings.algorithm +
                                                 "', which cannot run CRIMP_CODEC=" + settings.codec + ": " + obstacle +
                                                 "; this codec can run " + algorithms_for(*codec, several));
}

Algorithm first_algorithm(const Codec& codec, int ranks) {
  for (const auto& entry : carriers())
    if (!entry.mpi_adds && entry.why_unsupported(codec, ranks).empty())
      return entry.algorithm;  // what MPI adds runs no codec alone
  throw Error(ErrorCode::codec_unknown, "no algorithm of this build runs the codec " + codec.spec());
}

Algorithm first_algorithm(const ChoiceQuery& query, int ranks) {
  return query.collective == Collective::allreduce ? first_algorithm(*query.codec, ranks) : scattering().algorithm;
}

Suitable suitable(const Codec& codec, int ranks, double quality, bool between_nodes) {
  Suitable found;
  const bool exact_sums = entry_of(Algorithm::homomorphic).why_unsupported(codec, ranks).empty();
  for (const auto& entry : carriers()) {
    if (!entry.cost || (between_nodes && (entry.mpi_adds || entry.one_exchange)) ||
        !entry.why_unsupported(codec, ranks).empty())
      continue;
    const double error = entry.error(codec, ranks);
    const bool good = error <= 1 || std::isinf(quality) || (error <= quality && !exact_sums);
    if (good) found.entries[found.count++] = &entry;
    else found.limited = true;
  }
  return found;
}

bool in_device_chunks(const AlgorithmEntry& entry, const Codec& codec) {
  return entry.any_backend && !codec.traits().selects && !codec.traits().whole_tensors;
}

std::string algorithms_for(const Codec& codec, int ranks) {
  std::string names;
  for (const auto& entry : algorithms())
    if (entry.why_unsupported(codec, ranks).empty()) names += (names.empty() ? "" : ", ") + std::string(entry.name);
  return names;
}

std::shared_ptr<const RoutePlan> plan_route(Algorithm algorithm, const PartPlan& part, std::uint64_t chunk, int ranks,
                                            int radix) {
  const AlgorithmEntry& entry = entry_of(algorithm);
  const bool relayed = radix > 1 && entry.plan_relayed;
  const auto plan = [&](const PartPlan& of) {
    return relayed ? entry.plan_relayed(of, chunk, ranks, radix) : entry.plan(of, chunk, ranks);
  };
  std::unique_ptr<RoutePlan> route;
  try {
    route = plan(part);
  } catch (const std::bad_alloc&) {
    PartPlan less = part;
    less.declined = true;
    route = plan(less);
  }
  route->name = relayed ? entry.relayed_name : entry.name;
  route->owner_memory = entry.owner_memory(*part.codec);
  route->sums_encoded = entry.sums_encoded;
  route->converts = entry.converts;
  route->any_backend = entry.any_backend && !relayed;  // relays copy bodies, on the host
  route->host_bodies = entry.host_bodies || relayed;
  return route;
}

}  // namespace crimp
