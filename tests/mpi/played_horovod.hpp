// Horovod, played: its operation, by which Crimp recognises it, and the coordinator's messages with a cache of no
// capacity (HOROVOD_CACHE_CAPACITY=0). answered.c, preloaded, has the operation's function.
#pragma once
#include <dlfcn.h>

#include "check.hpp"
#include "support/horovod_simulator.hpp"

namespace check {

class PlayedHorovod {
 public:
  PlayedHorovod() {
    MPI_Op_create(reinterpret_cast<MPI_User_function*>(
                      dlsym(RTLD_DEFAULT, "_ZN7horovod6common11float16_maxEPvS1_PiPP15ompi_datatype_t")),
                  1, &max_);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  }
  ~PlayedHorovod() {
    MPI_Comm_free(&comm);
    MPI_Op_free(&max_);
  }
  PlayedHorovod(const PlayedHorovod&) = delete;
  PlayedHorovod& operator=(const PlayedHorovod&) = delete;

  // What the coordinator has all ranks sum next, names and elements.
  void announce(const std::vector<std::pair<std::string, std::int64_t>>& tensors) const {
    auto list = crimp::test::response_list(tensors);
    int length = static_cast<int>(list.size());
    const std::vector<int> none(static_cast<std::size_t>(size));
    MPI_Gatherv(nullptr, 0, MPI_BYTE, nullptr, none.data(), none.data(), MPI_BYTE, 0, comm);
    MPI_Bcast(&length, 1, MPI_INT, 0, comm);
    MPI_Bcast(list.data(), length, MPI_BYTE, 0, comm);
  }

  MPI_Comm comm = MPI_COMM_NULL;

 private:
  MPI_Op max_ = MPI_OP_NULL;
};

}  // namespace check
