#include "comm/mpi_agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "comm/mpi_transport.hpp"
#include "crimp/config.hpp"
#include "crimp/error.hpp"

namespace crimp {

void require_equal(MPI_Comm comm, int size, const std::string& what, const std::string& mine) {
  const std::uint64_t hash = digest(mine);
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(size));
  check_mpi(PMPI_Allgather(&hash, 1, MPI_UINT64_T, hashes.data(), 1, MPI_UINT64_T, comm), "MPI_Allgather");
  const auto other = std::find_if(hashes.begin(), hashes.end(), [&](std::uint64_t h) { return h != hashes[0]; });
  if (other == hashes.end()) return;

  // Everybody knows by now; what follows is for the message.
  constexpr std::size_t kShown = 160;
  char text[kShown] = {};
  std::strncpy(text, mine.c_str(), kShown - 1);
  std::vector<char> texts(hashes.size() * kShown);
  check_mpi(PMPI_Allgather(text, kShown, MPI_BYTE, texts.data(), kShown, MPI_BYTE, comm), "MPI_Allgather");
  const auto rank = static_cast<std::size_t>(other - hashes.begin());
  throw Error(ErrorCode::call_differs, what + " is " + texts.data() + " on rank 0 and " + (texts.data() + rank * kShown) + " on rank " + std::to_string(rank) +
                                           "; nothing has changed. Give all ranks of the communicator the same, between the same calls");
}

}  // namespace crimp
