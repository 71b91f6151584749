#include "core/stall.hpp"

#include <atomic>

namespace crimp {
namespace {

std::atomic<std::int64_t> patience_s{10};

}  // namespace

void set_stall(int seconds) { patience_s.store(seconds, std::memory_order_relaxed); }

bool StallWatch::due() noexcept {
  if (said_) return false;
  if (!began_) {
    began_ = true;
    begin_ = now_();
    return false;
  }
  std::int64_t patience = patience_s.load(std::memory_order_relaxed);
  if (patience == 0 || now_() - begin_ < std::chrono::seconds(patience)) return false;
  said_ = true;
  return patience_s.compare_exchange_strong(patience, 2 * patience, std::memory_order_relaxed);  // of several threads one says it
}

void StallWatch::say(int rank, int size, const std::string& what) const {
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now_() - begin_).count();
  log(LogLevel::warn, "rank " + std::to_string(rank) + " of " + std::to_string(size) + " has waited " + std::to_string(waited) + " s " + what);
}

}  // namespace crimp
