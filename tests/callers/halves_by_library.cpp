// halves_by_library LIBRARY known|unknown: the operations of halves_library.c on two-byte types. From a library that
// Crimp knows what adds float16 or bfloat16 is compressed, and what only resembles it is not; from another library
// nothing is tried.
#include <dlfcn.h>
#include <mpi.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

int main(int, char** argv) {
  const bool known = argv[2] == std::string("known");
  int rank, size;
  bool good = true;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  auto** const operations = static_cast<MPI_User_function**>(dlsym(library, "operations"));
  auto* const seen = static_cast<int*>(dlsym(library, "elements_seen"));
  // 1.5 in both formats, and what two of them make.
  constexpr std::uint16_t kOne[] = {0x3e00, 0x3fc0, 0x3fc0, 0x3e00}, kTwo[] = {0x4200, 0x4040, 0x4040, 0x3e00};
  for (const MPI_Datatype base : {MPI_BYTE, MPI_UINT8_T})
    for (int i = 0; i < 4; ++i) {
      MPI_Datatype type;
      MPI_Op op;
      MPI_Type_contiguous(2, base, &type);
      MPI_Type_commit(&type);
      MPI_Op_create(operations[i], 1, &op);
      std::vector<std::uint16_t> in(20000, kOne[i]), sum(in.size());
      MPI_Allreduce(in.data(), sum.data(), 20000, type, op, MPI_COMM_WORLD);
      for (const auto s : sum) good = good && s == (size == 1 ? kOne[i] : kTwo[i]);
      MPI_Op_free(&op);
      MPI_Type_free(&type);
    }
  int tried = 0;
  for (int n = 0; n < 100; ++n) tried += seen[n];
  // add_f16 is tried once, the others twice (as float16, as bfloat16), for each of the two types.
  good = good && tried == (known ? 2 * (1 + 2 + 2 + 2) : 0);
  if (known) std::printf("expect %d calls=4 passed_through.type=4\n", rank);
  else std::printf("expect %d calls=0 passed_through.operation=8\n", rank);
  if (!good) std::fprintf(stderr, "rank %d: a sum is wrong, or %d trials\n", rank, tried);
  std::fflush(stdout);
  MPI_Finalize();
  return good ? 0 : 1;
}
