#include "mpi/mpi_world.hpp"

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <numeric>
#include <string>
#include <string_view>

#include "codec/codec.hpp"
#include "core/digest.hpp"
#include "core/error.hpp"
#include "core/reserve.hpp"
#include "mpi/mpi_transport.hpp"
#include "mpi/mpi_wait.hpp"

namespace crimp {

void PrivateWorld::open() {
  check_mpi(PMPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(PMPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

void PrivateWorld::close() {
  if (is_open()) PMPI_Comm_free(&comm_);
}

// Channels are opened on all ranks of a communicator alike, but by threads on several communicators in any order: two
// may agree on one number at once. Then some rank has given it away already, and all try another one.
int PrivateWorld::open_channel(MPI_Comm comm, int rank, int size) {
  int* most = nullptr;
  int found = 0;
  check_mpi(PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found), "MPI_Comm_get_attr");
  const int last = (found ? *most : 32767) - kTags;
  for (bool again = false;;) {
    int mine = 0;
    {
      std::lock_guard lock(mutex_);
      mine = next_;
    }
    const int agreed = agree_on_nodes(comm, rank, size, mine, MPI_MAX);
    if (agreed > last) {  // those of communicators that were freed are free again
      if (again)
        throw insist([&] {
          return Error(ErrorCode::out_of_memory,
                       "all " + std::to_string(last) + " tags of this MPI library are in use");
        });
      again = true;
      std::lock_guard lock(mutex_);
      next_ = 0;
      continue;
    }
    int free = 0;
    {
      std::lock_guard lock(mutex_);
      insist([&] { free = channels_.insert(agreed).second; });
      if (next_ < agreed + kTags) next_ = agreed + kTags;
    }
    if (agree_on_nodes(comm, rank, size, free, MPI_MIN)) return agreed;
    if (free) close_channel(agreed);
  }
}

void PrivateWorld::close_channel(int tag) {
  std::lock_guard lock(mutex_);
  channels_.erase(tag);
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

int agree_on_nodes(MPI_Comm comm, int rank, int size, int mine, MPI_Op op) {
  int all = mine;
  MPI_Request request;
  check_mpi(PMPI_Iallreduce(&mine, &all, 1, MPI_INT, op, comm, &request), "MPI_Iallreduce");
  wait_for(request, rank, size,
           [&] { return "for the others to open the nodes of " + name_of(comm) + ", as all of its ranks must"; });
  return all;
}

void check_private(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  PMPI_Error_string(rc, text, &length);
  throw Error(ErrorCode::transport_failed, std::string(call) + " failed between some of the ranks: " + text);
}

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

}  // namespace crimp
