// What a communicator's session needs of its process. All of it outlives the session.
#pragma once
#include <functional>
#include <vector>

#include "core/settings.hpp"

namespace crimp {

class CodecRules;
class PrivateWorld;
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
  Trace* trace;  // null: off
  Report& report;
  SharedModels& models;
  PrivateWorld& private_world;
  // Nodes of a communicator of these ranks of MPI_COMM_WORLD; empty where they are not known.
  std::function<std::vector<std::vector<int>>(const std::vector<int>& world_ranks)> nodes_of;
};

}  // namespace crimp
