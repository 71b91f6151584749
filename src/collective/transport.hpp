// What moves bytes between ranks: messages of MPI's (src/mpi/mpi_transport.hpp; of a node's leaders
// mpi_peer_transport.hpp; the one exchange of a sum that does not block one_exchange.hpp), in tests ranks that are
// threads (tests/support/).
//
// Every rank starts the same exchanges in the same order; that order is a pure function of values equal on all ranks.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace crimp {

enum class Integer : std::uint8_t { u8, u16 };

class Transport {
 public:
  // An exchange under way; wait() ends it. Buffers stay untouched by the caller until then.
  using Ticket = int;
  static constexpr int kMostUnderWay = 8;  // exchanges at once

  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Begins a sentence that names some of its ranks where they are not the communicator's.
  virtual std::string among() const { return {}; }
  // Every rank sends `bytes`; all[r * bytes] receives rank r's. `bytes` is a multiple of kPayloadAlign, equal on all
  // ranks.
  virtual Ticket start_allgather(const void* mine, void* all, std::uint64_t bytes) = 0;
  // Rank r sends bytes[r], received at all + offsets[r]. All are multiples of kPayloadAlign and equal on all ranks.
  virtual Ticket start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                                  std::span<const std::uint64_t> offsets, void* all) = 0;
  // Sends rank r send_bytes[r] from mine + send_offsets[r]; receives bytes[r] from rank r at all + offsets[r]. All are
  // multiples of kPayloadAlign; what one rank sends another is what that one receives from it (their headers told).
  virtual Ticket start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                                 std::span<const std::uint64_t> send_offsets, void* all,
                                 std::span<const std::uint64_t> bytes, std::span<const std::uint64_t> offsets) = 0;
  // sums[i] = the ranks' mine[i] added modulo 2^8 or 2^16, hence in any order. `bytes` is a multiple of kPayloadAlign,
  // equal on all ranks.
  virtual Ticket start_sum(const void* mine, void* sums, std::uint64_t bytes, Integer type) = 0;
  // Returns when the exchange is complete here. Throws Error{transport_failed}.
  virtual void wait(Ticket) = 0;
  // Whether wait() would return at once. Never blocks. Throws Error{transport_failed}.
  virtual bool done(Ticket) = 0;
  // Lets exchanges under way move on; never blocks, never throws.
  virtual void progress() noexcept = 0;
};

}  // namespace crimp
