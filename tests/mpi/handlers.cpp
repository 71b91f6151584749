// Error handlers that do not return: they throw, as C++ programs' do, or leave by longjmp.
//   handlers HOW CALLS [WHERE]
// HOW: exception, number, longjmp, return, or calls (the handler sums over the communicator, while another rank does so
// outside of a handler). CALLS: 1 where Crimp compresses a good call, else 0. WHERE: wrong (arguments; run.py compares
// with a run without Crimp), raised (an error of Crimp's own in the second sum, by CRIMP_FAULT), wait (MPI fails inside
// Crimp's exchange, by mpi_failing), residuals (it fails there while a named tensor has one: once before the ranks know
// that all compress, once after), operation (mpi_failing makes none), code (mpi_failing gives an error none), waitall,
// waitany, waitsome, or a test's form of these (a receive fails beside a sum that does not block), damaged (a sum fails
// beside another, by CRIMP_FAULT) with the call that finds it: one of these, or get_status; together (both end in one
// MPI_Waitsome of rank 0); freed (a damaged sum beside a receive that fails, and its communicator is freed before or
// after), no_status (a sum's MPI_Wait and MPI_Test with NULL, which is a status to Open MPI alone).
#include <algorithm>
#include <chrono>
#include <thread>

#include "crimp/crimp.h"
#include "handlers.hpp"

using namespace handlers;
using check::rank;

namespace {

constexpr int kCount = 20000;
#ifdef OMPI_MAJOR_VERSION
constexpr bool kLooksAtCounts = true;  // in a reduction; MPICH 4.0 ends the job
constexpr bool kTestMovesOn = false;   // before it looks, so that what it completes need not have been complete
#else
constexpr bool kLooksAtCounts = false;
constexpr bool kTestMovesOn = true;
#endif
int compresses = 0;
MPI_Comm user;
std::vector<int> everyone;

void sum() {
  static unsigned salt = 0;
  check::sum_floats(user, everyone, kCount, ++salt, !compresses);
  check::expected["calls"] += compresses;
}

void handle(MPI_Comm*, int*, ...) {
  leave_handler();
  if (how == "calls") sum();
}

template <class Call>
void wrong(const char* what, Call call) {
  ran = 0;
  leave(call);
  std::printf("rank %d, %s: %s, the handler ran %d times\n", rank, what, outcome.c_str(), ran);
  sum();
}

void wrong_arguments() {
  float a[64] = {}, b[64] = {};
  int counts[16] = {}, places[16] = {};
  MPI_Op op = MPI_OP_NULL;
  sum();
  wrong("bcast", [&] { return MPI_Bcast(a, -1, MPI_FLOAT, 0, user); });
  if (kLooksAtCounts) wrong("allreduce", [&] { return MPI_Allreduce(a, b, -1, MPI_FLOAT, MPI_SUM, user); });
  wrong("allreduce without an operation", [&] { return MPI_Allreduce(a, b, kCount, MPI_FLOAT, MPI_OP_NULL, user); });
  wrong("reduce", [&] { return MPI_Reduce(a, b, 1, MPI_FLOAT, MPI_SUM, 99, user); });
  wrong("gather", [&] { return MPI_Gather(a, 1, MPI_FLOAT, b, 1, MPI_FLOAT, 99, user); });
  wrong("gatherv", [&] { return MPI_Gatherv(a, 1, MPI_FLOAT, b, counts, places, MPI_FLOAT, 99, user); });
  wrong("scatter", [&] { return MPI_Scatter(a, 1, MPI_FLOAT, b, 1, MPI_FLOAT, 99, user); });
  wrong("scatterv", [&] { return MPI_Scatterv(a, counts, places, MPI_FLOAT, b, 1, MPI_FLOAT, 99, user); });
  wrong("allgather", [&] { return MPI_Allgather(a, 1, MPI_DATATYPE_NULL, b, 1, MPI_DATATYPE_NULL, user); });
  wrong("allgatherv",
        [&] { return MPI_Allgatherv(a, 1, MPI_DATATYPE_NULL, b, counts, places, MPI_DATATYPE_NULL, user); });
  wrong("alltoall", [&] { return MPI_Alltoall(a, 1, MPI_DATATYPE_NULL, b, 1, MPI_DATATYPE_NULL, user); });
  wrong("alltoallv", [&] {
    return MPI_Alltoallv(a, counts, places, MPI_DATATYPE_NULL, b, counts, places, MPI_DATATYPE_NULL, user);
  });
  if (kLooksAtCounts)
    wrong("reduce_scatter_block", [&] { return MPI_Reduce_scatter_block(a, b, -1, MPI_FLOAT, MPI_SUM, user); });
  wrong("op_create", [&] { return MPI_Op_create(nullptr, 1, &op); });
}

// Rank 0's handler and the other ranks sum together.
void handler_and_others() {
  float a[1] = {};
  for (int round = 0; round < 3; ++round) {
    ran = 0;
    if (rank == 0)
      leave([&] {
        return round == 1 && kLooksAtCounts ? MPI_Allreduce(a, a, -1, MPI_FLOAT, MPI_SUM, user)
                                            : MPI_Bcast(a, -1, MPI_FLOAT, 0, user);
      });
    else sum();
    CHECK(ran == (rank == 0), "%d times", ran);
    sum();
  }
}

// The second of four sums fails inside Crimp, on all ranks.
void inside_crimp(int* fail_wait, MPI_Comm* fail_on) {
  static std::vector<float> in(kCount, 1.0f / 3), out(kCount);
  for (int call = 1; call <= 4; ++call) {
    if (call != 2) {
      sum();
      continue;
    }
    ran = 0;
    if (fail_wait) *fail_on = user, *fail_wait = 2;  // the first wait is for headers, the second for bodies
    leave([&] { return MPI_Allreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, user); });
    expect_outcome();
  }
}

