// Communicators: sub-, duplicated, Cartesian, inter-; freed in mid-run and never freed; other traffic under way;
// MPI_Pcontrol; attributes whose callbacks run in MPI_Comm_free and in MPI_Finalize. Expects CRIMP_CODEC to name a
// codec.
#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr int kCount = 20000;

std::vector<int> members(MPI_Comm comm) {
  int n = 0;
  MPI_Comm_size(comm, &n);
  std::vector<int> ranks(static_cast<std::size_t>(n));
  MPI_Allgather(&rank, 1, MPI_INT, ranks.data(), 1, MPI_INT, comm);
  return ranks;
}

void sum(MPI_Comm comm, unsigned salt) {
  const auto ranks = members(comm);
  check::sum_floats(comm, ranks, kCount, salt, ranks.size() == 1);
  ++expected[ranks.size() > 1 ? "calls" : "passed_through.communicator"];
}

void intercommunicator() {
  if (size < 2) return;
  MPI_Comm half, inter;
  const int upper = rank >= size / 2;
  MPI_Comm_split(MPI_COMM_WORLD, upper, rank, &half);
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, upper ? 0 : size / 2, 99, &inter);
  std::vector<float> in(kCount, static_cast<float>(rank + 1) / 3), out(kCount), plain(kCount);
  CHECK(MPI_Allreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, inter) == MPI_SUCCESS);
  check::native_allreduce(in.data(), plain.data(), kCount, MPI_FLOAT, MPI_SUM, inter);
  CHECK(out == plain);
  ++expected["passed_through.communicator"];
  MPI_Comm_free(&inter);
  MPI_Comm_free(&half);
}

// Receives from anybody with any tag, and collectives in flight on the same communicator, must not notice Crimp's
// messages.
void with_other_traffic() {
  const int next = (rank + 1) % size, before = (rank + size - 1) % size;
  int got = -1, broadcast = rank == 0 ? 42 : 0, one = 1, ones = 0;
  MPI_Request requests[4];
  MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &requests[0]);
  MPI_Ibarrier(MPI_COMM_WORLD, &requests[1]);
  MPI_Ibcast(&broadcast, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[2]);
  sum(MPI_COMM_WORLD, 1);
  MPI_Iallreduce(&one, &ones, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[3]);
  sum(MPI_COMM_WORLD, 2);
  int found = 0;
  if (size > 1) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
  CHECK(!found, "a message of Crimp's was probed");
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Send(&rank, 1, MPI_INT, next, 7, MPI_COMM_WORLD);
  MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
  CHECK(got == before && broadcast == 42 && ones == size, "got %d, %d, %d", got, broadcast, ones);
}

// A program's own attribute, whose callback reduces while MPI frees the communicator or finalizes.
int callbacks = 0;
int reduce_in_callback(MPI_Comm comm, int, void*, void*) {
  std::vector<float> in(kCount, 0.1f), out(kCount), plain(kCount);
  MPI_Allreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, comm);
  check::native_allreduce(in.data(), plain.data(), kCount, MPI_FLOAT, MPI_SUM, comm);
  const char* const codec = std::getenv("CRIMP_CODEC");
  CHECK(std::abs(out[kCount - 1] - plain[kCount - 1]) <
        (codec && codec[0] == 't' ? 0.3f : 1e-3f));  // thc has four bits a value
  ++callbacks;
  return MPI_SUCCESS;
}

}  // namespace

int main() {
  check::begin();
  sum(MPI_COMM_WORLD, 0);
  sum(MPI_COMM_SELF, 0);

  MPI_Comm parity, copy, lazy, ring;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &parity);
  sum(parity, 3);
  MPI_Comm_dup(parity, &copy);  // of one that has a session: nothing is inherited
  sum(copy, 4);
  sum(parity, 5);
  MPI_Comm_free(&parity);
  sum(copy, 6);  // never freed

  MPI_Request made;
  MPI_Comm_idup(MPI_COMM_WORLD, &lazy, &made);
  MPI_Wait(&made, MPI_STATUS_IGNORE);
  sum(lazy, 7);  // never freed
  const int periodic = 1;
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &periodic, 1, &ring);
  sum(ring, 8);
  intercommunicator();
  with_other_traffic();

  for (unsigned i = 0; i < 60; ++i) {  // handles are recycled
    MPI_Comm brief;
    MPI_Comm_split(MPI_COMM_WORLD, static_cast<int>(i % 2) * (rank % 2), rank, &brief);
    sum(brief, 10 + i);
    if (i % 3 == 0) sum(brief, 80 + i);
    MPI_Comm_free(&brief);
  }

  MPI_Pcontrol(0);
  check::sum_floats(MPI_COMM_WORLD, members(MPI_COMM_WORLD), kCount, 9, true);
  ++expected["passed_through.off"];
  MPI_Pcontrol(7, "solver", 42);  // another tool's level changes nothing
  check::sum_floats(MPI_COMM_WORLD, members(MPI_COMM_WORLD), kCount, 9, true);
  ++expected["passed_through.off"];
  MPI_Pcontrol(1);
  sum(MPI_COMM_WORLD, 9);

  int key;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, reduce_in_callback, &key, nullptr);
  MPI_Comm_set_attr(lazy, key, nullptr);
  MPI_Comm_delete_attr(lazy, key);
  ++expected[size > 1 ? "calls" : "passed_through.communicator"];
  MPI_Comm_set_attr(ring, key, nullptr);
  MPI_Comm_free(&ring);
  ++expected[size > 1 ? "calls" : "passed_through.communicator"];
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);  // runs in MPI_Finalize, after the report

  const int status = check::verdict();
  MPI_Finalize();
  CHECK(callbacks == 3, "%d callbacks", callbacks);
  return status || check::failures;
}
