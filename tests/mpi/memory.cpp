// A rank whose address space is limited to what the plain program needs: what Crimp cannot get there sends calls
// through MPI on all ranks, and MPI finds the memory that it finds without Crimp. Afterwards, without the limit, calls
// are compressed again.
//   memory held     calls before the limit have filled Crimp's scratch
//   memory new      the first call of two tensors: there is memory for one's residuals
//   memory threads  the limit is there at MPI_Init: no memory for CRIMP_THREADS threads
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include "crimp/crimp.h"

#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr std::uint64_t kSmall = 4 << 20, kLarge = 8 << 20, kSlack = 12 << 20, kThreadStack = 64 << 20;

// Bytes of address space, now or at most so far.
std::uint64_t address_space(const char* which) {
  std::FILE* const file = std::fopen("/proc/self/status", "r");
  char line[200];
  unsigned long kb = 0;
  while (file && std::fgets(line, sizeof line, file))
    if (!std::strncmp(line, which, std::strlen(which))) kb = std::strtoul(line + std::strlen(which) + 1, nullptr, 10);
  if (file) std::fclose(file);
  return std::uint64_t{kb} << 10;
}

void limit(std::uint64_t bytes) {
  rlimit now{};
  getrlimit(RLIMIT_AS, &now);
  now.rlim_cur = bytes ? bytes : now.rlim_max;
  setrlimit(RLIMIT_AS, &now);
}

// Ahead of MPI_Init.
int rank_by_launcher() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"})
    if (const char* const number = std::getenv(name)) return std::atoi(number);
  return -1;
}

std::vector<float> values(kLarge), sums(kLarge);

void fill() {
  for (std::uint64_t i = 0; i < kLarge; ++i)
    sums[i] = values[i] = static_cast<float>(static_cast<int>(i % 255) - 127) * 0x1p-8f * static_cast<float>(rank + 1);
}
void plain() {
  fill();
  CHECK(check::native_allreduce(MPI_IN_PLACE, sums.data(), static_cast<int>(kLarge), MPI_FLOAT, MPI_SUM,
                                MPI_COMM_WORLD) == MPI_SUCCESS);
}
// exactly: through MPI.
void call(const std::vector<crimp_segment>& tensors, bool exactly) {
  fill();
  std::uint64_t count = 0;
  for (const auto& t : tensors) count += t.count;
  CHECK(crimp_allreduce(MPI_IN_PLACE, sums.data(), count, CRIMP_FLOAT32, MPI_COMM_WORLD, tensors.data(),
                        tensors.size()) == MPI_SUCCESS);
  ++expected[exactly ? "passed_through.memory" : "calls"];
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < count; ++i)
    wrong += sums[i] != values[i] / static_cast<float>(rank + 1) * static_cast<float>(size * (size + 1) / 2);
  CHECK(!exactly || wrong == 0, "%lu values are wrong", static_cast<unsigned long>(wrong));
  CHECK(check::identical(sums.data(), count * sizeof(float), MPI_COMM_WORLD));
}

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  mallopt(M_MMAP_THRESHOLD, 1 << 20);  // so that large blocks go back to the system
  pthread_attr_t stacks;
  pthread_attr_init(&stacks);
  pthread_attr_setstacksize(&stacks, kThreadStack);
  pthread_setattr_default_np(&stacks);
  if (what == "threads" && rank_by_launcher() == 1) limit(address_space("VmSize") + (std::uint64_t{2} << 30));
  check::begin();
  if (what == "threads") limit(0);
  plain();
  const std::uint64_t of_mpi = address_space("VmPeak:") - address_space("VmSize:"), before = address_space("VmSize:");
  const crimp_segment small[] = {{"small", kSmall}}, large[] = {{"first", kLarge / 2}, {"second", kLarge / 2}};
  const std::vector<crimp_segment> one(small, small + 1), two(large, large + 2);
  if (what == "threads") {
    // Threads have taken what there was to less than another one's stack; MPI's sum may need more than that rest.
    if (rank == 1) limit(before + of_mpi + kThreadStack);
    call(one, false);
    limit(0);
    return check::finish();
  }
  std::uint64_t residuals = 0;
  if (what == "held") {
    call(one, false);
    residuals = kSmall * sizeof(float);
  }
  if (rank == 1) limit(before + residuals + of_mpi + kSlack);
  if (what == "new") plain();
  for (int i = 0; i < 3; ++i) call(two, true);
  plain();
  limit(0);
  for (int i = 0; i < 3; ++i) call(two, false);
  return check::finish();
}
