// exit() with a sum under way that a thread carries (CRIMP_PROGRESS=thread), on rank 0, whose sum the others join only
// then.
//   exiting freed     a destructor takes its buffers away, lets rank 1 into the sum and takes its time
//   exiting handler   a handler of the program's completes it, and finalizes MPI
//   exiting needed    ... after it has met a rank that first completes it
#include <sys/mman.h>
#include <unistd.h>

#include "check.hpp"

namespace {

constexpr int kCount = 20000;
constexpr std::size_t kBytes = kCount * sizeof(float);
int token = 0;

float* pages() {
  void* const p = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<float*>(p);
}

struct Model {
  float* in = pages();
  float* out = pages();
  bool ends = false;
  MPI_Request request = MPI_REQUEST_NULL;

  void start() {
    std::fill(in, in + kCount, static_cast<float>(check::rank + 1));
    CHECK(MPI_Iallreduce(in, out, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
  }
  void wait() {
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    const auto sum = static_cast<float>(check::size * (check::size + 1) / 2);
    CHECK((out[0] == sum && out[kCount - 1] == sum), "%g", static_cast<double>(out[0]));
  }
  ~Model() {
    if (!ends) return;
    for (float* buffer : {in, out}) mprotect(buffer, kBytes, PROT_NONE);  // nobody else's, as freed memory may be
    MPI_Send(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    usleep(300'000);
    std::puts("rank 0 comes to its end");
    std::fflush(stdout);
  }
};
Model& model() {
  static Model one;
  return one;
}

void finish() {
  model().wait();
  MPI_Finalize();
  if (check::failures) _exit(1);
}
void complete() {
  MPI_Send(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
  finish();
}
void meet_and_complete() {
  MPI_Send(&token, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
  MPI_Recv(&token, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  finish();
}

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  check::begin();
  model();
  if (check::rank == 0) {
    if (what == "handler") std::atexit(complete);
    if (what == "needed") std::atexit(meet_and_complete);
    model().start();
    model().ends = what == "freed";
    std::exit(what == "freed" ? 7 : 0);
  }
  MPI_Recv(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  model().start();
  model().wait();
  if (what == "needed") MPI_Send(&token, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
  MPI_Finalize();
  return check::failures ? 1 : 0;
}
