// A program that keeps many communicators, with CRIMP_PROGRESS=thread and any codec that check.hpp knows.
//
//   many_communicators threads   keeps more than may have a thread: 256 of a process, MPI_COMM_WORLD among them
//   many_communicators ids       uses up MPI's communicators (MPICH has 2048), then takes the last one; an error would
//                                end the job
//   many_communicators kinds     makes one in every way that MPI has
#include <fstream>
#include <limits>

#include "check.hpp"

using check::rank, check::size;

namespace {

constexpr int kMost = 256, kKept = 300, kCount = 20000;

int threads() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (int n = 0; word == "Threads:" && status >> n) return n;
  return -1;
}

MPI_Comm copy_of_world() {
  MPI_Comm copy = MPI_COMM_NULL;
  CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &copy) == MPI_SUCCESS);
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(copy, &handler);
  CHECK(handler == MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&handler);
  return copy;
}

void sum(MPI_Comm comm) {
  std::vector<float> in(kCount), out(kCount);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(i, rank));
  MPI_Request request;
  CHECK(MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, comm, &request) == MPI_SUCCESS);
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  ++check::expected["calls"];
  for (std::size_t i = 0; i < in.size(); ++i) {
    double exact = 0;
    for (int r = 0; r < size; ++r) exact += static_cast<float>(check::value(i, r));
    CHECK(std::abs(out[i] - exact) <= size * (check::codec_error() + 0x1p-22), "element %zu is %.9g, not %.9g", i,
          static_cast<double>(out[i]), exact);
  }
}

void keep_more_than_threads() {
  for (int i = 0; i < 2 * kMost + 20; ++i) {  // those that are freed take no place
    MPI_Comm brief = copy_of_world();
    if (i % 2) MPI_Comm_free(&brief);
    else MPI_Comm_disconnect(&brief);
  }
  const int before = threads();
  std::vector<MPI_Comm> kept;
  for (int i = 0; i < kKept; ++i) kept.push_back(copy_of_world());
  const int more = threads() - before;
  CHECK(more == kMost - 1, "%d communicators have %d threads", kKept, more);
  sum(kept.front());
  sum(kept.back());
  for (MPI_Comm& comm : kept) MPI_Comm_free(&comm);
}

void take_the_last() {
  constexpr int kEnough = 3000;  // Open MPI has many more
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  std::vector<MPI_Comm> all;
  for (MPI_Comm one; all.size() < kEnough && MPI_Comm_dup(MPI_COMM_SELF, &one) == MPI_SUCCESS;) all.push_back(one);
  MPI_Comm_free(&all.back());
  all.pop_back();
  MPI_Comm last = copy_of_world();
  sum(last);
  sum(MPI_COMM_WORLD);
  MPI_Comm_free(&last);
  for (MPI_Comm& one : all) MPI_Comm_free(&one);
}

// However a communicator was made, its sums go by a thread: MPI has those with a NaN, which is in one element then.
void kinds() {
  MPI_Group all;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  const int once = 0, remains = 1;
  enum { kDup, kDupWithInfo, kCreate, kCreateGroup, kSplit, kSplitType, kCart, kCartSub, kKinds };
  MPI_Comm comms[kKinds];
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[kDup]);
  MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &comms[kDupWithInfo]);
  MPI_Comm_create(MPI_COMM_WORLD, all, &comms[kCreate]);
  MPI_Comm_create_group(MPI_COMM_WORLD, all, 1, &comms[kCreateGroup]);
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comms[kSplit]);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &comms[kSplitType]);
  MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &once, 0, &comms[kCart]);
  MPI_Cart_sub(comms[kCart], &remains, &comms[kCartSub]);
  for (int kind = 0; kind < kKinds; ++kind) {
    std::vector<float> in(kCount), out(kCount);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(i, rank));
    if (rank == size - 1) in[7] = std::numeric_limits<float>::quiet_NaN();
    MPI_Request request;
    CHECK(MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, comms[kind], &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    long right = 0;
    for (std::size_t i = 0; i < in.size(); ++i) {
      double exact = 0;
      for (int r = 0; r < size; ++r) exact += static_cast<float>(check::value(i, r));
      right += std::abs(out[i] - exact) <= size * 0x1p-22;
    }
    CHECK((right == kCount - 1 && std::isnan(out[7])), "kind %d: %ld elements are right", kind, right);
  }
  check::expected["passed_through.range"] = kKinds;
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  MPI_Group_free(&all);
}

}  // namespace

int main(int argc, char** argv) {
  check::begin();
  if (argc > 1 && !std::strcmp(argv[1], "ids")) take_the_last();
  else if (argc > 1 && !std::strcmp(argv[1], "kinds")) kinds();
  else keep_more_than_threads();
  return check::finish();
}
