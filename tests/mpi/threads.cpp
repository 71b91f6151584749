// MPI_THREAD_MULTIPLE: a thread per communicator, all reducing at once, in an order that differs from rank to rank.
// Crimp makes a communicator's state at its first call, so that first calls must not wait for one another across
// communicators.
#include <chrono>
#include <thread>

#include "check.hpp"

using check::rank, check::size;

namespace {

constexpr int kThreads = 4, kCalls = 12, kCount = 20000;

void nap(std::uint64_t microseconds) { std::this_thread::sleep_for(std::chrono::microseconds(microseconds)); }

}  // namespace

int main() {
  check::begin(MPI_THREAD_MULTIPLE);
  std::vector<int> everyone(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) everyone[static_cast<std::size_t>(r)] = r;
  MPI_Comm comms[kThreads + 2];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);

  // Staggered first calls: on rank 0 the first communicator is entered only when the second one is through, elsewhere
  // at once.
  std::atomic<bool> second_done{false};
  std::thread first([&] {
    while (rank == 0 && !second_done) nap(100);
    check::sum_floats(comms[kThreads], everyone, kCount, 1);
  });
  std::thread second([&] {
    if (rank != 0) nap(3000);
    check::sum_floats(comms[kThreads + 1], everyone, kCount, 2);
    second_done = true;
  });
  first.join();
  second.join();

  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < kCalls; ++i) {
        nap(check::random_bits(t * 100 + i, static_cast<unsigned>(rank)) % 2000);
        check::sum_floats(comms[t], everyone, i % 3 == 2 ? 100 : kCount + static_cast<int>(41000 * (i % 2)), i,
                          i % 3 == 2);
      }
    });
  for (auto& t : threads) t.join();

  // Freed by threads at once as well.
  threads.clear();
  for (unsigned t = 0; t < kThreads; ++t) threads.emplace_back([&, t] { MPI_Comm_free(&comms[t]); });
  for (auto& t : threads) t.join();
  check::expected["calls"] = size > 1 ? 2 + kThreads * kCalls * 2 / 3 : 0;
  check::expected["passed_through.small"] = kThreads * kCalls / 3;
  return check::finish();
}
