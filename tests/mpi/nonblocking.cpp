// MPI_Iallreduce and persistent sums: every way of completing a request, MPI's progress rule, values that codecs cannot
// carry. Expectations come from arithmetic and from MPI-3.1, sections 5.12 and 3.7.
//
// mpi_nonblocking what...
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>

#include "check.hpp"
#include "persistent.hpp"

using check::allreduce_init, check::rank, check::size;

namespace {

constexpr int kCount = 20000;

// Values of ranks `members`, and whether `got` is their sum.
struct Sum {
  explicit Sum(MPI_Comm on = MPI_COMM_WORLD, int of = kCount, unsigned with_salt = 0)
      : comm(on), salt(with_salt), in(static_cast<std::size_t>(of)), out(in.size(), -7.0f) {
    MPI_Group all, mine;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Comm_group(comm, &mine);
    int n = 0;
    MPI_Group_size(mine, &n);
    for (int i = 0; i < n; ++i) {
      int world = 0;
      MPI_Group_translate_ranks(mine, 1, &i, all, &world);
      members.push_back(world);
    }
    MPI_Group_free(&all);
    MPI_Group_free(&mine);
    for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(i, rank, salt));
  }
  void start() {
    CHECK(MPI_Iallreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, comm, &request) ==
          MPI_SUCCESS);
    CHECK(request != MPI_REQUEST_NULL);
  }
  bool untouched() const { return out[0] == -7.0f && out.back() == -7.0f; }
  void verify(const char* how) {
    const double allowed = static_cast<double>(members.size()) * (check::codec_error() + 0x1p-22);
    bool good = true;
    for (std::size_t i = 0; i < in.size() && good; ++i) {
      double sum = 0;
      for (const int m : members) sum += static_cast<float>(check::value(i, m, salt));
      good = std::abs(out[i] - sum) <= allowed;
      CHECK(good, "%s: element %zu is %.9g, not %.9g", how, i, static_cast<double>(out[i]), sum);
    }
    std::fill(out.begin(), out.end(), -7.0f);
  }
  MPI_Comm comm;
  unsigned salt;
  std::vector<float> in, out;
  std::vector<int> members;
  MPI_Request request = MPI_REQUEST_NULL;
};

int calls = 0;

