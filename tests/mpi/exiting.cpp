// exit() with a sum under way that a thread carries (CRIMP_PROGRESS=thread), on rank 0, whose sum the others join only
// then.
//   exiting freed     a destructor takes its buffers away, lets rank 1 into the sum and takes its time
//   exiting polled    ... while another thread asks for a request of its own all the time
//   exiting handler   a handler of the program's completes it, and finalizes MPI
//   exiting needed    ... after it has met a rank that first completes it
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>

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
  int calls = 0;
  MPI_Request request = MPI_REQUEST_NULL;

  // As gradients have them: without structure, and others in each call.
  static float value(int rank, int call, int i) {
    const auto mixed = static_cast<unsigned>(i + 1) * 2654435761u + static_cast<unsigned>(7 * call + rank) * 40503u;
    return static_cast<float>((mixed >> 7) % 65536u) / 32768.0f - 1.0f;
  }
  void start() {
    ++calls;
    for (int i = 0; i < kCount; ++i) in[i] = value(check::rank, calls, i);
    CHECK(MPI_Iallreduce(in, out, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
  }
  void wait() {
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    for (const int i : {0, kCount - 1}) {
      float sum = 0;
      for (int r = 0; r < check::size; ++r) sum += value(r, calls, i);
      CHECK(std::abs(out[i] - sum) < 0.01f, "%g", static_cast<double>(out[i]));
    }
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

void poll() {
  int received = 0, flag = 0;
  MPI_Request request;
  MPI_Irecv(&received, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
  while (!flag) {
    MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
    usleep(100);
  }
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
  check::begin(what == "polled" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  const bool ends = what == "freed" || what == "polled";
  for (int call = 0; call < 4; ++call) {
    model().start();
    model().wait();
  }
  if (check::rank == 0) {
    if (what == "handler") std::atexit(complete);
    if (what == "needed") std::atexit(meet_and_complete);
    model().start();
    if (what == "polled") {
      std::thread(poll).detach();
      usleep(100'000);
    }
    model().ends = ends;
    std::exit(ends ? 7 : 0);
  }
  MPI_Recv(&token, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  model().start();
  model().wait();
  if (what == "needed") MPI_Send(&token, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
  MPI_Finalize();
  return check::failures ? 1 : 0;
}
