#include "support/thread_transport.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

namespace crimp::test {
namespace {

constexpr std::size_t kMostUnderWay = 4;  // as the transport over MPI
constexpr std::uint8_t kUntouched = 0x5a;

std::string list(const std::vector<std::uint64_t>& v) {
  std::string text = "[";
  for (const auto x : v) text += (text.size() > 1 ? ", " : "") + std::to_string(x);
  return text + "]";
}

}  // namespace

class Board {
 public:
  Board(int ranks, const RunOptions& options) : ranks_(ranks), options_(options), ended_(static_cast<std::size_t>(ranks)) {}
  int ranks() const { return ranks_; }
  const RunOptions& options() const { return options_; }

  Transport::Ticket start(ThreadTransport& t, const char* kind, const void* mine, const std::vector<std::uint64_t>& bytes,
                          const std::vector<std::uint64_t>& offsets, void* all) {
    std::lock_guard lock(mutex_);
    const int index = t.next_++;
    const std::string here = std::string(kind) + list(bytes);
    const auto who = [&] { return "rank " + std::to_string(t.rank_) + ", exchange " + std::to_string(index) + ", " + here; };
    if (t.pending_.size() == kMostUnderWay) misuse(who() + ": too many exchanges under way");
    for (const auto b : bytes)
      if (b % 64 != 0) misuse(who() + ": a size is not a multiple of 64");
    for (std::size_t r = 0; r < offsets.size(); ++r) {
      if (offsets[r] % 64 != 0) misuse(who() + ": an offset is not a multiple of 64");
      for (std::size_t o = 0; o < r; ++o)
        if (offsets[r] < offsets[o] + bytes[o] && offsets[o] < offsets[r] + bytes[r]) misuse(who() + ": received parts overlap");
    }
    auto [it, first] = exchanges_.try_emplace(index);
    Exchange& e = it->second;
    if (first) {
      e.what = here;
      e.first = t.rank_;
      e.parts.resize(static_cast<std::size_t>(ranks_));
      e.started_by.resize(static_cast<std::size_t>(ranks_));
    } else if (e.what != here) {
      misuse(who() + ": but rank " + std::to_string(e.first) + " started " + e.what);
    }
    const auto rank = static_cast<std::size_t>(t.rank_);
    const auto* from = static_cast<const std::uint8_t*>(mine);
    e.parts[rank].assign(from, from + bytes[rank]);
    for (std::size_t r = 0; r < offsets.size(); ++r)
      if (bytes[r]) std::memset(static_cast<std::uint8_t*>(all) + offsets[r], kUntouched, bytes[r]);
    t.pending_[index] = {mine, static_cast<std::uint8_t*>(all), offsets};
    e.started_by[rank] = true;
    ++e.started;
    change_.notify_all();
    return index;
  }

  void wait(ThreadTransport& t, Transport::Ticket index) {
    std::unique_lock lock(mutex_);
    const std::string who = "rank " + std::to_string(t.rank_) + ", exchange " + std::to_string(index);
    const auto found = t.pending_.find(index);
    if (found == t.pending_.end()) misuse(who + ": waited for twice, or never started");
    Exchange& e = exchanges_.at(index);
    while (e.started < ranks_) {
      if (!failure_.empty()) throw OtherRankFailed(who + ": " + failure_);
      for (int r = 0; r < ranks_; ++r)
        if (ended_[static_cast<std::size_t>(r)] && !e.started_by[static_cast<std::size_t>(r)])
          misuse(who + " (" + e.what + "): rank " + std::to_string(r) + " has ended without starting it");
      change_.wait(lock);
    }
    const auto p = found->second;
    t.pending_.erase(found);
    const auto& mine = e.parts[static_cast<std::size_t>(t.rank_)];
    if (!mine.empty() && std::memcmp(p.mine, mine.data(), mine.size()) != 0) misuse(who + ": the send buffer was changed under way");
    for (std::size_t r = 0; r < e.parts.size(); ++r) {
      std::uint8_t* to = p.all + p.offsets[r];
      auto part = e.parts[r];
      if (std::any_of(to, to + part.size(), [](std::uint8_t b) { return b != kUntouched; }))
        misuse(who + ": the receive buffer was changed under way");
      if (options_.tamper) options_.tamper(t.rank_, index, static_cast<int>(r), part);
      if (!part.empty()) std::memcpy(to, part.data(), part.size());
    }
    if (++e.delivered == ranks_) exchanges_.erase(index);
  }

  void end(ThreadTransport& t) {
    std::lock_guard lock(mutex_);
    ended_[static_cast<std::size_t>(t.rank_)] = true;
    change_.notify_all();
    if (!t.pending_.empty())
      misuse("rank " + std::to_string(t.rank_) + " ended without waiting for exchange " + std::to_string(t.pending_.begin()->first));
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
    std::vector<std::vector<std::uint8_t>> parts;  // what each rank sent, as it was when it started
  };
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
  std::string failure_;
};

int ThreadTransport::size() const { return board_.ranks(); }

Transport::Ticket ThreadTransport::start_allgather(const void* mine, void* all, std::uint64_t bytes) {
  const auto n = static_cast<std::size_t>(size());
  std::vector<std::uint64_t> offsets(n);
  for (std::size_t r = 0; r < n; ++r) offsets[r] = r * bytes;
  return board_.start(*this, "allgather", mine, std::vector<std::uint64_t>(n, bytes), offsets, all);
}

Transport::Ticket ThreadTransport::start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                                                    std::span<const std::uint64_t> offsets, void* all) {
  return board_.start(*this, "allgatherv", mine, {bytes.begin(), bytes.end()}, {offsets.begin(), offsets.end()}, all);
}

void ThreadTransport::wait(Ticket ticket) { board_.wait(*this, ticket); }

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
