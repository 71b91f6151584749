// Transport over the caller's own communicator, by PMPI_* only; see collective/transport.hpp.
#pragma once
#include <mpi.h>

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "collective/transport.hpp"

namespace crimp {

class MpiTransport final : public Transport {
 public:
  MpiTransport(MPI_Comm comm, int rank, int size) : comm_(comm), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Ticket start_allgather(const void* mine, void* all, std::uint64_t bytes) override;
  Ticket start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                          std::span<const std::uint64_t> offsets, void* all) override;
  Ticket start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                         std::span<const std::uint64_t> send_offsets, void* all, std::span<const std::uint64_t> bytes,
                         std::span<const std::uint64_t> offsets) override;
  Ticket start_sum(const void* mine, void* sums, std::uint64_t bytes, Integer type) override;
  void wait(Ticket) override;
  bool done(Ticket) override;
  void progress() noexcept override;

  // Begins a call: `where` is what this rank says that waits too long in it ("in its compressed call 3 ..."), `absent`
  // why others may not be in the same call. Asked for then only, until the next call; may be empty.
  void begin_call(std::function<std::string()> where, std::function<std::string()> absent);

 private:
  struct Exchange {
    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<int> counts, places, send_counts, send_places;  // must outlive the request
    bool of_some = false;                                       // an alltoall in which some send this rank nothing
  };
  Ticket free_exchange();
  std::string waiting(const Exchange&) const;
  std::function<std::string()> where_, absent_;
  int exchanged_ =
      0;  // exchanges of this call that are complete, from the first one on that had something of every rank
  MPI_Comm comm_;
  int rank_, size_;
  Exchange exchanges_[kMostUnderWay];
  std::exception_ptr thrown_;  // in progress()
};

}  // namespace crimp
