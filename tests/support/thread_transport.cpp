#include "support/thread_transport.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <thread>

namespace crimp::test {
namespace {

constexpr std::uint8_t kUntouched = 0x5a;

std::string list(const std::vector<std::uint64_t>& v) {
  std::string text = "[";
  for (const auto x : v) text += (text.size() > 1 ? ", " : "") + std::to_string(x);
  return text + "]";
}

void add(std::span<const std::uint8_t> from, std::uint8_t* to, std::size_t width) {
  unsigned carry = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (i % width == 0) carry = 0;
    carry += 0u + to[i] + from[i];
    to[i] = static_cast<std::uint8_t>(carry);
    carry >>= 8;
  }
}

std::span<const std::uint8_t> bytes_at(const void* p, std::uint64_t offset, std::uint64_t bytes) {
  return {static_cast<const std::uint8_t*>(p) + offset, bytes};
}

}  // namespace

class Board {
 public:
  Board(int ranks, const RunOptions& options)
      : ranks_(ranks), options_(options), ended_(static_cast<std::size_t>(ranks)),
        pending_(static_cast<std::size_t>(ranks)) {}
  int ranks() const { return ranks_; }
  const RunOptions& options() const { return options_; }

  // What a rank starts. `what` must be equal on all ranks. parts: what goes to each rank (one part: the same to all).
  struct Start {
    std::string what;
    std::vector<std::span<const std::uint8_t>> parts;
    std::uint8_t* all;
    std::vector<std::uint64_t> bytes, offsets;  // what comes from each rank, and where to
    std::size_t sum_width = 0;                  // not 0: the parts are added as integers of this size, to offset 0
  };

  Transport::Ticket start(ThreadTransport& t, Start s) {
    std::lock_guard lock(mutex_);
    const int index = t.next_++;
    const auto who = [&] {
      return "rank " + std::to_string(t.rank_) + ", exchange " + std::to_string(index) + ", " + s.what;
    };
    if (pending(t).size() == static_cast<std::size_t>(Transport::kMostUnderWay))
      misuse(who() + ": too many exchanges under way");
    for (const auto b : s.bytes)
      if (b % 64 != 0) misuse(who() + ": a size is not a multiple of 64");
    for (std::size_t r = 0; r < s.offsets.size() && !s.sum_width; ++r) {
      if (s.bytes[r] == 0) continue;
      if (s.offsets[r] % 64 != 0) misuse(who() + ": an offset is not a multiple of 64");
      for (std::size_t o = 0; o < s.offsets.size(); ++o)
        if (o != r && s.bytes[o] && s.offsets[r] < s.offsets[o] + s.bytes[o] &&
            s.offsets[o] < s.offsets[r] + s.bytes[r])
          misuse(who() + ": received parts overlap");
    }
    for (std::size_t r = 0; r < s.parts.size(); ++r) {
      if (s.parts[r].empty()) continue;
      if (s.parts[r].size() % 64 != 0) misuse(who() + ": a size is not a multiple of 64");
      t.messages_ += s.parts.size() == 1 ? ranks_ - 1 : r != static_cast<std::size_t>(t.rank_);
      for (std::size_t q = 0; q < s.bytes.size(); ++q)
        if (s.parts[r].data() < s.all + s.offsets[q] + s.bytes[q] &&
            s.all + s.offsets[q] < s.parts[r].data() + s.parts[r].size())
          misuse(who() + ": what is sent and what is received overlap");
    }
    auto [it, first] = exchanges_.try_emplace(index);
    Exchange& e = it->second;
    if (first) {
      e.what = s.what;
      e.first = t.rank_;
      e.parts.resize(static_cast<std::size_t>(ranks_));
      e.started_by.resize(static_cast<std::size_t>(ranks_));
    } else if (e.what != s.what) {
      misuse(who() + ": but rank " + std::to_string(e.first) + " started " + e.what);
    }
    const auto rank = static_cast<std::size_t>(t.rank_);
    for (const auto& part : s.parts) e.parts[rank].emplace_back(part.begin(), part.end());
    for (std::size_t r = 0; r < s.offsets.size(); ++r)
      if (s.bytes[r]) std::memset(s.all + s.offsets[r], kUntouched, s.bytes[r]);
    e.started_by[rank] = true;
    ++e.started;
    pending(t).emplace(index, std::move(s));
    change_.notify_all();
    return index;
  }

