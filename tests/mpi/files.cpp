// A program that leaves its working directory behind MPI_Init.
//   files        ends as it should
//   files bytes  likewise; a tensor's name is no UTF-8
//   files killed rank 0 is killed before MPI_Finalize
//   files quiet  says nothing on standard error
#include <unistd.h>

#include <csignal>

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
  std::vector<float> in(40000, 1.0f), out(in.size());
  for (int i = 0; allreduce && i < 3; ++i)
    CHECK(allreduce(in.data(), out.data(), in.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, tensors, 2) == MPI_SUCCESS);
  CHECK(out[0] == static_cast<float>(check::size) && out[39999] == out[0]);
  if (mode == "killed" && check::rank == 0) raise(SIGKILL);
  return check::finish();
}
