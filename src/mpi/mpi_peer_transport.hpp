// Transport by messages between a few ranks of a communicator, which the others take no part in.
#pragma once
#include <mpi.h>

#include <string>
#include <vector>

#include "collective/transport.hpp"

namespace crimp {

class PeerTransport final : public Transport {
 public:
  // peers: their ranks in `comm`, in the order of the transport's; this one's is peers[rank]. No other messages between
  // them have this tag. `comm` returns errors. waits: what a rank waits for in wait(), as StallWatch::look()
  // (core/stall.hpp); outlives this.
  PeerTransport(MPI_Comm comm, std::vector<int> peers, int rank, int tag, const char* waits)
      : comm_(comm), peers_(std::move(peers)), rank_(rank), tag_(tag), waits_(waits) {}
  ~PeerTransport() override;
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(peers_.size()); }
  std::string among() const override { return "of the nodes' leaders, "; }
  Ticket start_allgather(const void* mine, void* all, std::uint64_t bytes) override;
  Ticket start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                          std::span<const std::uint64_t> offsets, void* all) override;
  Ticket start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                         std::span<const std::uint64_t> send_offsets, void* all, std::span<const std::uint64_t> bytes,
                         std::span<const std::uint64_t> offsets) override;
  // Not here: what MPI would add, owners of shards add as well (Algorithm::homomorphic). AlgorithmEntry::mpi_adds keeps
  // it away.
  Ticket start_sum(const void* mine, void* sums, std::uint64_t bytes, Integer type) override;
  void wait(Ticket) override;
  bool done(Ticket) override;
  void progress() noexcept override;

 private:
  void move_on();
  struct Exchange {
    bool under_way = false;
    int failed = MPI_SUCCESS;
    std::vector<MPI_Request> requests;
  };
  struct Part {
    const void* send;
    std::uint64_t send_bytes;
    void* receive;
    std::uint64_t bytes;
  };
  template <class PartOf>
  Ticket start(PartOf part_of);
  MPI_Comm comm_;
  std::vector<int> peers_;
  int rank_, tag_;
  const char* waits_;
  Exchange exchanges_[kMostUnderWay];
};

}  // namespace crimp