  // Returns the messages that have arrived.
  int wait(ThreadTransport& t, Transport::Ticket index) {
    std::unique_lock lock(mutex_);
    const std::string who = "rank " + std::to_string(t.rank_) + ", exchange " + std::to_string(index);
    const auto found = pending(t).find(index);
    if (found == pending(t).end()) misuse(who + ": waited for twice, or never started");
    Exchange& e = exchanges_.at(index);
    while (e.started < ranks_) {
      if (!failure_.empty()) throw OtherRankFailed(who + ": " + failure_);
      for (int r = 0; r < ranks_; ++r)
        if (ended_[static_cast<std::size_t>(r)] && !e.started_by[static_cast<std::size_t>(r)])
          misuse(who + " (" + e.what + "): rank " + std::to_string(r) + " has ended without starting it");
      change_.wait(lock);
    }
    const Start s = std::move(found->second);
    pending(t).erase(found);
    const auto& mine = e.parts[static_cast<std::size_t>(t.rank_)];
    for (std::size_t r = 0; r < mine.size(); ++r)
      if (!mine[r].empty() && std::memcmp(s.parts[r].data(), mine[r].data(), mine[r].size()) != 0)
        misuse(who + ": the send buffer was changed under way");
    for (std::size_t r = 0; r < e.parts.size(); ++r) {
      auto part = e.parts[r].size() == 1 ? e.parts[r][0] : e.parts[r][static_cast<std::size_t>(t.rank_)];
      if (part.size() != s.bytes[r])
        misuse(who + " (" + e.what + "): rank " + std::to_string(r) + " sends " + std::to_string(part.size()) +
               " bytes where " + std::to_string(s.bytes[r]) + " are received");
      std::uint8_t* to = s.all + s.offsets[r];
      if (!(s.sum_width && r) && std::any_of(to, to + part.size(), [](std::uint8_t b) { return b != kUntouched; }))
        misuse(who + ": the receive buffer was changed under way");
      if (options_.tamper) options_.tamper(t.rank_, index, static_cast<int>(r), part);
      if (s.sum_width && r) {
        add(part, to, s.sum_width);
      } else if (!part.empty()) {
        std::memcpy(to, part.data(), part.size());
      }
    }
    if (++e.delivered == ranks_) exchanges_.erase(index);
    return static_cast<int>(
        std::count_if(s.bytes.begin(), s.bytes.end(), [](std::uint64_t bytes) { return bytes != 0; }));
  }

  // Also where wait() would throw.
  bool done(ThreadTransport& t, Transport::Ticket index) {
    std::lock_guard lock(mutex_);
    if (!pending(t).contains(index))
      misuse("rank " + std::to_string(t.rank_) + ", exchange " + std::to_string(index) +
             ": asked for, but never started or ended");
    return exchanges_.at(index).started == ranks_ || !failure_.empty();
  }

  void end(ThreadTransport& t) {
    std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(t.rank_)] = true;
    change_.notify_all();
    if (!pending(t).empty())
      misuse("rank " + std::to_string(t.rank_) + " ended without waiting for exchange " +
             std::to_string(pending(t).begin()->first));
  }

  void fail(const std::string& why) {
    std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = why;
    change_.notify_all();
  }

 private:
  struct Exchange {
    std::string what;
    int first = 0, started = 0, delivered = 0;
    std::vector<bool> started_by;
    std::vector<std::vector<std::vector<std::uint8_t>>>
        parts;  // what each rank sent (to each rank), as it was when it started
  };
  std::map<Transport::Ticket, Start>& pending(const ThreadTransport& t) {
    return pending_[static_cast<std::size_t>(t.rank_)];
  }
  [[noreturn]] void misuse(const std::string& what) {
    if (failure_.empty()) failure_ = what;
    change_.notify_all();
    throw TransportMisuse(what);
  }

  int ranks_;
  const RunOptions& options_;
  std::mutex mutex_;
  std::condition_variable change_;
  std::map<int, Exchange> exchanges_;
  std::vector<bool> ended_;
  std::vector<std::map<Transport::Ticket, Start>> pending_;  // of each rank
  std::string failure_;
};

