// A job that starts another one and sums with it (MPI_Comm_spawn, MPI_Intercomm_merge): nobody has compared the
// settings of two worlds, and the other may lack what this one has, so their sums are MPI's.
//   other_world same|none|off|lanes   the other's settings: these, CRIMP_CODEC=none, CRIMP_ENABLE=0, CRIMP_PROGRESS=off
//   other_world files                 the other is given names of files, which are taken to be this one's: it writes
//   none
#include <unistd.h>

#include "check.hpp"

using check::expected;

namespace {

constexpr int kSpawned = 2;

// Sums of its own that would be in a report, and residuals that would be saved.
int spawned_files(const std::string& folder) {
  for (const char* name : {"REPORT", "TRACE", "STATUS", "STATE_DIR", "PLAN_FILE"})
    setenv((std::string("CRIMP_") + name).c_str(), (folder + "/" + name).c_str(), 1);
  setenv("CRIMP_CODEC", "3lc", 1);
  MPI_Init(nullptr, nullptr);
  MPI_Comm between;
  MPI_Comm_get_parent(&between);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> x(40000), sum(x.size());
  for (int call = 0; call < 8; ++call) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(check::value(static_cast<int>(i), rank, call));
    MPI_Allreduce(x.data(), sum.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  }
  MPI_Comm_disconnect(&between);
  MPI_Finalize();
  // Where something lies in it the folder cannot be removed. The other rank writes nothing by itself.
  if (rank != 0 || ::rmdir(folder.c_str()) == 0) return 0;
  std::printf("failed: ranks that were spawned have left files in %s\n", folder.c_str());
  return 1;
}

int parents_files(char* program, char* mode) {
  check::begin(MPI_THREAD_SINGLE);
  const char* const place = getenv("TMPDIR");
  std::string folder = std::string(place ? place : "/tmp") + "/crimp-spawned-XXXXXX";
  CHECK(check::rank != 0 || ::mkdtemp(folder.data()));
  char* arguments[] = {mode, folder.data(), nullptr};
  MPI_Comm between;
  MPI_Comm_spawn(program, arguments, kSpawned, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
  std::vector<float> x(40000), sum(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(check::value(static_cast<int>(i), check::rank, 0));
  MPI_Allreduce(x.data(), sum.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  expected["calls"] = 1;
  MPI_Comm_disconnect(&between);
  return check::finish();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argv[1];
  const bool spawned = argc > 2;
  if (mode == "files") return spawned ? spawned_files(argv[2]) : parents_files(argv[0], argv[1]);
  if (spawned) {
    unsetenv("CRIMP_REPORT");
    if (mode == "none") setenv("CRIMP_CODEC", "none", 1);
    if (mode == "off") setenv("CRIMP_ENABLE", "0", 1);
    if (mode == "lanes") setenv("CRIMP_PROGRESS", "off", 1);
  }
  check::begin(mode == "lanes" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  MPI_Comm between = MPI_COMM_NULL, merged, copy;
  if (spawned) {
    MPI_Comm_get_parent(&between);
  } else {
    char* arguments[] = {argv[1], const_cast<char*>("spawned"), nullptr};
    MPI_Comm_spawn(argv[0], arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
  }
  MPI_Intercomm_merge(between, spawned, &merged);
  MPI_Comm_dup(merged, &copy);
  int all = 0, mine = 0;
  MPI_Comm_size(merged, &all);
  MPI_Comm_rank(merged, &mine);
  CHECK(all == check::size + 1 || (spawned && all > check::size));
  constexpr int kCount = 40000, kCalls = 4;
  for (int call = 0; call < kCalls; ++call)
    for (const bool waits : {false, true}) {
      std::vector<float> x(kCount);
      // A sixteenth is exact in any order of summing, and in no codec of 16 bits.
      for (int i = 0; i < kCount; ++i)
        x[static_cast<std::size_t>(i)] =
            static_cast<float>((i * 7919 + call) % 100000 - 50000) / 16 + 0.0625f * static_cast<float>(mine);
      if (waits) {
        MPI_Request request;
        CHECK(MPI_Iallreduce(MPI_IN_PLACE, x.data(), kCount, MPI_FLOAT, MPI_SUM, copy, &request) == MPI_SUCCESS);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
      } else {
        CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), kCount, MPI_FLOAT, MPI_SUM, copy) == MPI_SUCCESS);
      }
      for (int i = 0; i < kCount; ++i) {
        const float right = static_cast<float>(all) * (static_cast<float>((i * 7919 + call) % 100000 - 50000) / 16) +
                            0.0625f * static_cast<float>(all * (all - 1) / 2);
        if (x[static_cast<std::size_t>(i)] == right) continue;
        check::fail(__FILE__, __LINE__, "x is the sum",
                    check::text("[%d] is %g, not %g", i, static_cast<double>(x[static_cast<std::size_t>(i)]),
                                static_cast<double>(right)));
        break;
      }
    }
  MPI_Comm_free(&copy);
  MPI_Comm_free(&merged);
  MPI_Comm_disconnect(&between);
  if (!spawned) {
    expected["passed_through.unprepared"] = 2 * kCalls;
    return check::finish();
  }
  MPI_Finalize();
  return check::failures ? 1 : 0;
}