// CRIMP_CODEC is 3lc. Before the ranks know that all compress a failed call changes nothing: the tensor's later sums
// have the bits of a twin's that never failed. Behind that what the call was given is gone, and no more: later sums add
// up to what they were given, but for what waits before and after them. By 3lc (s=1) of values up to 1 that is at most
// 1 of each rank's: half of the largest of value and residual.
void around_residuals(int* fail_wait, MPI_Comm* fail_on) {
  constexpr int kLater = 40;
  static std::vector<float> in(kCount), out(kCount), twin(kCount);
  static std::vector<double> given(kCount), got(kCount);
  static const crimp_segment tensor[] = {{"tensor", kCount}}, other[] = {{"twin", kCount}};
  static const auto allreduce = reinterpret_cast<decltype(&crimp_allreduce)>(dlsym(RTLD_DEFAULT, "crimp_allreduce"));
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<float>(check::value(i, rank));
    for (int r = 0; r < check::size; ++r) given[i] += static_cast<float>(check::value(i, r));
  }
  const auto sum = [](const crimp_segment* of, float* to) {
    return allreduce(in.data(), to, kCount, CRIMP_FLOAT32, user, of, 1);
  };
  const auto good = [&](const crimp_segment* of, float* to) {
    CHECK(sum(of, to) == MPI_SUCCESS);
    CHECK(check::identical(to, kCount * sizeof(float), MPI_COMM_WORLD));
    ++check::expected["calls"];
  };
  const auto fail = [&](int wait) {
    ran = 0;
    *fail_on = user, *fail_wait = wait;
    leave([&] { return sum(tensor, out.data()); });
    expect_outcome();
  };
  for (int call = 0; call < 6; ++call) {
    good(tensor, out.data());
    good(other, twin.data());
    CHECK(out == twin, "call %d: the failed one has changed something", call);
    if (call == 2) fail(1);
  }
  fail(2);
  for (int call = 0; call < kLater; ++call) {
    good(tensor, out.data());
    for (std::size_t i = 0; i < in.size(); ++i) got[i] += static_cast<double>(out[i]);
  }
  double worst = 0;
  for (std::size_t i = 0; i < in.size(); ++i) worst = std::max(worst, std::abs(got[i] - kLater * given[i]));
  CHECK(worst < 2.0 * check::size * 1.01, "sums of %d calls are off by up to %g", kLater, worst);
  CHECK(worst > 0.1, "nothing was held back");
}

