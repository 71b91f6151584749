// How much of a grid of cases a suite runs. With TEST_EFFORT=long in the environment (scripts/test.sh --long, ctest -C
// long -L long) it is all of it. Without, cases that differ in what hardly matters to one another take turns, so that
// every codec, algorithm and path is still reached; under sanitizers there are fewer turns.
#pragma once
#include <cstdlib>
#include <string_view>

#include "support/sanitized.hpp"

namespace crimp::test {

// The one that counts here: all of it, the usual run, the address sanitizer's, the thread sanitizer's.
template <class T>
T effort(T whole, T usual, T memory, T threads) {
  static const bool is_long = [] {
    const char* asked = std::getenv("TEST_EFFORT");
    return asked && std::string_view(asked) == "long";
  }();
  return is_long ? whole : kThreadSanitized ? threads : kSanitized ? memory : usual;
}

// Lets every k-th case run, the first one included. A k that has no divisor in common with the inner loops' lengths
// visits all their combinations in turn.
class Turns {
 public:
  Turns(int usual, int memory, int threads) : every_(effort(1, usual, memory, threads)) {}
  bool next() { return at_++ % every_ == 0; }
  int every() const { return every_; }

 private:
  int every_, at_ = 0;
};

}  // namespace crimp::test