void completions() {
  Sum one, two(MPI_COMM_WORLD, 3 * kCount + 1, 1), three(MPI_COMM_WORLD, kCount, 2);
  const auto start_all = [&] { one.start(), two.start(), three.start(), calls += 3; };
  const auto verify_all = [&](const char* how) { one.verify(how), two.verify(how), three.verify(how); };
  MPI_Status statuses[3];

  start_all();
  for (Sum* sum : {&two, &three, &one}) {
    MPI_Status status;
    CHECK(MPI_Wait(&sum->request, &status) == MPI_SUCCESS);
    CHECK(sum->request == MPI_REQUEST_NULL);
  }
  verify_all("Wait");
  CHECK(MPI_Wait(&one.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);

  start_all();
  MPI_Request all[] = {three.request, MPI_REQUEST_NULL, one.request, two.request};
  CHECK(MPI_Waitall(4, all, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
  for (const MPI_Request r : all) CHECK(r == MPI_REQUEST_NULL);
  verify_all("Waitall");

  start_all();
  MPI_Request any[] = {one.request, two.request, three.request};
  for (int i = 0; i < 3; ++i) {
    int index = -1;
    CHECK(MPI_Waitany(3, any, &index, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK((index >= 0 && index < 3 && any[index] == MPI_REQUEST_NULL));
    Sum* const sums[] = {&one, &two, &three};
    sums[index]->verify("Waitany");
  }
  int index = 0;
  CHECK((MPI_Waitany(3, any, &index, MPI_STATUS_IGNORE) == MPI_SUCCESS && index == MPI_UNDEFINED));

  for (const bool waits : {true, false}) {
    start_all();
    MPI_Request some[] = {one.request, two.request, three.request};
    Sum* const sums[] = {&one, &two, &three};
    for (int left = 3; left > 0;) {
      int done = 0, indices[3];
      if (waits) CHECK(MPI_Waitsome(3, some, &done, indices, statuses) == MPI_SUCCESS);
      else CHECK(MPI_Testsome(3, some, &done, indices, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
      CHECK((waits ? done >= 1 : done >= 0));
      for (int i = 0; i < done; ++i) sums[indices[i]]->verify(waits ? "Waitsome" : "Testsome");
      left -= done;
    }
  }

  start_all();
  for (Sum* sum : {&three, &one, &two}) {
    int flag = 0;
    while (!flag) {
      CHECK(MPI_Test(&sum->request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
      // A thread writes before it says so, which MPI allows.
      if (!flag) CHECK((sum->request != MPI_REQUEST_NULL && (std::getenv("CRIMP_PROGRESS") || sum->untouched())));
    }
    CHECK(sum->request == MPI_REQUEST_NULL);
  }
  verify_all("Test");

  start_all();
  MPI_Request tested[] = {one.request, two.request, three.request};
  for (int flag = 0; !flag;) CHECK(MPI_Testall(3, tested, &flag, statuses) == MPI_SUCCESS);
  verify_all("Testall");

  start_all();
  MPI_Request each[] = {one.request, two.request, three.request};
  for (int left = 3; left > 0;) {
    int flag = 0, which = -1;
    CHECK(MPI_Testany(3, each, &which, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    if (!flag) continue;
    Sum* const sums[] = {&one, &two, &three};
    sums[which]->verify("Testany");
    --left;
  }

  // The result is there when MPI_Request_get_status says so, and the request stays the program's.
  start_all();
  for (Sum* sum : {&one, &two, &three}) {
    for (int flag = 0; !flag;) CHECK(MPI_Request_get_status(sum->request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(sum->request != MPI_REQUEST_NULL);
    sum->verify("Request_get_status");
    const float mine = static_cast<float>(rank);
    sum->out[0] = mine;  // the program's again: nothing is written a second time
    CHECK(MPI_Wait(&sum->request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK((sum->request == MPI_REQUEST_NULL && sum->out[0] == mine));
  }

#ifndef MPI_ABI  // which has them in another header
  // Fortran's handles are of MPI's own request.
  one.start(), ++calls;
  const MPI_Fint handle = MPI_Request_c2f(one.request);
  MPI_Request again = MPI_Request_f2c(handle);
  CHECK(again == one.request);
  CHECK(MPI_Wait(&again, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  one.verify("f2c");
#endif
}

void types() {
  const auto n = static_cast<std::size_t>(kCount);
  std::vector<double> wide(n), sums(n);
  for (std::size_t i = 0; i < n; ++i) wide[i] = sums[i] = check::value(i, rank, 3);
  MPI_Request request;
  MPI_Iallreduce(MPI_IN_PLACE, sums.data(), kCount, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request), ++calls;
  CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  const double allowed = size * (check::codec_error() + 0x1p-21);
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int r = 0; r < size; ++r) sum += check::value(i, r, 3);
    CHECK(std::abs(sums[i] - sum) <= allowed, "element %zu", i);
  }
  // Not sums, not floats, or too few: MPI's own.
  std::vector<int> ints(n, rank + 1);
  MPI_Iallreduce(MPI_IN_PLACE, ints.data(), kCount, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  CHECK(ints[5] == size * (size + 1) / 2);
  MPI_Iallreduce(wide.data(), sums.data(), kCount, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  MPI_Iallreduce(wide.data(), sums.data(), 100, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request);
  MPI_Wait(&request, MPI_STATUS_IGNORE);
  check::expected["passed_through.type"] = 1;
  check::expected["passed_through.operation"] = 1;
  check::expected["passed_through.small"] = 1;
}

// What codecs have no room for: huge and tiny values keep their relative error, NaN and Inf are not lost.
// of_codec: its relative error, of values as large as the largest.
void specials(double of_codec) {
  const auto n = static_cast<std::size_t>(kCount);
  const auto sum = [&](const std::function<double(std::size_t, int)>& value, auto zero, MPI_Datatype type) {
    std::vector<decltype(zero)> in(n), out(n);
    for (std::size_t i = 0; i < n; ++i) in[i] = static_cast<decltype(zero)>(value(i, rank));
    MPI_Request request;
    MPI_Iallreduce(in.data(), out.data(), kCount, type, MPI_SUM, MPI_COMM_WORLD, &request), ++calls;
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    return out;
  };
  const auto near = [&](const auto& out, const std::function<double(std::size_t, int)>& value, double largest,
                        const char* what) {
    for (std::size_t i = 0; i < n; ++i) {
      double exact = 0;
      for (int r = 0; r < size; ++r) exact += value(i, r);
      CHECK(std::abs(out[i] - exact) <= largest * size * (of_codec + 0x1p-20), "%s: element %zu is %g, not %g", what, i,
            static_cast<double>(out[i]), exact);
    }
  };
  for (const double scale : {0x1p120, 0x1p-110, 1.0}) {
    const auto value = [&](std::size_t i, int r) { return scale * check::value(i, r, 4); };
    near(sum(value, 0.0f, MPI_FLOAT), value, scale, "float");
  }
  for (const double scale : {0x1p900, 0x1p-900}) {
    const auto value = [&](std::size_t i, int r) { return scale * check::value(i, r, 5); };
    near(sum(value, 0.0, MPI_DOUBLE), value, scale, "double");
  }
  // Of one rank only, so that units differ.
  const auto one = [](std::size_t i, int r) { return (r == 0 ? 0x1p118 : 0x1p110) * check::value(i, r, 6); };
  near(sum(one, 0.0f, MPI_FLOAT), one, 0x1p118, "units");
  const auto far = [](std::size_t i, int r) { return (r == 0 ? 0x1p800 : 1) * check::value(i, r, 7); };
  near(sum(far, 0.0, MPI_DOUBLE), far, 0x1p800, "far units");
  // Zeros are in no unit, so they hide nothing of what is tiny on another rank.
  for (const double tiny : {0x1p-150, 0x1p-1000}) {
    const auto lone = [&](std::size_t i, int r) { return r == size - 1 ? tiny * check::value(i, r, 8) : 0; };
    near(sum(lone, 0.0, MPI_DOUBLE), lone, tiny, "one rank's tiny values");
  }
  near(
      sum([](std::size_t, int) { return 0.0; }, 0.0f, MPI_FLOAT), [](std::size_t, int) { return 0.0; }, 0, "zeros");
  for (const double special : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto out =
        sum([&](std::size_t i, int r) { return i == 17 && r == size - 1 ? special : 1.0; }, 0.0f, MPI_FLOAT);
    CHECK(!std::isfinite(out[17]));
    CHECK(check::identical(out.data(), n * sizeof(float), MPI_COMM_WORLD));
  }
}

// The examples of sections 5.12 and 5.13, and what goes wrong where a call is not local, or waits for a wait.
void progress() {
  const int other = rank ^ 1;
  const bool paired = other < size;
  int token = 0;
  Sum sum;
  // Local: rank 0 goes on to the message that rank 1 waits for before its own call.
  if (rank % 2 == 0) {
    sum.start(), ++calls;
    if (paired) MPI_Send(&token, 1, MPI_INT, other, 1, MPI_COMM_WORLD);
  } else {
    MPI_Recv(&token, 1, MPI_INT, other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    sum.start(), ++calls;
  }
  MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
  sum.verify("local");
  // Progress by a receive of something else: rank 0 sends only when its sum is complete.
  sum.start(), ++calls;
  if (rank % 2 == 0) {
    MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
    if (paired) MPI_Send(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD);
  } else {
    MPI_Recv(&token, 1, MPI_INT, other, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
  }
  sum.verify("progress by another call");
  // Beside blocking ones: the order of the calls counts, not that of their ends.
  Sum next(MPI_COMM_WORLD, kCount, 1), last(MPI_COMM_WORLD, kCount, 2);
  sum.start(), next.start(), calls += 3;
  MPI_Allreduce(last.in.data(), last.out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  last.verify("blocking between");
  MPI_Request barrier;
  MPI_Ibarrier(MPI_COMM_WORLD, &barrier);
  MPI_Wait(&next.request, MPI_STATUS_IGNORE);
  next.verify("second first");
  MPI_Wait(&barrier, MPI_STATUS_IGNORE);
  MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
  sum.verify("first last");
  // Among other requests.
  if (paired) {
    int in = -1, out = rank;
    sum.start(), ++calls;
    MPI_Request mixed[3] = {MPI_REQUEST_NULL, sum.request, MPI_REQUEST_NULL};
    MPI_Irecv(&in, 1, MPI_INT, other, 3, MPI_COMM_WORLD, &mixed[0]);
    MPI_Isend(&out, 1, MPI_INT, other, 3, MPI_COMM_WORLD, &mixed[2]);
    for (int i = 0; i < 3; ++i) {
      int index = -1;
      MPI_Waitany(3, mixed, &index, MPI_STATUS_IGNORE);
      if (index == 1) sum.verify("mixed");
      else CHECK((index != 0 || in == other));
    }
  } else {
    sum.start(), ++calls;
    MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
    sum.verify("mixed");
  }
  // Three communicators that overlap in a ring.
  MPI_Comm rings[3];
  for (int c = 0; c < 3; ++c)
    MPI_Comm_split(MPI_COMM_WORLD, size >= 3 && (rank == c || rank == (c + 1) % 3) ? 0 : MPI_UNDEFINED, rank,
                   &rings[c]);
  std::vector<std::unique_ptr<Sum>> sums;
  for (const int c : {rank, (rank + 2) % 3})
    if (rank < 3 && rings[c] != MPI_COMM_NULL)
      sums.push_back(std::make_unique<Sum>(rings[c], kCount, 10u + static_cast<unsigned>(c)));
  std::vector<MPI_Request> requests;
  for (auto& s : sums) s->start(), ++calls, requests.push_back(s->request);
  MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);
  for (auto& s : sums) s->verify("ring");
  for (MPI_Comm& ring : rings)
    if (ring != MPI_COMM_NULL) MPI_Comm_free(&ring);
  // A communicator may be freed while a sum is under way.
  MPI_Comm gone;
  MPI_Comm_dup(MPI_COMM_WORLD, &gone);
  Sum left(gone, kCount, 20);
  left.start(), ++calls;
  MPI_Comm_free(&gone);
  MPI_Wait(&left.request, MPI_STATUS_IGNORE);
  left.verify("freed");
}

// Orders of posting and of waiting differ from rank to rank; what must agree is each communicator's own order.
void stress(int requests, int most) {
  MPI_Comm comms[3] = {MPI_COMM_WORLD, MPI_COMM_NULL, MPI_COMM_NULL};
  MPI_Comm_dup(MPI_COMM_WORLD, &comms[1]);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &comms[2]);
  struct Open {
    std::vector<float> values;
    float expected;
    MPI_Request request;
  };
  std::vector<std::unique_ptr<Open>> open;
  std::uint64_t turn = 0;
  const auto random = [&](std::uint64_t below) {
    return check::random_bits(turn++, 77 + static_cast<unsigned>(rank)) % below;
  };
  int posted[3] = {};
  const auto complete = [&](std::size_t i) {
    Open& o = *open[i];
    for (std::size_t e = 0; e < o.values.size(); ++e)
      CHECK(o.values[e] == o.expected + static_cast<float>(size) * static_cast<float>(e % 5), "%zu is %g", e,
            static_cast<double>(o.values[e]));
    open.erase(open.begin() + static_cast<long>(i));
  };
  for (int left = requests; left > 0 || !open.empty();) {
    // Rounds, so that no rank runs ahead without end: within one each rank takes the communicators in its own order.
    if (left > 0 && open.size() < static_cast<std::size_t>(most)) {
      int order[3] = {0, 1, 2};
      std::swap(order[0], order[random(3)]);
      std::swap(order[1], order[1 + random(2)]);
      for (const int c : order) {
        const int k = posted[c]++;
        const auto shape = check::random_bits(static_cast<std::uint64_t>(k), 5u + static_cast<unsigned>(c));
        auto o = std::make_unique<Open>();
        o->values.resize(1 + shape % 300);
        // Integers that every step of any order of summing holds exactly.
        for (std::size_t e = 0; e < o->values.size(); ++e)
          o->values[e] = static_cast<float>(static_cast<std::size_t>((rank + k) % 100) + e % 5);
        o->expected = 0;
        for (int r = 0; r < size; ++r) o->expected += static_cast<float>((r + k) % 100);
        CHECK(MPI_Iallreduce(MPI_IN_PLACE, o->values.data(), static_cast<int>(o->values.size()), MPI_FLOAT, MPI_SUM,
                             comms[c], &o->request) == MPI_SUCCESS);
        open.push_back(std::move(o));
        --left, ++calls;
      }
    }
    if (open.size() >= static_cast<std::size_t>(most) || left <= 0 || random(3) == 0) {
      std::vector<MPI_Request> all;
      for (const auto& o : open) all.push_back(o->request);
      if (all.empty()) continue;
      int flag = 0, index = MPI_UNDEFINED;
      switch (const auto how = random(4); how) {
        case 0: {
          const auto i = random(all.size());
          MPI_Wait(&all[i], MPI_STATUS_IGNORE);
          complete(i);
          break;
        }
        case 1:
          MPI_Testany(static_cast<int>(all.size()), all.data(), &index, &flag, MPI_STATUS_IGNORE);
          if (flag && index != MPI_UNDEFINED) complete(static_cast<std::size_t>(index));
          break;
        case 2:
          MPI_Waitany(static_cast<int>(all.size()), all.data(), &index, MPI_STATUS_IGNORE);
          complete(static_cast<std::size_t>(index));
          break;
        default: {
          std::vector<int> indices(all.size());
          int done = 0;
          MPI_Testsome(static_cast<int>(all.size()), all.data(), &done, indices.data(), MPI_STATUSES_IGNORE);
          std::sort(indices.begin(), indices.begin() + done, std::greater<>());
          for (int i = 0; i < done; ++i) complete(static_cast<std::size_t>(indices[static_cast<std::size_t>(i)]));
        }
      }
    }
  }
  MPI_Comm_free(&comms[1]);
  MPI_Comm_free(&comms[2]);
}

// Sums of one communicator, started by one thread and completed by another one meanwhile, which comes up to four of
// them behind.
void pipelined() {
  constexpr int kRounds = 60, kBehind = 4;
  std::deque<Sum> sums;
  for (int i = 0; i < kRounds; ++i) sums.emplace_back(MPI_COMM_WORLD, kCount, static_cast<unsigned>(i));
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0, completed = 0;
  std::thread completer([&] {
    for (int i = 0; i < kRounds; ++i) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return started > i; });
      }
      MPI_Wait(&sums[static_cast<std::size_t>(i)].request, MPI_STATUS_IGNORE);
      sums[static_cast<std::size_t>(i)].verify("a thread that completes while another one starts");
      std::lock_guard lock(mutex);
      ++completed;
      changed.notify_all();
    }
  });
  for (int i = 0; i < kRounds; ++i) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return i - completed < kBehind; });
    }
    sums[static_cast<std::size_t>(i)].start(), ++calls;
    std::lock_guard lock(mutex);
    ++started;
    changed.notify_all();
  }
  completer.join();
}

// Started here, completed by another thread; one communicator a thread.
void threads() {
  constexpr int kThreads = 3, kRounds = 20;
  MPI_Comm comms[kThreads];
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  std::vector<std::thread> all;
  for (int t = 0; t < kThreads; ++t)
    all.emplace_back([&, t] {
      Sum sum(comms[t], kCount, static_cast<unsigned>(t));
      for (int i = 0; i < kRounds; ++i) {
        sum.start();
        std::thread([&] { MPI_Wait(&sum.request, MPI_STATUS_IGNORE); }).join();
        sum.verify("another thread");
      }
    });
  for (auto& t : all) t.join();
  calls += kThreads * kRounds;
  // Whichever thread is told that a sum is complete may read it, while another one is told as well.
  Sum seen(MPI_COMM_WORLD, 500000);
  for (int i = 0; i < kRounds; ++i) {
    seen.start(), ++calls;
    std::vector<std::thread> lookers;
    for (int t = 0; t < kThreads; ++t)
      lookers.emplace_back([&] {
        for (int flag = 0; !flag;) MPI_Request_get_status(seen.request, &flag, MPI_STATUS_IGNORE);
        CHECK(seen.out.back() != -7.0f, "complete, and not written yet");
      });
    for (auto& t : lookers) t.join();
    MPI_Wait(&seen.request, MPI_STATUS_IGNORE);
    seen.verify("looked at by several threads");
  }
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
}

Sum* last_sum = nullptr;

// A library that completes its sum where MPI_COMM_SELF's attributes are deleted, which is in MPI_Finalize (MPI-3.1,
// 8.7.1). What is wrong there ends the job.
int complete_last(MPI_Comm, int, void*, void*) {
  MPI_Wait(&last_sum->request, MPI_STATUS_IGNORE);
  last_sum->verify("in MPI_Finalize");
  if (check::failures) std::_Exit(1);
  return MPI_SUCCESS;
}

void finalizing() {
  int key = 0;
  MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &complete_last, &key, nullptr);
  MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
  last_sum = new Sum;
  last_sum->start();
}

// MPI's own errors, and its verdict on what is none.
void odd() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::vector<float> in(kCount), out(kCount);
  const auto native = reinterpret_cast<decltype(&MPI_Iallreduce)>(check::in_libmpi("PMPI_Iallreduce"));
  const auto same = [&](const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op, const char* what) {
    MPI_Request ours = MPI_REQUEST_NULL, theirs = MPI_REQUEST_NULL;
    int expected = MPI_SUCCESS, got = MPI_SUCCESS, of_expected = 0, of_got = 0;
    expected = native(send, receive, count, type, op, MPI_COMM_WORLD, &theirs);
    got = MPI_Iallreduce(send, receive, count, type, op, MPI_COMM_WORLD, &ours);
    MPI_Error_class(expected, &of_expected);
    MPI_Error_class(got, &of_got);
    CHECK(of_expected == of_got, "%s: class %d, MPI says %d", what, of_got, of_expected);
    if (expected == MPI_SUCCESS) MPI_Wait(&theirs, MPI_STATUS_IGNORE);
    if (got == MPI_SUCCESS) MPI_Wait(&ours, MPI_STATUS_IGNORE);
  };
  same(in.data(), out.data(), -1, MPI_FLOAT, MPI_SUM, "count");
  same(in.data(), out.data(), kCount, MPI_DATATYPE_NULL, MPI_SUM, "type");
  same(in.data(), out.data(), kCount, MPI_FLOAT, MPI_OP_NULL, "op");
  same(in.data(), out.data(), 0, MPI_FLOAT, MPI_SUM, "nothing");
  Sum sum;
  sum.start(), ++calls;
  // No requests where there should be some, while one is outstanding.
  const auto error_class = [](int code) {
    int of = MPI_SUCCESS;
    MPI_Error_class(code, &of);
    return of;
  };
  int flag = 0;
  const int wait = MPI_Waitall(1, nullptr, MPI_STATUSES_IGNORE),
            test = MPI_Testall(1, nullptr, &flag, MPI_STATUSES_IGNORE);
  CHECK(error_class(wait) == error_class(PMPI_Waitall(1, nullptr, MPI_STATUSES_IGNORE)));
  CHECK(error_class(test) == error_class(PMPI_Testall(1, nullptr, &flag, MPI_STATUSES_IGNORE)));
  CHECK((wait != MPI_SUCCESS && test != MPI_SUCCESS));
  MPI_Wait(&sum.request, MPI_STATUS_IGNORE);
  sum.verify("after errors");
}

// The second of three sums is damaged (CRIMP_FAULT): MPI-3.1, 3.7.5. With statuses the code says to look at them, and
// each has an error of its own; without them it is that of the sum.
void damaged(const std::string& how) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const auto of_crimp = [](int code) {
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(code, text, &length);
    return !std::strncmp(text, "crimp: ", 7);
  };
  Sum sums[3];
  MPI_Request requests[3];
  MPI_Status statuses[3];
  for (int i = 0; i < 3; ++i) {
    sums[i].start();
    requests[i] = sums[i].request;
    statuses[i].MPI_ERROR = 77;
  }
  int errors[3] = {77, 77, 77}, in_status = 0;
  if (how == "ignored") {
    CHECK(of_crimp(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)));
  } else if (how.ends_with("all")) {
    int rc = MPI_SUCCESS, flag = how == "waitall";
    if (flag) rc = MPI_Waitall(3, requests, statuses);
    while (!flag) rc = MPI_Testall(3, requests, &flag, statuses);
    in_status += rc == MPI_ERR_IN_STATUS;
    for (int i = 0; i < 3; ++i) errors[i] = statuses[i].MPI_ERROR;
  } else {
    int indices[3];
    for (int all = 0; all < 3;) {
      int done = 0;
      const int rc = (how == "waitsome" ? MPI_Waitsome : MPI_Testsome)(3, requests, &done, indices, statuses);
      in_status += rc == MPI_ERR_IN_STATUS;
      for (int i = 0; i < done; ++i) errors[indices[i]] = rc == MPI_SUCCESS ? MPI_SUCCESS : statuses[i].MPI_ERROR;
      all += done;
    }
  }
  for (const MPI_Request r : requests) CHECK(r == MPI_REQUEST_NULL);
  for (const int i : {0, 2}) sums[i].verify(how.c_str());
  calls += 2;
  check::expected["errors"] = 1;
  if (how == "ignored") return;
  CHECK(in_status == 1, "%d times", in_status);
  CHECK((errors[0] == MPI_SUCCESS && errors[2] == MPI_SUCCESS), "%d and %d", errors[0], errors[2]);
  CHECK(of_crimp(errors[1]), "code %d", errors[1]);
}

// The native function, of which Crimp sees nothing.
template <class Function>
Function past_crimp(Function, const char* name) {
  return reinterpret_cast<Function>(check::in_libmpi(name));
}

// A damaged sum (CRIMP_FAULT) and a receive that is too short are complete, another receive is not. What MPI_Testall
// takes it answers for: where it takes the sum (MPICH does, with flag 0) its error is the sum's. Whoever takes it, one
// call has the error. how: statuses or ignored.
void unfinished(const std::string& how) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const auto get_status = past_crimp(&PMPI_Request_get_status, "PMPI_Request_get_status");
  const bool ignored = how == "ignored";
  const int other = rank ^ 1;
  static float sent[64], received[4];
  int late = 0;
  Sum sum;
  MPI_Request requests[3];
  MPI_Status statuses[3];
  MPI_Status* const to = ignored ? MPI_STATUSES_IGNORE : statuses;
  MPI_Send(sent, 64, MPI_FLOAT, other, 5, MPI_COMM_WORLD);
  MPI_Probe(other, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  MPI_Irecv(received, 4, MPI_FLOAT, other, 5, MPI_COMM_WORLD, &requests[1]);
  MPI_Irecv(&late, 1, MPI_INT, other, 6, MPI_COMM_WORLD, &requests[2]);
  sum.start();
  requests[0] = sum.request;
  for (int flag = 0; !flag;) get_status(requests[0], &flag, MPI_STATUS_IGNORE);
  for (MPI_Status& status : statuses) status.MPI_ERROR = MPI_SUCCESS;
  int flag = 1;
  int rc = MPI_Testall(3, requests, &flag, to);
  CHECK((!flag && requests[2] != MPI_REQUEST_NULL));
  const bool taken = requests[0] == MPI_REQUEST_NULL;
  if (taken) CHECK((rc == MPI_ERR_IN_STATUS && (ignored || statuses[0].MPI_ERROR > MPI_ERR_LASTCODE)));
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Send(&rank, 1, MPI_INT, other, 6, MPI_COMM_WORLD);
  rc = MPI_Waitall(3, requests, to);
  if (!taken) CHECK((ignored ? rc != MPI_SUCCESS : statuses[0].MPI_ERROR > MPI_ERR_LASTCODE));
  CHECK(requests[0] == MPI_REQUEST_NULL);
  MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);  // Open MPI leaves what was not complete when it found the error
  CHECK(late == other);
  check::expected["errors"] = 1;
}

// A receive that is too short fails while the sum beside it is waited for: MPI says so, and the sum is there. Open
// MPI's own MPI_Waitall never returns where threads are in use and that came first.
void failed_beside(bool persistent) {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (persistent && !check::kPersistent) {
    std::puts("skipped: this MPI has no persistent collectives");
    MPI_Finalize();
    std::exit(check::kSkipped);
  }
  static float sent[64], received[4];
  Sum sum;
  const auto start = [&] {
    if (persistent) CHECK(MPI_Start(&sum.request) == MPI_SUCCESS);
    else sum.start();
  };
  if (persistent)
    CHECK(allreduce_init(sum.in.data(), sum.out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                         &sum.request) == MPI_SUCCESS);
  for (int round = 0; round < 5; ++round) {
    MPI_Request requests[2];
    MPI_Status statuses[2] = {};
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) {
      MPI_Send(sent, 64, MPI_FLOAT, 0, 5, MPI_COMM_WORLD);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      start();
      CHECK(MPI_Wait(&sum.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    } else {
      MPI_Irecv(received, 4, MPI_FLOAT, 1, 5, MPI_COMM_WORLD, &requests[1]);
      start();
      requests[0] = sum.request;
      CHECK(MPI_Waitall(2, requests, statuses) == MPI_ERR_IN_STATUS);
      int error_class = MPI_SUCCESS;
      MPI_Error_class(statuses[1].MPI_ERROR, &error_class);
      CHECK((error_class == MPI_ERR_TRUNCATE && requests[1] == MPI_REQUEST_NULL));
      // What was not complete when MPI found the error it leaves to be waited for (MPI_ERR_PENDING).
      CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    ++calls;
    sum.verify("Waitall beside a receive that fails");
  }
  if (persistent) MPI_Request_free(&sum.request);
}

// A tool behind Crimp (tool.c) sees what the program calls and nothing else. A wait that it refuses takes nothing.
void tool() {
  const int other = rank ^ 1;
  int mine = 0;
  Sum sum;
  for (int round = 0; round < 3; ++round) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    MPI_Request requests[2];
    sum.start(), ++calls;
    requests[0] = sum.request;
    MPI_Irecv(&mine, 1, MPI_INT, other, 3, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(&rank, 1, MPI_INT, other, 3, MPI_COMM_WORLD);
    CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    CHECK(mine == other);
    sum.verify("Waitall");
  }
  sum.start(), ++calls;
  MPI_Request some[] = {sum.request};
  for (int done = 0, index = 0; done != 1;) MPI_Testsome(1, some, &done, &index, MPI_STATUSES_IGNORE);
  sum.verify("Testsome");
  auto* const refuse_wait = static_cast<int*>(dlsym(RTLD_DEFAULT, "refuse_wait"));
  const auto get_status = past_crimp(&PMPI_Request_get_status, "PMPI_Request_get_status");
  for (const bool complete : {false, true}) {
    sum.start(), ++calls;
    for (int flag = !complete; !flag;) get_status(sum.request, &flag, MPI_STATUS_IGNORE);
    *refuse_wait = 1;
    CHECK((MPI_Wait(&sum.request, MPI_STATUS_IGNORE) == MPI_ERR_OTHER && sum.request != MPI_REQUEST_NULL));
    CHECK(MPI_Wait(&sum.request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    sum.verify("refused");
  }
}

// A persistent sum has a tensor of its own, so a codec with error feedback keeps its residual: what is sent of equal
// values sums up to them.
// most: how many of the largest values a residual may be.
void persistent(double most) {
#if MPI_VERSION >= 4 || defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
  constexpr int kSteps = 60;
  Sum sum, other(MPI_COMM_WORLD, kCount, 1);
  MPI_Request requests[2];
  CHECK(allreduce_init(sum.in.data(), sum.out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &requests[0]) == MPI_SUCCESS);
#if MPI_VERSION >= 4
  const auto second_init = MPI_Allreduce_init_c;
#else
  const auto second_init = allreduce_init;
#endif
  CHECK(second_init(other.in.data(), other.out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                    &requests[1]) == MPI_SUCCESS);
#if defined(OPEN_MPI)                         // MPICH, to 5.0 at least, hangs here by itself
  MPI_Wait(&requests[0], MPI_STATUS_IGNORE);  // inactive: complete at once, and nothing is written
  CHECK(sum.untouched());
#endif
  std::vector<double> of(static_cast<std::size_t>(kCount));
  for (int step = 0; step < kSteps; ++step) {
    if (step % 3 == 0) {
      // In an order of its own on every rank.
      CHECK(MPI_Start(&requests[rank % 2]) == MPI_SUCCESS);
      CHECK(MPI_Start(&requests[1 - rank % 2]) == MPI_SUCCESS);
    } else {
      CHECK(MPI_Startall(2, requests) == MPI_SUCCESS);
    }
    if (step % 2) {
      CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    } else {
      for (MPI_Request& r : requests)
        for (int flag = 0; !flag;) CHECK(MPI_Test(&r, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    }
    for (const MPI_Request r : requests) CHECK(r != MPI_REQUEST_NULL);
    calls += 2;
    for (std::size_t i = 0; i < of.size(); ++i) of[i] += static_cast<double>(sum.out[i]);
  }
  CHECK(MPI_Request_free(&requests[0]) == MPI_SUCCESS);
  CHECK((MPI_Request_free(&requests[1]) == MPI_SUCCESS && requests[1] == MPI_REQUEST_NULL));
  // What is not sent yet is at most a residual, in kSteps sums.
  for (std::size_t i = 0; i < of.size(); ++i) {
    double exact = 0;
    for (int r = 0; r < size; ++r) exact += static_cast<float>(check::value(i, r, 0));
    CHECK(std::abs(of[i] / kSteps - exact) <= size * most / kSteps, "element %zu: %g, not %g", i, of[i] / kSteps,
          exact);
  }
#else
  static_cast<void>(most);
  std::puts("skipped: this MPI has no persistent collectives");
  MPI_Finalize();
  std::exit(check::kSkipped);
#endif
}

// What MPI refuses to start or to wait for (tool.c) stays what it was: a sum that is not started, or under way, and in
// step with the other rank's, whose calls all succeed.
void half_started() {
#if MPI_VERSION >= 4 || defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const auto of_tool = [](const char* name) { return static_cast<int*>(dlsym(RTLD_DEFAULT, name)); };
  Sum sum;
  int never = 0;
  MPI_Request requests[2];
  CHECK(allreduce_init(sum.in.data(), sum.out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                       &requests[0]) == MPI_SUCCESS);
  MPI_Recv_init(&never, 1, MPI_INT, 0, 1, MPI_COMM_SELF, &requests[1]);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 1) {
    CHECK(MPI_Start(&requests[0]) == MPI_SUCCESS);
    MPI_Send(nullptr, 0, MPI_INT, 0, 3, MPI_COMM_WORLD);
  } else {
    // Rank 1's part is here, so that the sum would be complete at once.
    MPI_Recv(nullptr, 0, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Request with_none[] = {requests[0], MPI_REQUEST_NULL};
    CHECK(MPI_Startall(2, with_none) != MPI_SUCCESS);
    *of_tool("refuse_start") = 1;
    CHECK(MPI_Startall(2, requests) == MPI_ERR_OTHER);
    *of_tool("refuse_start") = 2;
    CHECK(MPI_Startall(2, requests) == MPI_ERR_OTHER);  // the receive is under way now
// MPICH 4.0 waits for ever for what is not started.
#ifdef OPEN_MPI
    CHECK((MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS && sum.untouched()));
#endif
    CHECK(MPI_Start(&requests[0]) == MPI_SUCCESS);
  }
  CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
  sum.verify("a sum that was refused");
  // Rank 0's sum cannot be complete before rank 1's has begun.
  if (rank == 1) {
    MPI_Recv(nullptr, 0, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(MPI_Start(&requests[0]) == MPI_SUCCESS);
  } else {
    CHECK(MPI_Start(&requests[0]) == MPI_SUCCESS);
    *of_tool("refuse_start") = 1;
    CHECK(MPI_Start(&requests[0]) == MPI_ERR_OTHER);
    *of_tool("refuse_wait") = 1;
    CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_ERR_OTHER);
    MPI_Send(nullptr, 0, MPI_INT, 1, 3, MPI_COMM_WORLD);
  }
  CHECK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE) == MPI_SUCCESS);
  calls += 2;
  sum.verify("a sum that was started twice");
  for (MPI_Request& r : requests) MPI_Request_free(&r);
#else
  std::puts("skipped: this MPI has no persistent collectives");
  MPI_Finalize();
  std::exit(check::kSkipped);
#endif
}

// Rank 0's buffers lie where an address alone does not tell whose memory it is, the others' in the program's image. The
// same on all ranks: calls that are compressed, and one that is not.
void homes() {
  static float image[2][kCount];
  std::vector<float> far[2];
  for (auto& buffer : far) buffer.resize(1 << 20);  // a mapping of its own
  float* const in = rank == 0 ? far[0].data() : image[0];
  float* const out = rank == 0 ? far[1].data() : image[1];
  for (int call = 0; call < 8; ++call) {
    const bool passes = call == 3;
    std::fill(in, in + kCount, static_cast<float>(rank + 1));
    if (passes && rank == size - 1) in[7] = std::numeric_limits<float>::quiet_NaN();
    MPI_Request request;
    CHECK(MPI_Iallreduce(in, out, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    const auto sum = static_cast<float>(size * (size + 1) / 2);
    for (int i = 0; i < kCount && check::failures < 3; ++i)
      CHECK((passes && i == 7 ? std::isnan(out[i]) : out[i] == sum), "call %d: element %d is %g, not %g", call, i,
            static_cast<double>(out[i]), static_cast<double>(sum));
  }
}

// No rank has memory for a plan (CRIMP_FAULT): that is what the call returns, and no request.
void without_a_plan() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  for (const bool persistent : {false, true}) {
    if (persistent && !check::kPersistent) continue;
    Sum sum;
    const int rc = persistent ? allreduce_init(sum.in.data(), sum.out.data(), kCount, MPI_FLOAT, MPI_SUM,
                                               MPI_COMM_WORLD, MPI_INFO_NULL, &sum.request)
                              : MPI_Iallreduce(sum.in.data(), sum.out.data(), kCount, MPI_FLOAT, MPI_SUM,
                                               MPI_COMM_WORLD, &sum.request);
    check::refused("no memory to plan a call", rc);
    CHECK((sum.request == MPI_REQUEST_NULL && sum.untouched()));
  }
}

// A sum under way can be neither freed nor cancelled (MPI-3.1, 5.12); it is completed like any other.
void refused() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  constexpr int kLong = 1 << 20;
  std::vector<float> in(kLong, 1.0f), out(kLong);
  for (int step = 0; step < 3; ++step) {
    MPI_Request request = MPI_REQUEST_NULL;
    std::fill(out.begin(), out.end(), -1.0f);
    CHECK(MPI_Iallreduce(in.data(), out.data(), kLong, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
    const MPI_Request had = request;
    int cls = MPI_SUCCESS;
    MPI_Error_class(MPI_Request_free(&request), &cls);
    CHECK(cls == MPI_ERR_REQUEST, "MPI_Request_free says %d", cls);
    CHECK(request == had, "the request went");
    CHECK(MPI_Cancel(&request) != MPI_SUCCESS, "MPI_Cancel succeeds");
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK((out.front() == static_cast<float>(size) && out.back() == out.front()), "%g", static_cast<double>(out[0]));
    ++calls;
  }
}

// A generalized request of the program's, complete long after the sum, before and behind that one.
void beside() {
  const auto query = [](void*, MPI_Status* status) {
    MPI_Status_set_elements(status, MPI_BYTE, 0);
    MPI_Status_set_cancelled(status, 0);
    return static_cast<int>(MPI_SUCCESS);
  };
  const auto release = [](void*) { return static_cast<int>(MPI_SUCCESS); };
  const auto cancel = [](void*, int) { return static_cast<int>(MPI_SUCCESS); };
  Sum sum;
  for (const std::size_t place : {0u, 1u}) {
    MPI_Request both[2];
    sum.start(), ++calls;
    both[place] = sum.request;
    MPI_Grequest_start(query, release, cancel, nullptr, &both[1 - place]);
    std::thread later([own = both[1 - place]] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      MPI_Grequest_complete(own);
    });
    CHECK(MPI_Waitall(2, both, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    CHECK((both[0] == MPI_REQUEST_NULL && both[1] == MPI_REQUEST_NULL));
    later.join();
    sum.verify("Waitall");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const auto has = [&](const char* what) { return argc > 1 && !std::strcmp(argv[1], what); };
  const bool multiple = has("threads") || has("beside") || (argc > 2 && !std::strcmp(argv[2], "multiple"));
  check::begin(multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE);
  if (has("completions")) completions();
  else if (has("types")) types();
  else if (has("specials")) specials(argc > 2 ? std::atof(argv[2]) : check::codec_error());
  else if (has("progress")) progress();
  else if (has("refused")) refused();
  else if (has("homes")) homes();
  else if (has("without_a_plan")) without_a_plan();
  else if (has("beside")) beside();
  else if (has("stress")) stress(argc > 2 ? std::atoi(argv[2]) : 3000, argc > 3 ? std::atoi(argv[3]) : 20);
  else if (has("threads")) threads(), pipelined();
  else if (has("finalizing")) finalizing();
  else if (has("odd")) odd();
  else if (has("damaged")) damaged(argc > 2 ? argv[2] : "waitall");
  else if (has("failed_beside")) failed_beside(argc > 2);
  else if (has("unfinished")) unfinished(argc > 2 ? argv[2] : "statuses");
  else if (has("tool")) tool();
  else if (has("half_started")) half_started();
  else if (has("persistent")) persistent(argc > 2 ? std::atof(argv[2]) : 4);
  else CHECK(false, "no such test");
  check::expected["calls"] = size > 1 ? calls : 0;
  return check::finish();
}
