// The clock that times are taken by: it never goes back, and says nothing of other processes' (core/clock_line.hpp).
#pragma once
#include <chrono>

namespace crimp {

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace crimp
