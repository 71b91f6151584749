// Two duplicates of MPI_COMM_WORLD. The first call of all on rank 0 is a sum on `begun` that does not block; what
// follows is a named tensor's on `named`, which blocks. With OTHERS=late the other ranks come to the first sum when the
// second has ended, so that CRIMP_PROGRESS=thread cannot carry it before.
//   first_calls STEPS begun|both
#include "check.hpp"
#include "crimp/crimp.h"

int main(int, char** argv) {
  check::begin();
  const int steps = std::atoi(argv[1]);
  const bool both = std::string(argv[2]) == "both";
  const char* const others = std::getenv("OTHERS");
  const bool late = check::rank > 0 && others && std::string(others) == "late";
  MPI_Comm begun, named;
  MPI_Comm_dup(MPI_COMM_WORLD, &begun);
  MPI_Comm_dup(MPI_COMM_WORLD, &named);
  std::vector<float> a(30000), sums(a.size()), b(50000);
  const crimp_segment segment{"named.weight", b.size()};
  std::uint64_t digest = 1469598103934665603u;
  const auto note = [&](const std::vector<float>& x) {
    for (const float f : x) {
      std::uint32_t bits;
      std::memcpy(&bits, &f, sizeof bits);
      digest = (digest ^ bits) * 1099511628211u;
    }
  };
  const auto fill = [](std::vector<float>& x, int salt) {
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(check::value(i, check::rank, static_cast<unsigned>(salt)));
  };
  for (int step = 0; step < steps; ++step) {
    fill(a, 2 * step), fill(b, 2 * step + 1);
    MPI_Request request;
    const auto begin = [&] {
      CHECK(MPI_Iallreduce(a.data(), sums.data(), static_cast<int>(a.size()), MPI_FLOAT, MPI_SUM, begun, &request) ==
            MPI_SUCCESS);
    };
    if (!late) begin();
    if (both)
      CHECK(crimp_allreduce(MPI_IN_PLACE, b.data(), b.size(), CRIMP_FLOAT32, named, &segment, 1) == MPI_SUCCESS);
    if (late) begin();
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    note(sums);
    if (both) note(b);
  }
  std::printf("digest %d %016llx\n", check::rank, static_cast<unsigned long long>(digest));
  std::fflush(stdout);
  MPI_Comm_free(&begun);
  MPI_Comm_free(&named);
  return check::finish();
}
