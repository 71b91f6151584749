// Exchanges over MPI that are complete when they are started: enough to measure them (src/collective/measure.hpp).
#pragma once
#include <mpi.h>

#include <vector>

#include "collective/transport.hpp"
#include "core/error.hpp"

namespace crimp::tools {

class BlockingTransport final : public Transport {
 public:
  explicit BlockingTransport(MPI_Comm comm) : comm_(comm) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Ticket start_allgather(const void* mine, void* all, std::uint64_t bytes) override {
    return check(
        PMPI_Allgather(mine, static_cast<int>(bytes), MPI_BYTE, all, static_cast<int>(bytes), MPI_BYTE, comm_));
  }
  Ticket start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                          std::span<const std::uint64_t> offsets, void* all) override {
    const auto counts = whole(bytes), places = whole(offsets);
    return check(PMPI_Allgatherv(mine, counts[static_cast<std::size_t>(rank_)], MPI_BYTE, all, counts.data(),
                                 places.data(), MPI_BYTE, comm_));
  }
  Ticket start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                         std::span<const std::uint64_t> send_offsets, void* all, std::span<const std::uint64_t> bytes,
                         std::span<const std::uint64_t> offsets) override {
    const auto sent = whole(send_bytes), from = whole(send_offsets), got = whole(bytes), to = whole(offsets);
    return check(PMPI_Alltoallv(mine, sent.data(), from.data(), MPI_BYTE, all, got.data(), to.data(), MPI_BYTE, comm_));
  }
  Ticket start_sum(const void* mine, void* sums, std::uint64_t bytes, Integer type) override {
    const bool wide = type == Integer::u16;
    return check(PMPI_Allreduce(mine, sums, static_cast<int>(wide ? bytes / 2 : bytes),
                                wide ? MPI_UINT16_T : MPI_UINT8_T, MPI_SUM, comm_));
  }
  void wait(Ticket) override {}
  bool done(Ticket) override { return true; }
  void progress() noexcept override {}

 private:
  static std::vector<int> whole(std::span<const std::uint64_t> of) { return {of.begin(), of.end()}; }
  static Ticket check(int code) {
    if (code != MPI_SUCCESS) throw Error(ErrorCode::transport_failed, "MPI returned " + std::to_string(code));
    return 0;
  }
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
};

}  // namespace crimp::tools
