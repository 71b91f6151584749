// A Transport with ranks as threads, and strict: what MPI would forgive or leave undefined fails here with a text.
//
// Starting never blocks; wait() returns when every rank has started that exchange. Checked: all ranks start the same
// kinds and sizes in the same order (alltoallv: what one sends is what the other expects); at most kMostUnderWay at
// once; sizes and offsets are multiples of 64; received parts overlap neither one another nor what is sent; send and
// receive buffers are left alone until wait(); every exchange is waited for, and no rank ends before the others'
// exchanges.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "collective/transport.hpp"

namespace crimp::test {

// What the transport found wrong, or why a rank was let go while it waited.
struct TransportMisuse : std::logic_error {
  using std::logic_error::logic_error;
};
struct OtherRankFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Board;

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(Board& board, int rank) : board_(board), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override;
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
  int exchanges() const { return next_; }     // started by this rank
  int messages() const { return messages_; }  // that this rank has sent, each to one other
  std::function<void()> waiting;              // called ahead of every wait, where there is one

 private:
  friend class Board;
  Board& board_;
  int rank_, next_ = 0, messages_ = 0;
};

struct RunOptions {
  // Called on the receiver's thread with what rank `from` sent, before it is delivered. May change the bytes; not
  // thread-safe by itself.
  std::function<void(int receiver, int exchange, int from, std::span<std::uint8_t>)> tamper;
  std::atomic<int>* progress_calls = nullptr;
  // So long a rank waits for every message that it receives, one after another.
  std::chrono::microseconds latency{0};
};

// Runs body(transport) on n threads, one per rank. Rethrows the first exception after all have ended; the others are
// let go.
void run_ranks(int n, const std::function<void(ThreadTransport&)>& body, const RunOptions& = {});

}  // namespace crimp::test