// Some completing call of two requests, until the handler has run.
void complete(const std::string& how_many, MPI_Request* two) {
  static MPI_Status statuses[2];
  static int done, indices[2];
  ran = 0;
  do {
    leave([&] {
      return how_many == "waitall"    ? MPI_Waitall(2, two, statuses)
             : how_many == "waitany"  ? MPI_Waitany(2, two, indices, statuses)
             : how_many == "waitsome" ? MPI_Waitsome(2, two, &done, indices, statuses)
             : how_many == "testsome" ? MPI_Testsome(2, two, &done, indices, statuses)
             : how_many == "testall"  ? MPI_Testall(2, two, &done, statuses)
                                      : MPI_Testany(2, two, indices, &done, statuses);
    });
  } while (ran == 0);
  expect_outcome();
}

// A receive fails beside a sum. What the sum has is there, whichever of the requests failed, and its handle is
// nobody's.
void beside_a_receive(const std::string& how_many) {
  static std::vector<float> in(kCount), out(kCount);
  static float sent[64], received[4];
  static MPI_Request requests[2], barrier;
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(i, 0));
  const auto get_status =
      reinterpret_cast<decltype(&PMPI_Request_get_status)>(check::in_libmpi("PMPI_Request_get_status"));
  const int other = rank ^ 1;
  for (int round = 0; round < 4; ++round) {
    MPI_Request &sum = requests[round % 2], &receive = requests[1 - round % 2];
    std::fill(out.begin(), out.end(), -7.0f);
    MPI_Send(sent, 64, MPI_FLOAT, other, 5, user);  // more than is received
    MPI_Probe(other, 5, user, MPI_STATUS_IGNORE);
    MPI_Irecv(received, 4, MPI_FLOAT, other, 5, user, &receive);
    MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, user, &sum);
    ++check::expected["calls"];
    // testsome finds both complete then. By a call that leaves MPI to find both at one moment a sum may be lost
    // (docs/errors.md).
    const bool finds_both = how_many == "waitall" || how_many == "waitsome" || how_many == "testall";
    if (how_many == "testsome" || (kTestMovesOn && how == "longjmp" && finds_both))
      for (int flag = 0; !flag;) get_status(sum, &flag, MPI_STATUS_IGNORE);
    complete(how_many, requests);
    if (sum != MPI_REQUEST_NULL) CHECK(MPI_Wait(&sum, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(has_sum_of(in, out), "round %d: the sum is lost", round);
    std::fill(out.begin(), out.end(), 0.0f);
    MPI_Ibarrier(user, &barrier);
    CHECK(MPI_Wait(&barrier, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(std::all_of(out.begin(), out.end(), [](float x) { return x == 0; }), "an old sum came again");
  }
}

// As beside_a_receive(), by MPI_Waitsome, where both end together while rank 0 waits.
void together() {
  static std::vector<float> in(kCount, 0.25f), out(kCount);
  static float sent[64], received[4];
  static MPI_Request requests[2];
  static int lost;
  for (int round = 0; round < 40; ++round) {
    out.assign(kCount, -7);
    ++check::expected["calls"];
    MPI_Barrier(user);
    if (rank == 0) {
      MPI_Irecv(received, 4, MPI_FLOAT, 1, 5, user, &requests[1]);
      MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, user, &requests[0]);
      complete("waitsome", requests);
      CHECK(outcome == "left by longjmp", "%s", outcome.c_str());
      if (requests[0] != MPI_REQUEST_NULL) CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, user, &requests[0]);
      MPI_Send(sent, 64, MPI_FLOAT, 0, 5, user);
      CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    lost += !has_sum_of(in, out);
  }
  check::expected["calls"] -= lost;
  CHECK(lost <= (kTestMovesOn && rank == 0 ? 4 : 0), "%d sums are lost", lost);
}

// A sum is damaged (CRIMP_FAULT) beside another one, which any thread may ask for then.
void beside_a_damaged_sum(const std::string& how_many) {
  static std::vector<float> in(kCount, 0.25f), out[2];
  static MPI_Request requests[2];
  static int complete_now;
  for (int s = 0; s < 2; ++s) {
    out[s].assign(kCount, -7);
    MPI_Iallreduce(in.data(), out[s].data(), kCount, MPI_FLOAT, MPI_SUM, user, &requests[s]);
  }
  ++check::expected["calls"];
  if (how_many == "get_status") {
    ran = complete_now = 0;
    leave([] {
      int rc = MPI_SUCCESS;
      while (!complete_now) rc = MPI_Request_get_status(requests[0], &complete_now, MPI_STATUS_IGNORE);
      return rc;
    });
    expect_outcome();
    std::thread([] {
      int flag = 0;
      while (!flag) CHECK(MPI_Request_get_status(requests[1], &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
      CHECK(has_sum_of(in, out[1]), "it is complete, but not there");
    }).join();
    // The request is the program's still, and who completes it is told as well.
    ran = 0;
    leave([] { return MPI_Wait(&requests[0], MPI_STATUS_IGNORE); });
    expect_outcome();
    CHECK((outcome != "returned class 0" && requests[0] == MPI_REQUEST_NULL), "%s", outcome.c_str());
  } else {
    complete(how_many, requests);
  }
  for (MPI_Request& request : requests)
    if (request != MPI_REQUEST_NULL) CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  CHECK(ran == 1, "the error was raised %d times", ran);
  CHECK(has_sum_of(in, out[1]), "the sum is lost");
}

// A damaged sum (CRIMP_FAULT) and a receive that is too short are complete in one MPI_Waitall, which the receive's
// handler leaves. What is left of the sum is said once, raised to no handler by then, and its communicator is no more.
void on_a_freed_communicator(bool before, MPI_Errhandler handler) {
  static std::vector<float> in(kCount, 0.25f), out(kCount);
  static float sent[64], received[4];
  static MPI_Request requests[2], later;
  static MPI_Comm of_sum;
  const int other = rank ^ 1;
  const auto get_status =
      reinterpret_cast<decltype(&PMPI_Request_get_status)>(check::in_libmpi("PMPI_Request_get_status"));
  MPI_Comm_dup(MPI_COMM_WORLD, &of_sum);
  MPI_Comm_set_errhandler(of_sum, handler);
  MPI_Send(sent, 64, MPI_FLOAT, other, 5, user);
  MPI_Probe(other, 5, user, MPI_STATUS_IGNORE);
  MPI_Irecv(received, 4, MPI_FLOAT, other, 5, user, &requests[0]);
  MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, of_sum, &requests[1]);
  for (int flag = 0; !flag;) get_status(requests[1], &flag, MPI_STATUS_IGNORE);
  if (before) MPI_Comm_free(&of_sum);
  leave([] { return MPI_Waitall(2, requests, MPI_STATUSES_IGNORE); });
  if (!before) MPI_Comm_free(&of_sum);
  // Where MPI has not completed the sum it is waited for. Behind a longjmp nobody can tell.
  if (how == "exception" && requests[1] != MPI_REQUEST_NULL)
    leave([] { return MPI_Wait(&requests[1], MPI_STATUS_IGNORE); });
  const int ran_until_here = ran;
  CHECK(outcome == (how == "longjmp" ? "left by longjmp" : "threw from the handler"), "%s", outcome.c_str());
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, user, &later);
  leave([] { return MPI_Wait(&later, MPI_STATUS_IGNORE); });
  CHECK((outcome == "returned class 0" && ran == ran_until_here), "%s, %d times more", outcome.c_str(),
        ran - ran_until_here);
  CHECK(has_sum_of(in, out), "the sum is lost");
  ++check::expected["calls"];
}

void without_a_status() {
  static std::vector<float> in(kCount, 0.25f), out(kCount);
  static MPI_Request request;
  static int flag;
  const MPI_Status* const ignore = MPI_STATUS_IGNORE;
  for (const bool waits : {true, false}) {
    out.assign(kCount, -7);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    MPI_Iallreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, user, &request);
    ++check::expected["calls"];
    ran = flag = 0;
    leave([waits] { return waits ? MPI_Wait(&request, nullptr) : MPI_Test(&request, &flag, nullptr); });
    if (ignore) {
      expect_outcome();
      CHECK(request != MPI_REQUEST_NULL);
    }
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(has_sum_of(in, out), "the sum is lost");
  }
}