int ThreadTransport::size() const { return board_.ranks(); }

Transport::Ticket ThreadTransport::start_allgather(const void* mine, void* all, std::uint64_t bytes) {
  const auto n = static_cast<std::size_t>(size());
  std::vector<std::uint64_t> offsets(n);
  for (std::size_t r = 0; r < n; ++r) offsets[r] = r * bytes;
  return board_.start(*this, {"allgather" + list({bytes}),
                              {bytes_at(mine, 0, bytes)},
                              static_cast<std::uint8_t*>(all),
                              std::vector<std::uint64_t>(n, bytes),
                              offsets});
}

Transport::Ticket ThreadTransport::start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                                                    std::span<const std::uint64_t> offsets, void* all) {
  return board_.start(*this, {"allgatherv" + list({bytes.begin(), bytes.end()}),
                              {bytes_at(mine, 0, bytes[static_cast<std::size_t>(rank_)])},
                              static_cast<std::uint8_t*>(all),
                              {bytes.begin(), bytes.end()},
                              {offsets.begin(), offsets.end()}});
}

Transport::Ticket ThreadTransport::start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                                                   std::span<const std::uint64_t> send_offsets, void* all,
                                                   std::span<const std::uint64_t> bytes,
                                                   std::span<const std::uint64_t> offsets) {
  Board::Start s{
      "alltoallv", {}, static_cast<std::uint8_t*>(all), {bytes.begin(), bytes.end()}, {offsets.begin(), offsets.end()}};
  for (std::size_t r = 0; r < send_bytes.size(); ++r) s.parts.push_back(bytes_at(mine, send_offsets[r], send_bytes[r]));
  return board_.start(*this, std::move(s));
}

Transport::Ticket ThreadTransport::start_sum(const void* mine, void* sums, std::uint64_t bytes, Integer type) {
  const auto n = static_cast<std::size_t>(size());
  const std::size_t width = type == Integer::u8 ? 1 : 2;
  return board_.start(*this, {"sum of " + std::to_string(width) + " bytes" + list({bytes}),
                              {bytes_at(mine, 0, bytes)},
                              static_cast<std::uint8_t*>(sums),
                              std::vector<std::uint64_t>(n, bytes),
                              std::vector<std::uint64_t>(n),
                              width});
}

void ThreadTransport::wait(Ticket ticket) {
  if (waiting) waiting();
  const int messages = board_.wait(*this, ticket);
  if (board_.options().latency.count()) std::this_thread::sleep_for(messages * board_.options().latency);
}

bool ThreadTransport::done(Ticket ticket) { return board_.done(*this, ticket); }

void ThreadTransport::progress() noexcept {
  if (board_.options().progress_calls) ++*board_.options().progress_calls;
}

void run_ranks(int n, const std::function<void(ThreadTransport&)>& body, const RunOptions& options) {
  Board board(n, options);
  std::mutex mutex;
  std::exception_ptr first, let_go;
  const auto run = [&](int rank) {
    ThreadTransport transport(board, rank);
    const auto failed = [&](const std::string& why) {
      {
        std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      board.fail("rank " + std::to_string(rank) + " failed: " + why);
    };
    try {
      body(transport);
      board.end(transport);
    } catch (const OtherRankFailed&) {
      std::lock_guard lock(mutex);
      if (!let_go) let_go = std::current_exception();
    } catch (const std::exception& e) {
      failed(e.what());
    } catch (...) {
      failed("an exception that is no std::exception");
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < n; ++rank) threads.emplace_back(run, rank);
  for (auto& t : threads) t.join();
  if (first) std::rethrow_exception(first);
  if (let_go) std::rethrow_exception(let_go);
}

}  // namespace crimp::test
