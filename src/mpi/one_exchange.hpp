// The one exchange of a sum that does not block.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <span>
#include <vector>

#include "collective/transport.hpp"

namespace crimp {

// The caller completes its request, so that here nothing waits. Anything but one allgather of equal payloads or one
// alltoall throws Error{transport_failed}. Buffers are the caller's, until the request is complete or freed.
class OneExchange final : public Transport {
 public:
  OneExchange(MPI_Comm comm, int rank, int size) : comm_(comm), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Ticket start_allgather(const void* mine, void* all, std::uint64_t bytes) override;
  Ticket start_allgatherv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>, void*) override;
  Ticket start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                         std::span<const std::uint64_t> send_offsets, void* all, std::span<const std::uint64_t> bytes,
                         std::span<const std::uint64_t> offsets) override;
  Ticket start_sum(const void*, void*, std::uint64_t, Integer) override;
  void wait(Ticket) override {}
  bool done(Ticket) override { return true; }
  void progress() noexcept override {}

  // A persistent allgather, which the caller starts. False: this MPI has none.
  bool init(const void* mine, void* all, std::uint64_t bytes);
  MPI_Request request() const { return request_; }

 private:
  MPI_Comm comm_;
  int rank_, size_;
  bool persistent_ = false;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::vector<int> send_counts_, send_places_, counts_, places_;  // MPI's until the request is freed
};

}  // namespace crimp
