// Sums a vector by oneCCL, whose transport is the MPI library that CCL_MPI_LIBRARY_PATH names.
#include <mpi.h>

#include <cmath>
#include <oneapi/ccl.hpp>
#include <vector>

int main() {
  int rank, size;
  MPI_Init(nullptr, nullptr);
  ccl::init();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  ccl::shared_ptr_class<ccl::kvs> store;
  ccl::kvs::address_type address;
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) store = ccl::create_kvs(address);
  bool good = true;
  {
    auto comm = ccl::create_communicator(size, rank, store);
    std::vector<float> in(100000, static_cast<float>(rank + 1) / 3), sum(in.size());
    ccl::allreduce(in.data(), sum.data(), in.size(), ccl::reduction::sum, comm).wait();
    for (const float s : sum) good = good && std::fabs(s - static_cast<float>(size * (size + 1)) / 6) < 1e-2f;
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
