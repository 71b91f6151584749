// Ranks of MPI_COMM_WORLD that run Horovod and ranks that do not, played:
//   partly_horovod default   all but the last run it, no codec is named: sums of the program's own are MPI's; those of
//                            Horovod's thread are compressed
//   partly_horovod past      the same where MPI was initialized past Crimp, which starts in Horovod's first sum
//   partly_horovod adasum    all run it, a codec is named: what the program itself asks with MPI_BAND makes no thread
//                            Horovod's, whose float64 sums are Adasum's
#include <thread>

#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr int kCount = 40000;

template <class T>
std::vector<T> noise(int seed) {
  std::vector<T> x(kCount);
  for (int i = 0; i < kCount; ++i)
    x[static_cast<std::size_t>(i)] = static_cast<T>(0.001 * ((i * 7919 + seed * 104729 + rank * 31) % 1009 - 504.25));
  return x;
}

void as_mpi(MPI_Comm comm, int seed) {
  const auto x = noise<float>(seed);
  std::vector<float> plain(x.size()), sum = x;
  check::native_allreduce(x.data(), plain.data(), kCount, MPI_FLOAT, MPI_SUM, comm);
  CHECK(MPI_Allreduce(MPI_IN_PLACE, sum.data(), kCount, MPI_FLOAT, MPI_SUM, comm) == MPI_SUCCESS);
  CHECK(sum == plain);
  sum = x;
  MPI_Request request;
  CHECK(MPI_Iallreduce(MPI_IN_PLACE, sum.data(), kCount, MPI_FLOAT, MPI_SUM, comm, &request) == MPI_SUCCESS);
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (!(std::abs(sum[i] - plain[i]) <= 1e-5f)) return check::fail(__FILE__, __LINE__, "as MPI's", check::text());
}

// As by ctypes, in libmpi's own handle.
void begin_past() {
  int provided = 0;
  reinterpret_cast<decltype(&MPI_Init_thread)>(check::in_libmpi("PMPI_Init_thread"))(nullptr, nullptr,
                                                                                     MPI_THREAD_MULTIPLE, &provided);
  CHECK(provided == MPI_THREAD_MULTIPLE);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
}

}  // namespace

int main(int, char** argv) {
  const std::string mode = argv[1];
  if (mode == "past") begin_past();
  else check::begin(MPI_THREAD_MULTIPLE);
  const bool runs = mode == "adasum" || rank < size - 1;
  MPI_Comm some;
  MPI_Comm_split(MPI_COMM_WORLD, rank < size - 1, rank, &some);
  MPI_Op max = MPI_OP_NULL;
  if (runs)
    std::thread([&] {
      MPI_Op_create(reinterpret_cast<MPI_User_function*>(
                        dlsym(RTLD_DEFAULT, "_ZN7horovod6common11float16_maxEPvS1_PiPP15ompi_datatype_t")),
                    1, &max);
      if (mode == "adasum") return;
      // What its gradients have: 16 bits, until it is known which they are.
      const auto x = noise<float>(1);
      std::vector<float> plain(x.size()), sum = x;
      check::native_allreduce(x.data(), plain.data(), kCount, MPI_FLOAT, MPI_SUM, some);
      CHECK(MPI_Allreduce(MPI_IN_PLACE, sum.data(), kCount, MPI_FLOAT, MPI_SUM, some) == MPI_SUCCESS);
      CHECK(sum != plain);
    }).join();
  if (mode != "adasum") {
    if (runs) expected["calls"] = 1, expected["passed_through.no_codec>"] = 4;
    for (int seed = 2; seed < 5; ++seed) as_mpi(MPI_COMM_WORLD, seed);
    as_mpi(some, 5);
  } else {
    long long well = 1;
    if (rank < size - 1) CHECK(MPI_Allreduce(MPI_IN_PLACE, &well, 1, MPI_LONG_LONG, MPI_BAND, some) == MPI_SUCCESS);
    auto x = noise<double>(1);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), kCount, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(check::identical(x.data(), x.size() * sizeof(double), MPI_COMM_WORLD));
    expected["calls"] = 1;
  }
  if (max != MPI_OP_NULL) MPI_Op_free(&max);
  MPI_Comm_free(&some);
  return check::finish();
}
