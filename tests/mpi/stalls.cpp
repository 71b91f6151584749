// Programs in which the ranks do not meet, as CRIMP_STALL_S sees them.
//   stalls counts|operation|type|pcontrol FIRST [threads]   after FIRST common calls rank 1's next MPI_Allreduce is
//   none of Crimp's: it has one
//                         element less, is a maximum, sums integers, or follows MPI_Pcontrol(0). MPI forbids the first
//                         three; all hang
//   stalls late S         rank 1 comes S seconds late to a call, and as late to MPI_Finalize: right, only slow
//   stalls lane N         rank 1 makes a communicator, and takes part in N exchanges that give it a thread, past Crimp
//   stalls preload        nothing is wrong with the program
//   stalls begun|some N   rank 1 does not come to the MPI_Iallreduce behind N, which MPI_Waitall waits for; some:
//                         MPI_Waitsome, beside a receive that nobody sends anything
//   stalls plan N         Horovod, played: rank 0 does not come to the AND behind N lists, where it tells its plan
#include <unistd.h>

#include "check.hpp"
#include "played_horovod.hpp"

namespace {

constexpr int kCount = 16384;  // CRIMP_MIN_COUNT

void sum(int count, MPI_Op op = MPI_SUM, MPI_Datatype type = MPI_FLOAT) {
  std::vector<float> in(static_cast<std::size_t>(count)), out(in.size());
  CHECK(MPI_Allreduce(in.data(), out.data(), count, type, op, MPI_COMM_WORLD) == MPI_SUCCESS);
}

void lane(int exchanges) {
  MPI_Comm copy = MPI_COMM_NULL, own = MPI_COMM_NULL;
  if (check::rank == 0) {
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    return;
  }
  const auto dup = reinterpret_cast<decltype(&MPI_Comm_dup)>(check::in_libmpi("PMPI_Comm_dup"));
  const auto split = reinterpret_cast<decltype(&MPI_Comm_split)>(check::in_libmpi("PMPI_Comm_split"));
  const auto iallreduce = reinterpret_cast<decltype(&MPI_Iallreduce)>(check::in_libmpi("PMPI_Iallreduce"));
  dup(MPI_COMM_WORLD, &copy);
  int has = 1, all_have = 0;
  if (exchanges > 0) {
    MPI_Request request;
    iallreduce(&has, &all_have, 1, MPI_INT, MPI_MIN, copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
  }
  if (exchanges > 1) split(copy, 0, check::rank, &own);
}

void plan(int lists) {
  const check::PlayedHorovod horovod;
  for (int i = 0;; ++i) {
    if (i == lists && check::rank == 0) pause();
    long long words[] = {5, 0};  // something is not cached
    MPI_Allreduce(MPI_IN_PLACE, words, 2, MPI_LONG_LONG_INT, MPI_BAND, horovod.comm);
    horovod.announce({{"first", kCount}, {"second", kCount}});
  }
}

void begun(int common, bool some) {
  std::vector<float> in(kCount), out(in.size());
  MPI_Request requests[] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  int never = 0, done = 0, indices[2];
  if (some) MPI_Irecv(&never, 1, MPI_INT, check::rank, 0, MPI_COMM_WORLD, &requests[1]);
  for (int i = 0;; ++i) {
    if (i == common && check::rank == 1) pause();
    MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
    if (some) MPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
    else MPI_Waitall(1, requests, MPI_STATUSES_IGNORE);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argv[1];
  const int number = argc > 2 ? std::atoi(argv[2]) : 0;
  check::begin(argc > 3 ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  const bool other = check::rank == 1;
  if (mode == "late") {
    check::expected["calls"] = 2;
    sum(kCount);
    if (other) sleep(static_cast<unsigned>(number));
    sum(kCount);
    const int status = check::verdict();
    if (other) sleep(static_cast<unsigned>(number));
    MPI_Finalize();
    return status;
  }
  if (mode == "plan") plan(number);
  if (mode == "begun" || mode == "some") begun(number, mode == "some");
  if (mode == "lane") {
    lane(number);
    return check::finish();
  }
  for (int i = 0; i < number; ++i) sum(kCount);
  if (mode == "counts") sum(kCount - other);
  if (mode == "operation") sum(kCount, other ? MPI_MAX : MPI_SUM);
  if (mode == "type") sum(kCount, MPI_SUM, other ? MPI_INT : MPI_FLOAT);
  if (mode == "pcontrol") {
    if (other) MPI_Pcontrol(0);
    sum(kCount);
  }
  return check::finish();
}
