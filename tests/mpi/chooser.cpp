// What the chooser takes where the network's figures are given (CRIMP_FAULT=slow_link): plain MPI for small calls, for large ones an algorithm.
//   chooser ALGORITHM
#include "check.hpp"

int main(int, char** argv) {
  constexpr int kCalls = 3;
  check::begin();
  std::vector<int> everyone;
  for (int r = 0; r < check::size; ++r) everyone.push_back(r);
  for (unsigned call = 0; call < kCalls; ++call) {
    check::sum_floats(MPI_COMM_WORLD, everyone, 20, 2 * call, true);
    check::sum_floats(MPI_COMM_WORLD, everyone, 2000003, 2 * call + 1);
  }
  check::expected["calls"] = kCalls;
  check::expected["passed_through.slower"] = kCalls;
  check::expected["algorithms." + std::string(argv[1]) + ".calls"] = kCalls;
  return check::finish();
}
