// What the chooser takes where the network's figures are given (CRIMP_FAULT=slow_link): plain MPI for a communicator's
// first calls and for small ones, for large ones an algorithm; on a duplicate at once, where nothing is measured again.
//   chooser ALGORITHM
// A duplicate for each call: so many of them pass that it is known to go on for long, then one measures for all, also
// for the same ranks in another order.
//   chooser loop
// Ten duplicates of two calls each, without figures: nothing is measured.
//   chooser brief
// Without figures, through all trials and what follows them; what is taken depends on the machine:
//   chooser
#include <algorithm>

#include "check.hpp"

int main(int argc, char** argv) {
  const unsigned kCalls = argc > 1 ? 3 : 40;
  check::begin();
  std::vector<int> everyone;
  for (int r = 0; r < check::size; ++r) everyone.push_back(r);
  const auto duplicate = [&](int count, unsigned salt, bool exactly) {
    MPI_Comm brief;
    MPI_Comm_dup(MPI_COMM_WORLD, &brief);
    check::sum_floats(brief, everyone, count, salt, exactly);
    MPI_Comm_free(&brief);
  };
  if (argc > 1 && std::string(argv[1]) == "loop") {
    constexpr int kEarlyOfGroup = 64, kMore = 36;
    for (unsigned i = 0; i < kEarlyOfGroup; ++i) duplicate(20000, i, true);
    for (unsigned i = 0; i < kMore; ++i) duplicate(250000, i, false);
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -check::rank, &reversed);
    std::reverse(everyone.begin(), everyone.end());
    for (unsigned i = 0; i < 5; ++i) check::sum_floats(reversed, everyone, 250000, i, false);
    MPI_Comm_free(&reversed);
    check::expected["calls"] = kMore + 5;
    check::expected["passed_through.early"] = kEarlyOfGroup;
    check::expected["networks_measured"] = 1;
    return check::finish();
  }
  if (argc > 1 && std::string(argv[1]) == "brief") {
    for (unsigned i = 0; i < 10; ++i) {
      MPI_Comm brief;
      MPI_Comm_dup(MPI_COMM_WORLD, &brief);
      for (const int count : {20000, 250000}) check::sum_floats(brief, everyone, count, i, true);
      MPI_Comm_free(&brief);
    }
    check::expected["calls"] = 0;
    check::expected["passed_through.early"] = 20;
    check::expected["networks_measured"] = 0;
    return check::finish();
  }
  for (unsigned call = 0; argc > 1 && call < 3; ++call) check::sum_floats(MPI_COMM_WORLD, everyone, 20000, call, true);
  for (unsigned call = 0; call < kCalls; ++call) {
    check::sum_floats(MPI_COMM_WORLD, everyone, 20, 2 * call, true);
    check::sum_floats(MPI_COMM_WORLD, everyone, 2000003, 2 * call + 1);
  }
  if (argc == 1) return check::finish();
  duplicate(2000003, 0, false);
  check::expected["calls"] = kCalls + 1;
  check::expected["passed_through.early"] = 3;
  check::expected["passed_through.slower"] = kCalls;
  check::expected["networks_measured"] = 1;
  check::expected["algorithms." + std::string(argv[1]) + ".calls"] = kCalls + 1;
  return check::finish();
}