// Once Crimp has made its operation for float16, a call of the program's own operation makes none.
void with_own_operation(int* fail_op_create) {
  static std::vector<std::uint16_t> halves(kCount, 0x3c00), twice(kCount);
  static int ones[64], sums[64];
  static MPI_Op own;
  const auto allreduce = reinterpret_cast<decltype(&crimp_allreduce)>(dlsym(RTLD_DEFAULT, "crimp_allreduce"));
  MPI_Op_create(
      [](void* in, void* inout, int* count, MPI_Datatype*) {
        for (int i = 0; i < *count; ++i) static_cast<int*>(inout)[i] += static_cast<int*>(in)[i];
      },
      1, &own);
  CHECK(allreduce(halves.data(), twice.data(), kCount, CRIMP_FLOAT16, user, nullptr, 0) == MPI_SUCCESS);
  ++check::expected["calls"];
  std::fill(ones, ones + 64, 1);
  *fail_op_create = 1;
  ran = 0;
  leave([] { return MPI_Allreduce(ones, sums, 64, MPI_INT, own, user); });
  CHECK(*fail_op_create == 1, "an operation was made");
  CHECK((ran == 0 && outcome == "returned class 0"), "%s", outcome.c_str());
  CHECK(sums[63] == check::size, "%d", sums[63]);
  *fail_op_create = 0;
  MPI_Op_free(&own);
}

