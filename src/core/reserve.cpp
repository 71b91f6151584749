#include "core/reserve.hpp"

#include <atomic>

namespace crimp {
namespace {

std::atomic<std::byte*> reserve{nullptr};

}  // namespace

void fill_reserve() noexcept {
  if (reserve.load(std::memory_order_relaxed)) return;
  auto* made = static_cast<std::byte*>(::operator new(kReserveBytes, std::nothrow));
  ::operator delete(reserve.exchange(made));
}

bool give_reserve() noexcept {
  std::byte* const had = reserve.exchange(nullptr);
  ::operator delete(had);
  return had != nullptr;
}

}  // namespace crimp
