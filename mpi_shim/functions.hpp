// MPI's reductions, and what Crimp does with each: one row a function. `crimp check` and the self-check read it;
// house.functions compares it with exports.map.
#pragma once
#include <optional>
#include <string_view>

namespace crimp {

enum class Handling {
  compressed,  // where type, operation and count allow it
  left,        // not exported: MPI's alone
};

struct MpiFunction {
  std::string_view name;  // as C callers write it; its other name has a P in front
  Handling handling;
};

// The first is what `crimp check` asks for where no module calls any. A function of MPI 4 is exported where the MPI
// library that Crimp was built with has it.
inline constexpr MpiFunction kReductions[] = {
    {"MPI_Allreduce", Handling::compressed},
    {"MPI_Allreduce_c", Handling::compressed},
    {"MPI_Iallreduce", Handling::compressed},
    {"MPI_Iallreduce_c", Handling::compressed},
    {"MPI_Allreduce_init", Handling::compressed},
    {"MPI_Allreduce_init_c", Handling::compressed},
    {"MPIX_Allreduce_init", Handling::compressed},
    {"MPI_Reduce_scatter_block", Handling::compressed},
    {"MPI_Reduce_scatter_block_c", Handling::compressed},
    {"MPI_Ireduce_scatter_block", Handling::compressed},
    {"MPI_Ireduce_scatter_block_c", Handling::compressed},
    {"MPI_Reduce_scatter_block_init", Handling::left},
    {"MPI_Reduce_scatter_block_init_c", Handling::left},
    {"MPIX_Reduce_scatter_block_init", Handling::left},
    {"MPI_Reduce_scatter", Handling::compressed},
    {"MPI_Reduce_scatter_c", Handling::compressed},
    {"MPI_Ireduce_scatter", Handling::compressed},
    {"MPI_Ireduce_scatter_c", Handling::compressed},
    {"MPI_Reduce_scatter_init", Handling::left},
    {"MPI_Reduce_scatter_init_c", Handling::left},
    {"MPIX_Reduce_scatter_init", Handling::left},
    {"MPI_Reduce", Handling::compressed},
    {"MPI_Reduce_c", Handling::compressed},
    {"MPI_Ireduce", Handling::compressed},
    {"MPI_Ireduce_c", Handling::compressed},
    {"MPI_Reduce_init", Handling::left},
    {"MPI_Reduce_init_c", Handling::left},
    {"MPIX_Reduce_init", Handling::left},
};

// By either name: MPI_x or PMPI_x.
constexpr const MpiFunction* reduction(std::string_view symbol) {
  if (symbol.substr(0, 4) == "PMPI") symbol.remove_prefix(1);
  if (symbol.substr(0, 3) != "MPI") return nullptr;
  for (const auto& f : kReductions)
    if (f.name == symbol) return &f;
  return nullptr;
}

constexpr std::string_view text(Handling handling) {
  constexpr std::string_view kTexts[] = {"compressed", "left to MPI"};
  return kTexts[static_cast<int>(handling)];
}

}  // namespace crimp
