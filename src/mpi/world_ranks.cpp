#include "mpi/world_ranks.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <string_view>

#include "codec/codec.hpp"
#include "core/digest.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"

namespace crimp {

std::vector<int> world_ranks(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  std::vector<int> mine(static_cast<std::size_t>(size)), of_world(mine.size());
  std::iota(mine.begin(), mine.end(), 0);
  MPI_Group world, group;
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  PMPI_Comm_group(comm, &group);
  PMPI_Group_translate_ranks(group, size, mine.data(), world, of_world.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  for (int& r : of_world) r = std::max(r, -1);  // MPI_UNDEFINED is negative
  return of_world;
}

std::vector<std::uint64_t> gather_in_init(const std::vector<std::uint64_t>& mine, int rank, int size,
                                          const char* where) {
  const auto n = static_cast<int>(mine.size());
  std::vector<std::uint64_t> all(mine.size() * static_cast<std::size_t>(size));
  MPI_Request request;
  check_mpi(PMPI_Iallgather(mine.data(), n, MPI_UINT64_T, all.data(), n, MPI_UINT64_T, MPI_COMM_WORLD, &request),
            "MPI_Iallgather");
  wait_for(request, rank, size, [&] { return std::string(where); });
  return all;
}

// Nothing is said on the communicator: where several machines have one host name, as containers may, Open MPI 4.1 gives
// ranks different ones, and calls on them never return.
std::vector<int> hosts_of_world(int rank, int size, int* alone) {
  *alone = 0;
  MPI_Comm host;
  check_mpi(PMPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  std::vector<int> peers = world_ranks(host);
  std::sort(peers.begin(), peers.end());
  const bool in = std::binary_search(peers.begin(), peers.end(), rank);
  // The lowest peer, how many, and which; none where MPI does not name the rank itself.
  const std::vector<std::uint64_t> all =
      gather_in_init({static_cast<std::uint64_t>(peers[0]), in ? peers.size() : 0,
                      digest({reinterpret_cast<const char*>(peers.data()), peers.size() * sizeof peers[0]})},
                     rank, size, "in MPI_Init for the others to say who shares their machine. Likely one has died");
  const auto group_of = [&](std::size_t r) { return std::array{all[3 * r], all[3 * r + 1], all[3 * r + 2]}; };
  std::map<std::array<std::uint64_t, 3>, std::uint64_t> say_so;
  std::vector<int> hosts(static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < hosts.size(); ++r) ++say_so[group_of(r)];
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const auto group = group_of(r);
    const bool whole = say_so[group] == group[1];
    hosts[r] = static_cast<int>(whole ? group[0] : r);
    *alone += !whole;
    // Freeing another may wait for ranks that do not come.
    if (whole && r == static_cast<std::size_t>(rank)) PMPI_Comm_free(&host);
  }
  return hosts;
}

bool of_this_world(MPI_Comm comm) {
  const std::vector<int> ranks = world_ranks(comm);
  return std::find(ranks.begin(), ranks.end(), -1) == ranks.end();
}

std::uint32_t salt_of(const std::vector<int>& world_ranks, int rank, bool nonblocking) {
  int world = 0;
  check_mpi(PMPI_Comm_size(MPI_COMM_WORLD, &world), "MPI_Comm_size");
  bool whole = world_ranks.size() == static_cast<std::size_t>(world);
  for (std::size_t r = 0; whole && r < world_ranks.size(); ++r) whole = world_ranks[r] == static_cast<int>(r);
  if (whole && !nonblocking) return 0;
  std::vector<int> of = world_ranks;
  of.push_back(world_ranks[static_cast<std::size_t>(rank)]);
  of.push_back(nonblocking);
  const std::string_view bytes(reinterpret_cast<const char*>(of.data()), of.size() * sizeof(int));
  return static_cast<std::uint32_t>(digest(bytes)) & ~kSums;
}

}  // namespace crimp
