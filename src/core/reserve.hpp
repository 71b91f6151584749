// A little memory kept for when there is none. What a rank must be able to do in a call, because the others already
// count on it, it tries once more with this: plans, choices and lists are small beside the scratch and the residuals of
// a call, for want of which a rank says so in its headers.
//
// One for the process; thread-safe.
#pragma once
#include <cstddef>
#include <new>
#include <utility>

namespace crimp {

inline constexpr std::size_t kReserveBytes = std::size_t{1} << 20;  // never touched, so they are addresses only

// Where there is no reserve and there is memory for one: before a call.
void fill_reserve() noexcept;
// To the heap, where who asks next finds it. False: there is none.
bool give_reserve() noexcept;

// insist(work): work(), and where it lacks memory once more with the reserve. Work that throws std::bad_alloc has
// changed nothing that its repetition minds.
inline constexpr struct {
  template <class Work>
  auto operator()(Work&& work) const {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      if (!give_reserve()) throw;
    }
    return work();
  }
} insist;

}  // namespace crimp
