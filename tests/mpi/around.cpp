// What a program does around its sums, and threads and numbers of Crimp's must bear:
//   around leaves    its main thread ends by pthread_exit: the process ends when its threads have
//   around pages     it protects the pages of a buffer, and notes in a handler which of them a sum writes
//   around upward    rank 0 rounds upward when it begins: codecs have one parameter all the same
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cfenv>
#include <csignal>

#include "crimp/crimp.h"

#include "check.hpp"

using check::rank;

namespace {

constexpr int kCount = 1 << 18;
constexpr std::size_t kPage = 4096, kBytes = kCount * sizeof(float);
char* pages = nullptr;
std::atomic<long> written{0};

std::vector<float> noise(int call) {
  std::vector<float> x(kCount);
  for (int i = 0; i < kCount; ++i)
    x[static_cast<std::size_t>(i)] =
        static_cast<float>(
            (static_cast<unsigned>(i) * 2654435761u + static_cast<unsigned>(rank * 977 + call) * 40503u) >> 8 &
            0xffff) /
            65536.0f -
        0.50003f;
  return x;
}

void note_page(int, siginfo_t* where, void*) {
  char* const at = static_cast<char*>(where->si_addr);
  if (at < pages || at >= pages + kBytes) _exit(9);
  mprotect(pages + (at - pages) / static_cast<std::ptrdiff_t>(kPage) * static_cast<std::ptrdiff_t>(kPage), kPage,
           PROT_READ | PROT_WRITE);
  ++written;
}

}  // namespace

int main(int, char** argv) {
  const std::string mode = argv[1];
  const char* const number = std::getenv("OMPI_COMM_WORLD_RANK");
  if (mode == "upward" && number && std::atoi(number) == 0) std::fesetround(FE_UPWARD);
  check::begin(mode == "upward" ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE);
  if (mode == "upward")
    for (int call = 0; call < 4; ++call) {
      auto x = noise(call);
      const crimp_segment tensor[] = {{"w", kCount}};
      CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, tensor, 1) == MPI_SUCCESS);
      CHECK(check::identical(x.data(), kBytes, MPI_COMM_WORLD));
    }
  if (mode == "pages") {
    pages = static_cast<char*>(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    struct sigaction noting = {};
    noting.sa_sigaction = note_page;
    noting.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &noting, nullptr);
    for (int call = 0; call < 8; ++call) {
      const auto x = noise(call);
      mprotect(pages, kBytes, PROT_READ);
      written = 0;
      if (call % 2) {
        MPI_Request request;
        CHECK(MPI_Iallreduce(x.data(), pages, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
        CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
      } else {
        CHECK(MPI_Allreduce(x.data(), pages, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
      }
      CHECK(written == kBytes / kPage, "%ld of %ld pages", written.load(), static_cast<long>(kBytes / kPage));
    }
    std::signal(SIGSEGV, SIG_DFL);
  }
  if (mode == "leaves") {
    for (int call = 0; call < 6; ++call) {
      auto x = noise(call);
      CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    }
    if (rank == 1) sleep(1);  // so that the other one waits
    MPI_Barrier(MPI_COMM_WORLD);
    auto x = noise(6);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    MPI_Finalize();
    pthread_exit(nullptr);
  }
  return check::finish();
}
