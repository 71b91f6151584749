// What `crimp plan` says of a forecast: table, verdict, JSON.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "advice.hpp"
#include "cluster_profile.hpp"
#include "forecast.hpp"

namespace crimp::tools {

struct PlanAnswer {
  ClusterProfile profile;
  std::string from;                      // the profile's file; empty: the cluster is described
  double bits_per_s = 0, latency_s = 0;  // of one that is described
  int cores = 0;                         // likewise, 0: one for every thread
  bool one_machine = false;              // all ranks share them
  bool bounds_only = false;              // codecs are taken for nothing, because none was measured on a GPU
  bool traced = false;                   // the step is one that a report has traced
  int traced_ranks = 0;                  // of that job; 0: not known
  double most_loss = kChance;
  std::string caller;
  StepShape step;
  std::vector<Forecast> rows;  // plain MPI first
  std::vector<std::string> left_out;
  Advice advice;
  std::optional<double> even_bits_per_s;  // the link's rate at which it begins or ceases to pay
};

void print(const PlanAnswer&);
// What to do and why, in sentences; each ends a line.
std::string verdict(const PlanAnswer&);
nlohmann::ordered_json json_of(const PlanAnswer&, const std::string& verdict);

}  // namespace crimp::tools
