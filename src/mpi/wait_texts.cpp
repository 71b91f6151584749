#include "mpi/wait_texts.hpp"

#include <cctype>

#include "mpi/request.hpp"

namespace crimp {

std::string name_of(MPI_Comm comm) {
  char name[MPI_MAX_OBJECT_NAME] = "";
  int length = 0;
  PMPI_Comm_get_name(comm, name, &length);
  return length ? name : "a communicator without a name";
}

std::string function_text(const AllreduceRequest& request) {
  std::string name = name_of(request.collective());
  if (request.blocks) return name;
  constexpr std::size_t kPrefix = 4;  // MPI_
  name[kPrefix] = static_cast<char>(std::tolower(name[kPrefix]));
  return name.insert(kPrefix, "I");
}

std::string call_text(const AllreduceRequest& request) {
  return function_text(request) + " of " + std::to_string(request.count) + " x " + name_of(request.dtype);
}

std::string absence_text(std::uint64_t min_count) {
  return "Likely a rank runs without Crimp, gives fewer than CRIMP_MIN_COUNT=" + std::to_string(min_count) +
         " elements, another type or another operation, was switched off by MPI_Pcontrol(0), or is late or dead; if all "
         "ranks wait in the same call, look at the network";
}

}  // namespace crimp
