#include "plain_algorithms.hpp"

#include <cstdlib>

namespace crimp::tools {
namespace {

MPI_Comm duplicate() {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  return comm;
}

bool write_variable(const char* name, int value) {
  int index, count;
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS) return false;
  if (MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) != MPI_SUCCESS) return false;
  const bool good = MPI_T_cvar_write(handle, &value) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  return good;
}

// The algorithms' names by number; empty where the variable is missing or is no enumeration.
std::vector<std::string> algorithm_names() {
  int index, verbosity, binding, scope, values = 0, none = 0;
  MPI_Datatype type;
  MPI_T_enum names;
  if (MPI_T_cvar_get_index("coll_tuned_allreduce_algorithm", &index) != MPI_SUCCESS) return {};
  if (MPI_T_cvar_get_info(index, nullptr, &none, &verbosity, &type, &names, nullptr, &none, &binding, &scope) !=
      MPI_SUCCESS)
    return {};
  if (names == MPI_T_ENUM_NULL || MPI_T_enum_get_info(names, &values, nullptr, &none) != MPI_SUCCESS) return {};
  std::vector<std::string> all;
  for (int i = 0; i < values; ++i) {
    char name[128] = "";
    int value, length = sizeof name;
    if (MPI_T_enum_get_item(names, i, &value, name, &length) != MPI_SUCCESS || value != i) return {};
    all.emplace_back(name);
  }
  return all;
}

}  // namespace

void request_plain_algorithms() { setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", 1); }

std::vector<PlainAlgorithm> plain_algorithms(bool every, std::string* problem) {
  std::vector<PlainAlgorithm> all{{"default", duplicate()}};
  if (!every) return all;
  int provided;
  if (MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) != MPI_SUCCESS) return *problem = "MPI_T does not start", all;
  const std::vector<std::string> names = algorithm_names();
  if (names.empty()) *problem = "this MPI has no control variable coll_tuned_allreduce_algorithm";
  for (std::size_t i = 1; i < names.size() && problem->empty(); ++i) {
    // Without segments the segmented ring is the ring; 1 MiB is what Open MPI's own decision gives it.
    if (!write_variable("coll_tuned_allreduce_algorithm_segmentsize", names[i] == "segmented_ring" ? 1 << 20 : 0) ||
        !write_variable("coll_tuned_allreduce_algorithm", static_cast<int>(i)))
      *problem = "coll_tuned_allreduce_algorithm cannot be written";
    else all.push_back({names[i], duplicate()});
  }
  write_variable("coll_tuned_allreduce_algorithm", 0);
  write_variable("coll_tuned_allreduce_algorithm_segmentsize", 0);
  MPI_T_finalize();
  return all;
}

}  // namespace crimp::tools
