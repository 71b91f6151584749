// What the chooser takes where the network's figures are given (CRIMP_FAULT=slow_link): plain MPI for small calls, for large ones an algorithm.
//   chooser ALGORITHM
// Without figures, through all trials and what follows them; what is taken depends on the machine:
//   chooser
#include "check.hpp"

int main(int argc, char** argv) {
  const unsigned kCalls = argc > 1 ? 3 : 40;
  check::begin();
  std::vector<int> everyone;
  for (int r = 0; r < check::size; ++r) everyone.push_back(r);
  for (unsigned call = 0; call < kCalls; ++call) {
    check::sum_floats(MPI_COMM_WORLD, everyone, 20, 2 * call, true);
    check::sum_floats(MPI_COMM_WORLD, everyone, 2000003, 2 * call + 1);
  }
  if (argc == 1) return check::finish();
  check::expected["calls"] = kCalls;
  check::expected["passed_through.slower"] = kCalls;
  check::expected["algorithms." + std::string(argv[1]) + ".calls"] = kCalls;
  return check::finish();
}
