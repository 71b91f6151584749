// The control: two threads of a rank meet in a variable while sums are under way, and the sanitizer must say so.
#include <mpi.h>

#include <thread>

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  float in[4] = {1, 2, 3, 4}, out[4];
  MPI_Request request;
  MPI_Iallreduce(in, out, 4, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
  int shared = 0;
  std::thread other([&] { ++shared; });
  ++shared;
  other.join();
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Finalize();
}
