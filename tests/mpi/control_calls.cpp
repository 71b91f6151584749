// What Crimp adds to Horovod's control calls, its decoder and gate included: calls that answered.c answers at once,
// through Crimp and straight, on a communicator whose cache holds 70 tensors. Idle calls pay 5 to 45 ns and what names
// 70 tensors some microseconds; the bounds are ten times that and more, so that no busy machine exceeds them.
#include <dlfcn.h>
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "support/horovod_simulator.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTensors = 70;
MPI_Comm comm;

template <class Function>
Function straight(const char* name) {
  Dl_info info;
  dladdr(dlsym(RTLD_DEFAULT, "answered"), &info);
  return reinterpret_cast<Function>(dlsym(dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD), name));
}

template <class Call>
double nanoseconds(Call call) {
  constexpr int kCalls = 20;
  const auto begin = Clock::now();
  for (int i = 0; i < kCalls; ++i) call();
  return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / kCalls;
}

constexpr double kIdle = 500, kNamed = 100e3;  // nanoseconds
bool slow = false;

// The least of several medians: what others do on this machine adds time and takes none away.
template <class Ours, class Theirs>
void measure(const std::string& what, double bound, Ours ours, Theirs theirs) {
  double added = 1e9;
  for (int i = 0; i < 5; ++i) {
    std::vector<double> differences;
    for (int r = 0; r < 51; ++r) differences.push_back(nanoseconds(ours) - nanoseconds(theirs));
    std::nth_element(differences.begin(), differences.begin() + 25, differences.end());
    added = std::min(added, differences[25]);
  }
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0) std::printf("%-58s Crimp adds %7.1f ns\n", what.c_str(), added);
  if (added <= bound) return;
  std::printf("%s: more than %.0f ns are added\n", what.c_str(), bound);
  slow = true;
}

}  // namespace

// With an argument: CRIMP_MERGE holds what is not complete.
int main(int argc, char**) {
  MPI_Init(nullptr, nullptr);
  MPI_Op sum;
  MPI_Op_create(reinterpret_cast<MPI_User_function*>(
                    dlsym(RTLD_DEFAULT, "_ZN7horovod6common11float16_maxEPvS1_PiPP15ompi_datatype_t")),
                1, &sum);
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  int& answered = *static_cast<int*>(dlsym(RTLD_DEFAULT, "answered"));
  const auto allreduce = straight<decltype(&MPI_Allreduce)>("MPI_Allreduce");
  const auto bcast = straight<decltype(&MPI_Bcast)>("MPI_Bcast");
  const auto gatherv = straight<decltype(&MPI_Gatherv)>("MPI_Gatherv");

  std::vector<std::pair<std::string, std::int64_t>> tensors;
  for (int i = 0; i < kTensors; ++i)
    tensors.emplace_back("allreduce.layer" + std::to_string(i) + ".weight", 1000 + i % 3);
  auto list = crimp::test::response_list(tensors);
  const int size = static_cast<int>(list.size());
  long long words[2];
  const auto bits = [&](auto f, long long first, long long second, MPI_Op op) {
    words[0] = first, words[1] = second;
    f(MPI_IN_PLACE, words, 2, MPI_LONG_LONG_INT, op, comm);
  };
  const auto negotiate = [&](auto reduce, auto gather, auto cast) {
    int length = size;
    bits(reduce, 5, 0, MPI_BAND);
    gather(nullptr, 0, MPI_BYTE, nullptr, nullptr, nullptr, MPI_BYTE, 0, comm);
    cast(&length, 1, MPI_INT, 0, comm);
    cast(list.data(), size, MPI_BYTE, 0, comm);
  };
  answered = 1;
  for (int step = 0; step < 10; ++step) negotiate(MPI_Allreduce, MPI_Gatherv, MPI_Bcast);

  measure(
      "AND, nothing ready", kIdle, [&] { bits(MPI_Allreduce, 7, 0, MPI_BAND); },
      [&] { bits(allreduce, 7, 0, MPI_BAND); });
  measure(
      "OR, nothing invalid", kIdle, [&] { bits(MPI_Allreduce, 0, 0, MPI_BOR); },
      [&] { bits(allreduce, 0, 0, MPI_BOR); });
  int length = 1;
  measure(
      "Bcast of 1 int", kIdle, [&] { MPI_Bcast(&length, 1, MPI_INT, 0, comm); },
      [&] { bcast(&length, 1, MPI_INT, 0, comm); });
  measure(
      "Bcast of 32 bytes", kIdle, [&] { MPI_Bcast(list.data(), 32, MPI_BYTE, 0, comm); },
      [&] { bcast(list.data(), 32, MPI_BYTE, 0, comm); });
  measure(
      "Gatherv", kIdle, [&] { MPI_Gatherv(nullptr, 0, MPI_BYTE, nullptr, nullptr, nullptr, MPI_BYTE, 0, comm); },
      [&] { gatherv(nullptr, 0, MPI_BYTE, nullptr, nullptr, nullptr, MPI_BYTE, 0, comm); });
  for (int step = 0; step < 10; ++step)
    negotiate(MPI_Allreduce, MPI_Gatherv, MPI_Bcast);  // the gathers alone have emptied the cache
  if (argc > 1)
    measure(
        "AND, 35 of 70 tensors ready and held", kNamed,
        [&] { bits(MPI_Allreduce, 7 | ~((1ll << 38) - 1), 7, MPI_BAND); }, [&] { bits(allreduce, 7, 0, MPI_BAND); });
  measure(
      "AND, 70 tensors ready everywhere, and what they are", kNamed,
      [&] { bits(MPI_Allreduce, -1, (1ll << 9) - 1, MPI_BAND); },
      [&] { bits(allreduce, -1, (1ll << 9) - 1, MPI_BAND); });
  measure(
      "AND, Gatherv, Bcast, Bcast: a ResponseList of 70 tensors", kNamed,
      [&] { negotiate(MPI_Allreduce, MPI_Gatherv, MPI_Bcast); }, [&] { negotiate(allreduce, gatherv, bcast); });
  answered = 0;
  MPI_Comm_free(&comm);
  MPI_Op_free(&sum);
  MPI_Finalize();
  return slow;
}
