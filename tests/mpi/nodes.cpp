// Communicators that have nodes (CRIMP_ALGORITHM=hierarchical, CRIMP_NODE_SIZE=2): freeing them is local, leaves
// nothing, and waits for nobody.
//   nodes orders | some | threads | loop | progress | large | without | late
// `without`: nodes cannot be had, and other algorithms run. `late`: one node, whose ranks add in its memory. `kept`: a
// control that leaves a window to MPI_Finalize.
#include <chrono>
#include <fstream>
#include <thread>

#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr int kCount = 150001;  // more than one block of node memory

std::vector<int> everyone() {
  std::vector<int> all;
  for (int r = 0; r < size; ++r) all.push_back(r);
  return all;
}

MPI_Comm used(unsigned salt, int count = kCount) {
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  check::sum_floats(comm, everyone(), count, salt);
  ++expected["calls"];
  return comm;
}

// Memory of nodes in this process.
int mapped() {
  std::ifstream maps("/proc/self/maps");
  int n = 0;
  for (std::string line; std::getline(maps, line);) n += line.find("memfd:crimp") != line.npos;
  return n;
}

void nap(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Each rank begins with another one, and waits for nobody in between.
void orders() {
  MPI_Comm comms[4];
  for (unsigned i = 0; i < 4; ++i) comms[i] = used(i);
  CHECK(mapped() == 4, "%d", mapped());
  for (int i = 0; i < 4; ++i) MPI_Comm_free(&comms[(rank + i) % 4]);
  CHECK(mapped() == 0, "%d", mapped());
}

// On rank 0 only; elsewhere they stay until MPI_Finalize, which must come to its end.
void some() {
  MPI_Comm comms[2] = {used(0), used(1)};
  if (rank == 0)
    for (auto& comm : comms) MPI_Comm_free(&comm);
  check::sum_floats(MPI_COMM_WORLD, everyone(), kCount, 2);
  ++expected["calls"];
}

// Two threads free a communicator each; which one comes first differs from rank to rank.
void threads() {
  for (int round = 0; round < 5; ++round) {
    MPI_Comm comms[2] = {used(0), used(1)};
    std::vector<std::thread> both;
    for (int t = 0; t < 2; ++t)
      both.emplace_back([&, t] {
        if (t == rank % 2) nap(20);
        MPI_Comm_free(&comms[t]);
      });
    for (auto& t : both) t.join();
  }
  // First calls in another order on each rank: threads on communicators of their own.
  MPI_Comm comms[2];
  for (auto& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::vector<std::thread> both;
  for (int t = 0; t < 2; ++t)
    both.emplace_back([&, t] {
      if (t == rank % 2) nap(20);
      for (unsigned i = 0; i < 5; ++i) check::sum_floats(comms[t], everyone(), kCount, i);
      MPI_Comm_free(&comms[t]);
    });
  for (auto& t : both) t.join();
  expected["calls"] += 10;
}

// Duplicated, used and freed again and again: nothing grows.
void loop() {
  for (unsigned i = 0; i < 30; ++i) {
    MPI_Comm comm = used(i);
    CHECK(mapped() == 1, "%d", mapped());
    MPI_Comm_free(&comm);
  }
  CHECK(mapped() == 0, "%d", mapped());
}

// A rank that waits for its node still answers: its message is too long to be sent without the receiver, who comes to
// the call behind it.
void progress() {
  std::vector<float> data(1 << 21, 1.0f);
  MPI_Request request = MPI_REQUEST_NULL;
  if (rank == 1) MPI_Isend(data.data(), 1 << 21, MPI_FLOAT, size - 1, 3, MPI_COMM_WORLD, &request);
  if (rank == size - 1) {
    nap(50);
    MPI_Recv(data.data(), 1 << 21, MPI_FLOAT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  }
  check::sum_floats(MPI_COMM_WORLD, everyone(), kCount, 0);
  ++expected["calls"];
  MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// A rank comes late to each call: none of its node, however far from it, sees what it left there in the call before.
void late() {
  for (int call = 0; call < 2 * size; ++call) {
    if (rank == call % size) nap(50);
    check::sum_floats(MPI_COMM_WORLD, everyone(), 20000, static_cast<unsigned>(call));
    ++expected["calls"];
  }
}

}  // namespace

int main(int, char** argv) {
  const std::string what = argv[1];
  check::begin(what == "threads" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  if (what == "orders") orders();
  if (what == "some") some();
  if (what == "threads") threads();
  if (what == "loop") loop();
  if (what == "progress") progress();
  if (what == "late") late();
  MPI_Win window;
  if (what == "kept") used(0), MPI_Win_create(nullptr, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  if (what == "large") used(0, 6000003);  // 24 MB a rank
  if (what == "without")
    for (unsigned i = 0; i < 3; ++i) {
      MPI_Comm comm = used(i);
      CHECK(mapped() == 0, "%d", mapped());
      MPI_Comm_free(&comm);
    }
  const char* const by = what == "without" ? "allgather" : what == "late" ? "node_sum" : "hierarchical";
  expected[std::string("algorithms.") + by + ".calls"] = expected["calls"];
  return check::finish();
}