// The handler leaves while MPI is asked for a code; the next error has one.
void without_a_code(int* fail_error_code) {
  static decltype(&crimp_datatype) datatype;
  datatype = reinterpret_cast<decltype(datatype)>(dlsym(RTLD_DEFAULT, "crimp_datatype"));
  *fail_error_code = 1;
  for (const bool code : {false, true}) {
    outcome.clear();
    ran = 0;
    leave([] { return datatype(CRIMP_FLOAT16, nullptr, nullptr); });
    CHECK(*fail_error_code == 0, "MPI was not asked");
    CHECK(ran == (how == "return" && !code ? 2 : 1), "%d times", ran);
    CHECK(how != "longjmp" || outcome == "left by longjmp", "%s", outcome.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  how = argv[1];
  compresses = std::atoi(argv[2]);
  const std::string where = argc > 3 ? argv[3] : "wrong";
  check::begin(where == "damaged" ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  for (int r = 0; r < check::size; ++r) everyone.push_back(r);
  MPI_Comm_dup(MPI_COMM_WORLD, &user);
  MPI_Errhandler handler;
  MPI_Comm_create_errhandler(handle, &handler);
  MPI_Comm_set_errhandler(user, handler);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
  const auto of_failing = [](const char* name) { return static_cast<int*>(dlsym(RTLD_DEFAULT, name)); };
  auto* const fail_on = reinterpret_cast<MPI_Comm*>(dlsym(RTLD_DEFAULT, "fail_on"));
  if (how == "calls") handler_and_others();
  else if (where == "wrong") wrong_arguments();
  else if (where == "residuals") around_residuals(of_failing("fail_wait"), fail_on);
  else if (where == "raised") inside_crimp(nullptr, nullptr);
  else if (where == "wait") inside_crimp(of_failing("fail_wait"), fail_on);
  else if (where == "operation") with_own_operation(of_failing("fail_op_create"));
  else if (where == "code") without_a_code(of_failing("fail_error_code"));
  else if (where == "damaged") beside_a_damaged_sum(argv[4]);
  else if (where == "freed") on_a_freed_communicator(!std::strcmp(argv[4], "before"), handler);
  else if (where == "no_status") without_a_status();
  else if (where == "together") together();
  else beside_a_receive(where);
  if (where == "raised" || where == "damaged" || where == "freed" || (where == "wait" && how == "return"))
    check::expected["errors"] = 1;
  if ((where == "residuals" && how == "return") || where == "code") check::expected["errors"] = 2;
  MPI_Errhandler_free(&handler);
  return check::finish();
}
