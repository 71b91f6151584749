// What a cluster's exchanges and codecs take: measured there (`crimp plan --measure`), or from a rate, a latency and
// the speed of one core. The chooser's terms (src/schedule/cost_model.hpp), kept in a file.
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "collective/measure.hpp"
#include "schedule/cost_model.hpp"

namespace crimp::tools {

struct ClusterProfile {
  struct OfCodec {
    CodecCost cost;  // of one rank while all others work, too
    std::map<std::string, Curve>
        calls;  // seconds of a call by the bytes of its floats, with an algorithm; may be empty
  };
  int ranks = 2, nodes = 2;
  bool measured = false;
  std::string mpi, device = "host";
  NetworkModel network;
  std::optional<HierarchyModel> hierarchy;
  std::map<std::string, OfCodec> codecs;  // by Codec::spec()

  nlohmann::ordered_json json() const;
  // Throws std::runtime_error that says what is wrong.
  static ClusterProfile parse(const std::string& text);
  // Throws Error{argument_invalid} that names the file.
  static ClusterProfile read(const std::string& file);
};

// Of measured times of rising sizes a curve for all sizes: none takes less than a smaller one, and what is longer than
// all of them follows from the whole where chance has made the last two alike.
Curve steadied(const Curve& measured);

// A cluster that is described, not measured.
struct ClusterShape {
  int ranks = 2, nodes = 2;
  double bytes_per_s = 125e6, latency_s = 50e-6;  // of a node's link; of a message
  double add_bytes_per_s = 5e9;                   // at which plain MPI adds, and a node copies
  int cores = 0;                                  // of a node, which its ranks share; 0: as many as they use
  int threads = 1;                                // that encode and decode, per rank
  bool one_machine = false;  // all nodes share those cores, as hosts in namespaces of one machine do
  // How many times longer a core's work takes because others want it.
  double crowd(int threads_each) const;
};
// codecs: one core's costs.
ClusterProfile profile_of(const ClusterShape&, const std::map<std::string, CodecCost>& codecs);

}  // namespace crimp::tools
