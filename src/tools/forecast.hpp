// What a step of a training would take on a cluster, by codec, algorithm and merge plan: the costs of calls by the
// chooser's functions (src/collective/candidates.hpp) or as measured, put through the timeline of the merge search
// (src/schedule/merge_search.hpp). Nothing else in here predicts a time.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cluster_profile.hpp"
#include "core/settings.hpp"
#include "schedule/merge_search.hpp"
#include "tensor_list.hpp"

namespace crimp::tools {

// A step's tensors in the order of their exchange, and when each of them is ready.
struct StepShape {
  std::vector<TensorSize> tensors = {};
  std::vector<double> ready_s = {};  // since the step's begin
  double compute_s = 0;              // of a step without any exchange; 0: not known
  bool overlaps = true;              // exchanges go on while the rest is computed; else all are made behind it
  int value_bytes = 4;               // of an element as plain MPI carries it
  // A model's list as its backward pass brings it: the last tensor first, all of them in the last two thirds of
  // compute_s, in proportion to their elements.
  static StepShape of(const TensorList&, double compute_s, bool overlaps, int value_bytes);
};

struct Forecast {
  std::string codec = {};      // Codec::spec(), or "none": plain MPI
  std::string algorithm = {};  // "auto": of each call the fastest, plain MPI and 16 bits among them; "mpi" of none
  std::string merge = {};      // as CRIMP_MERGE: "off", "all", "bytes=...", "cuts=..."
  Grouping groups = {};
  double step_s = 0;      // of the whole step
  double exchange_s = 0;  // of all calls, whether something hides them or not
  double sent_bytes = 0;  // by a rank; NaN: not known
  bool by_calls = false;  // calls were measured, not modelled
  enum class Bound { computing, bandwidth, latency, codec, unknown } bound = Bound::bandwidth;
};
const char* name_of(Forecast::Bound);

// What decides which tensors are compressed, and how.
struct ForecastSettings {
  Settings settings;               // rules, min_count, chunk, radix, quality
  std::vector<std::string> merge;  // plans to try, as CRIMP_MERGE; "auto": the optimum by the timeline. The best counts
};
inline constexpr std::size_t kMostSearched = 1024;  // tensors, beyond which no optimum is looked for

// Of plain MPI first, then of each codec of the profile every algorithm that may run it, and "auto". left_out: why
// codecs are missing. Throws Error{codec_unknown} for a profile with a codec that this build has not.
std::vector<Forecast> forecasts(const ClusterProfile&, const StepShape&, const ForecastSettings&,
                                std::vector<std::string>* left_out);
// One of them under one merge plan.
Forecast forecast(const ClusterProfile&, const StepShape&, const ForecastSettings&, const std::string& codec,
                  const std::string& algorithm, const std::string& merge);

}  // namespace crimp::tools
