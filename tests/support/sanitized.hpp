// Code built with a sanitizer runs 5 to 50 times slower: suites whose cases repeat one thing many times repeat it less
// often there.
#pragma once

namespace crimp::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitized = true;
#else
constexpr bool kThreadSanitized = false;
#endif

}  // namespace crimp::test
