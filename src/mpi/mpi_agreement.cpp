#include "mpi/mpi_agreement.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/digest.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/reserve.hpp"
#include "core/settings_text.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/wait_texts.hpp"

namespace crimp {
namespace {

// A text travels in blocks, the first of which begins with its length: nothing must be allocated, and the texts of
// other builds, however long, are understood. So this never changes: blocks of 1024 bytes from rank 0; the lowest rank
// whose text is another (MPI_MIN of an int; more than the last rank: there is none); where there is one, how many
// (MPI_SUM) and the blocks of that one; and in MPI_Init how many are of another build than rank 0 (MPI_SUM).
struct Block {
  static constexpr std::size_t kBytes = 1024, kLength = 8;
  char bytes[kBytes] = {};
};

class Comparison {
 public:
  Comparison(MPI_Comm comm, int rank, int size, const std::string& where)
      : comm_(comm), rank_(rank), size_(size), where_(where) {}

  // Collective: whether `mine` is the root's text. `copy`: receives that one, as far as there is memory.
  bool same_as(int root, const std::string& mine, std::string* copy = nullptr) {
    bool same = !mine.empty();
    std::uint64_t length = mine.size();
    for (std::size_t sent = 0, head = Block::kLength; head || sent < length; head = 0) {
      Block block;
      const std::size_t room = Block::kBytes - head;
      if (rank_ == root) {
        std::memcpy(block.bytes, &length, head);
        std::memcpy(block.bytes + head, mine.data() + sent, std::min(room, mine.size() - sent));
      }
      MPI_Request request;
      check_mpi(PMPI_Ibcast(&block, sizeof block, MPI_BYTE, root, comm_, &request), "MPI_Ibcast");
      wait(request);
      if (head) std::memcpy(&length, block.bytes, head);
      const std::size_t n = std::min<std::size_t>(room, length - sent);
      same = same && length == mine.size() && std::memcmp(block.bytes + head, mine.data() + sent, n) == 0;
      if (copy && !append(*copy, block.bytes + head, n)) copy->clear(), copy = nullptr;  // all of it or nothing
      sent += n;
    }
    return same;
  }
  static bool append(std::string& to, const char* from, std::size_t n) {
    bool done = false;
    logged("the settings of another rank", [&] { to.append(from, n), done = true; });
    return done;
  }
  int all(int mine, MPI_Op op) {
    int result = mine;
    MPI_Request request;
    check_mpi(PMPI_Iallreduce(&mine, &result, 1, MPI_INT, op, comm_, &request), "MPI_Iallreduce");
    wait(request);
    return result;
  }

 private:
  void wait(MPI_Request& request) {
    wait_for(request, rank_, size_, [&] { return where_; });
  }
  MPI_Comm comm_;
  int rank_, size_;
  const std::string& where_;
};

// Behind the broadcast of rank 0's text, which `same` is about. any: as settings_agree(). difference: on rank 0, where
// there is one, the line that says it.
bool compare(Comparison& comparison, int rank, int size, const std::string& mine, bool same, bool* any,
             std::string& difference) {
  // Ranks that agree say besides whether `any` is false here, in the same number.
  const int first = comparison.all(!same ? rank : any && !*any ? size + 1 : size, MPI_MIN);
  if (any) *any = first == size;
  if (first >= size) return true;

  // Everybody knows by now; what follows is for the message.
  const int others = comparison.all(same ? 0 : 1, MPI_SUM);
  std::string theirs;
  comparison.same_as(first, mine, rank == 0 ? &theirs : nullptr);
  if (rank == 0)
    logged("settings that differ", [&] {
      difference = "the settings differ between the ranks of a communicator of " + std::to_string(size) + " (" +
                   std::to_string(others) + (others == 1 ? " rank has" : " ranks have") +
                   " others than rank 0): " + settings_difference(mine, theirs, first) +
                   "; its calls pass through uncompressed. Give all ranks the same (mpirun -x, crimp run)";
    });
  return false;
}

}  // namespace

bool settings_agree(MPI_Comm comm, int rank, int size, const Settings& settings, bool legal, const std::string& where,
                    bool* any) {
  std::string mine;  // where there is no memory for it, it is another than everybody's
  logged("the settings", [&] { mine = insist([&] { return settings_text(settings, legal); }); });
  Comparison comparison(comm, rank, size, where);
  const bool same = comparison.same_as(0, mine);
  std::string difference;
  const bool agreed = compare(comparison, rank, size, mine, same, any, difference);
  if (!difference.empty()) logged("settings that differ", [&] { log(LogLevel::error, difference); });
  return agreed;
}

Agreement settings_agree_from(int rank, int size, Settings& settings, const std::string& where,
                              const std::function<Settings(std::span<const SettingText>)>& read) {
  Agreement out;
  std::string mine, of_rank_0;
  logged("the settings", [&] { mine = settings_text(settings); });
  Comparison comparison(MPI_COMM_WORLD, rank, size, where);
  bool same = comparison.same_as(0, mine, &of_rank_0);
  bool changed = false;
  std::optional<Settings> both;
  if (!same)
    logged("the settings of rank 0", [&] {
      both = read(options_in(of_rank_0));
      std::string text = settings_text(*both);
      changed = text != mine;
      same = text == of_rank_0;
      mine.swap(text);
    });
  out.same = compare(comparison, rank, size, mine, same, nullptr, out.difference);
  if (!out.same) {
    out.one_build = comparison.all(!of_this_build(of_rank_0), MPI_SUM) == 0;
    return out;
  }
  out.taken = comparison.all(changed, MPI_SUM);
  if (both) settings = std::move(*both);
  return out;
}

void require_equal(MPI_Comm comm, int rank, int size, const std::string& what, const std::string& mine) {
  const std::uint64_t hash = digest(mine);
  std::vector<std::uint64_t> hashes(static_cast<std::size_t>(size));
  MPI_Request request;
  check_mpi(PMPI_Iallgather(&hash, 1, MPI_UINT64_T, hashes.data(), 1, MPI_UINT64_T, comm, &request), "MPI_Iallgather");
  wait_for(request, rank, size,
           [&] { return "for the others to say " + what + ", as all ranks of " + name_of(comm) + " must"; });
  const auto other = std::find_if(hashes.begin(), hashes.end(), [&](std::uint64_t h) { return h != hashes[0]; });
  if (other == hashes.end()) return;

  // Everybody knows by now; what follows is for the message.
  constexpr std::size_t kShown = 160;
  char text[kShown] = {};
  std::strncpy(text, mine.c_str(), kShown - 1);
  std::vector<char> texts(hashes.size() * kShown);
  check_mpi(PMPI_Allgather(text, kShown, MPI_BYTE, texts.data(), kShown, MPI_BYTE, comm), "MPI_Allgather");
  const auto differing = static_cast<std::size_t>(other - hashes.begin());
  throw Error(ErrorCode::call_differs,
              what + " is " + texts.data() + " on rank 0 and " + (texts.data() + differing * kShown) + " on rank " +
                  std::to_string(differing) +
                  "; nothing has changed. Give all ranks of the communicator the same, between the same calls");
}

}  // namespace crimp
