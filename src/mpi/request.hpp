// One MPI_Allreduce, or a sum of which ranks receive shares, as a Session gets it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "collective/shares.hpp"
#include "core/types.hpp"
#include "schedule/layout.hpp"

namespace crimp {

class Session;

// How many communicators were counted before one.
struct CommunicatorNumbers {
  std::uint64_t of_ranks;                 // of the same ranks
  std::optional<std::uint64_t> of_world;  // of all ranks; none: it has not all of them
};

struct AllreduceRequest {
  const void* send;  // equal to `receive` for MPI_IN_PLACE
  void* receive;     // own() of the sums; null where that is none
  std::uint64_t count;
  Dtype dtype;
  std::shared_ptr<const Layout> layout = nullptr;  // tiling the buffer; null: the call sequence decides
  // Sums a buffer of the call's type exactly, in place, through MPI: for tensors that a rule excludes. Returns an MPI
  // code.
  std::function<int(void* buffer, std::uint64_t count)> sum_exactly = {};
  std::function<int()> sum_by_mpi = {};  // the call as it was made, through MPI; returns an MPI code
  // Where the call is left to MPI: set to a session that is to be told of its end (Session::left_ended()).
  Session** left = nullptr;
  bool synchronize_all = false;                    // whatever runs on the device may still write the values
  std::shared_ptr<const Shares> shares = nullptr;  // null: every rank receives all sums
  int rank = 0;                                    // this one, where there are shares
  // The communicator's, counted where the program made its first call; null: that is here and now.
  const CommunicatorNumbers* numbers = nullptr;
  bool blocks = true;  // the program's call does, of which CRIMP_PROGRESS=thread makes one that does here

  Collective collective() const { return shares ? shares->collective : Collective::allreduce; }
  Shares::Run own() const { return shares ? shares->of(rank) : Shares::Run{0, count}; }
};

}  // namespace crimp
