// A program that leaves its working directory behind MPI_Init.
//   files        ends as it should
//   files bytes  likewise; a tensor's name is no UTF-8
//   files killed waits before MPI_Finalize for being killed; rank 0 says who it is once a sum has been rounded as
//   CRIMP_CODEC=fp16 does files quiet  says nothing on standard error
#include <unistd.h>

#include "check.hpp"
#include "crimp/crimp.h"

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  check::begin();
  CHECK(chdir("/") == 0);
  if (check::rank == 0 && mode != "quiet") std::fputs("the program begins\n", stderr);
  const auto allreduce = reinterpret_cast<decltype(&crimp_allreduce)>(dlsym(RTLD_DEFAULT, "crimp_allreduce"));
  CHECK(allreduce);
  const crimp_segment tensors[] = {{mode == "bytes" ? "caf\xe9.bias" : "cafe.bias", 20000}, {"weight", 20000}};
  std::vector<float> in(40000, mode == "killed" ? 1.0f + 0x1p-12f : 1.0f), out(in.size());  // both are 1 in float16
  for (int i = 0; allreduce && i < 3; ++i)
    CHECK(allreduce(in.data(), out.data(), in.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, tensors, 2) == MPI_SUCCESS);
  CHECK(out[0] == static_cast<float>(check::size) * in[0] &&
        out[39999] == static_cast<float>(check::size));  // a bias is summed exactly
  if (mode == "killed") {
    if (check::rank == 0 && check::failures == 0)
      std::fprintf(stderr, "compressed by process %ld\n", static_cast<long>(getpid()));
    sleep(30);
  }
  return check::finish();
}
