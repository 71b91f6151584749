#include "mpi/mpi_gather.hpp"

#include "core/types.hpp"
#include "mpi/errors_return.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/payload_unit.hpp"

namespace crimp {
namespace {

constexpr const char* kWhere =
    "in MPI_Finalize for the others' parts of CRIMP_REPORT and CRIMP_TRACE. Likely a rank has not come to MPI_Finalize yet, or never does";

}  // namespace

std::optional<std::vector<std::string>> gather_texts(std::string mine, int rank, int size) {
  const ErrorsReturn errors(MPI_COMM_WORLD);
  const auto wait = [&](MPI_Request& request) { wait_for(request, rank, size, [] { return std::string(kWhere); }); };
  // Runs work() on rank 0; true on all ranks where it had the memory.
  const auto prepared = [&](auto&& work) {
    int good = rank != 0 || logged("no memory for the other ranks' part of a report", work);
    MPI_Request request;
    check_mpi(PMPI_Ibcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD, &request), "MPI_Ibcast");
    wait(request);
    return good != 0;
  };
  if (!logged("no memory for this rank's part of a report",
              [&] { mine.resize(round_up(mine.size(), kPayloadAlign), ' '); }))
    mine.clear();

  const int length = static_cast<int>(mine.size() / kPayloadAlign);
  std::vector<int> lengths, places;
  std::vector<std::string> texts;
  std::string all;
  MPI_Request request;
  if (!prepared([&] { lengths.resize(static_cast<std::size_t>(size)), places = lengths; })) return {};
  check_mpi(PMPI_Igather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD, &request), "MPI_Igather");
  wait(request);
  const bool room = prepared([&] {
    int total = 0;
    for (std::size_t r = 0; r < lengths.size(); ++r) {
      places[r] = total;
      total += lengths[r];
    }
    all.resize(static_cast<std::size_t>(total) * kPayloadAlign);
  });
  if (!room) return {};
  const MPI_Datatype unit = payload_unit();
  check_mpi(PMPI_Igatherv(mine.data(), length, unit, all.data(), lengths.data(), places.data(), unit, 0, MPI_COMM_WORLD,
                          &request),
            "MPI_Igatherv");
  wait(request);
  for (std::size_t r = 0; r < lengths.size(); ++r)
    texts.push_back(all.substr(static_cast<std::size_t>(places[r]) * kPayloadAlign,
                               static_cast<std::size_t>(lengths[r]) * kPayloadAlign));
  return texts;
}

}  // namespace crimp
