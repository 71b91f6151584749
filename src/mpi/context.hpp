// What a communicator's session needs of its process. All of it outlives the session.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "core/settings.hpp"
#include "mpi/request.hpp"

namespace crimp {

class CodecRules;
class PrivateWorld;
class Replay;
class Report;
class SharedModels;
class Trace;
class Workers;

struct Context {
  const Settings& settings;
  bool legal;       // no setting has an illegal value
  bool cuda_aware;  // MPI takes device pointers
  CodecRules& codecs;
  Workers& workers;
  Trace* trace;                  // null: off
  const std::string& state_dir;  // CRIMP_STATE_DIR, as it was meant in MPI_Init; empty: unset
  Report& report;
  SharedModels& models;
  PrivateWorld& private_world;
  bool records;          // there will be a report
  bool times;            // what calls take is kept, for it or for CRIMP_STATUS
  const Replay* replay;  // CRIMP_REPLAY; null: unset
  // Counts a communicator of these ranks of MPI_COMM_WORLD (Runtime::count()).
  std::function<CommunicatorNumbers(const std::vector<int>& world_ranks)> count;
  // Nodes of a communicator of these ranks of MPI_COMM_WORLD; empty where they are not known.
  std::function<std::vector<std::vector<int>>(const std::vector<int>& world_ranks)> nodes_of;
  // group_of() them (collective/shared_models.hpp).
  std::function<std::uint64_t(const std::vector<int>& world_ranks)> group_of;
};

}  // namespace crimp
