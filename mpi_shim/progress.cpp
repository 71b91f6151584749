#include "progress.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/blocked_signals.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"
#include "core/reserve.hpp"
#include "core/settings.hpp"
#include "guard.hpp"
#include "half_ops.hpp"
#include "mpi/at_exit.hpp"
#include "mpi/errors_return.hpp"
#include "mpi/half_type.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/runtime.hpp"
#include "mpi/session.hpp"
#include "mpi/wait_texts.hpp"
#include "mpi/world_ranks.hpp"
#include "passed_span.hpp"
#include "requests.hpp"
#include "shared_sum.hpp"

extern char** environ;

namespace crimp {
namespace {

struct Job {
  SumCall call;
  Eligibility eligible;
  MPI_Comm program;  // the program's communicator, unless it has been freed
  std::shared_ptr<const std::atomic<bool>> freed;
  std::shared_ptr<const Shares> shares;
  int rank;
  std::vector<int> counts = {};  // of each share
  MPI_Request request = MPI_REQUEST_NULL;
  Clock::time_point begun = Clock::now();
  // Stored behind the result and before MPI is told that the request is complete: whoever has loaded it sees the
  // result, whatever MPI does between its threads.
  std::atomic<int> rc{MPI_SUCCESS};
  std::shared_ptr<Job> behind = {};  // in a lane's queue, which needs no memory then

  Job(const SumCall& of, const Eligibility& eligibility, std::shared_ptr<const Shares> of_ranks, int own,
      std::shared_ptr<const std::atomic<bool>> of_lane)
      : call(of), eligible(eligibility), program(of.comm), freed(std::move(of_lane)), shares(std::move(of_ranks)),
        rank(own) {}
};

// The lane's own communicator returns errors; they are raised where the program asks for the request.
class PendingJob final : public Pending {
 public:
  explicit PendingJob(std::shared_ptr<Job> job) : job_(std::move(job)) {}
  int finish(int rc) override {
    const int of_job = job_->rc.load(std::memory_order_acquire);
    return rc != MPI_SUCCESS || of_job == MPI_SUCCESS ? rc : fail(of_job);
  }
  // MPI would free a generalized request, but no other sum's (MPI-3.1, 5.12), and the thread would write to a buffer
  // that the program may have given up.
  int release() override { return fail(MPI_ERR_REQUEST); }
  MPI_Comm comm() const override { return job_->freed->load() ? MPI_COMM_NULL : job_->program; }

 private:
  int fail(int code) {
    failure.emplace(Failure{comm(), {}, code});
    return code;
  }
  const std::shared_ptr<Job> job_;
};

int query(void*, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
int release(void*) { return MPI_SUCCESS; }
int cancel(void*, int) { return MPI_ERR_REQUEST; }  // MPI_Cancel raises it; no sum can be cancelled

class Lane {
 public:
  explicit Lane(MPI_Comm comm) : comm_(comm) {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { work(); });
  }
  ~Lane();
  // Returns when all that was added is done.
  void end() {
    if (!thread_.joinable()) return;
    go_on();
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    more_.notify_one();
    thread_.join();
  }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Returns errors; who has made it frees it, behind this.
  MPI_Comm comm() const { return comm_; }
  // The program's communicator is no more, which its requests outlive.
  std::shared_ptr<const std::atomic<bool>> freed() const { return freed_; }
  void set_freed() { freed_->store(true); }

  // Before the first job is added: where a lane comes to its session, others come to theirs. What is said of the lane's
  // communicator names the program's, which has had its name by now if it has one.
  void count(MPI_Comm program) {
    if (numbers_) return;
    PMPI_Comm_set_name(comm_, name_of(program).c_str());
    numbers_ = Runtime::get().count(world_ranks(comm_));
  }
  void add(std::shared_ptr<Job> job) noexcept {
    {
      std::lock_guard lock(mutex_);
      Job* const last = job.get();
      (first_ ? last_->behind : first_) = std::move(job);
      last_ = last;
    }
    more_.notify_one();
  }

 private:
  void work() {
    waits_asleep = true;
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock lock(mutex_);
        more_.wait(lock, [this] { return closing_ || first_; });
        if (!first_) return;
        job = std::move(first_);
        first_ = std::move(job->behind);
      }
      {
        const AtWork here;
        job->rc.store(sum(*job), std::memory_order_release);
      }
      if (Trace* const trace = Runtime::get().trace()) note(*trace, *job);
      PMPI_Grequest_complete(job->request);
    }
  }

  // The sum from the program's call on; what is carried of it is the thread's own call.
  static void note(Trace& trace, const Job& job) {
    Runtime::get().report.note([&] {
      const char* const dtype = name_of(job.eligible.dtype);
      trace.call({.label = std::to_string(job.call.count) + " x " + dtype,
                  .dtype = dtype,
                  .elements = job.call.count,
                  .bytes = job.call.count * size_of(job.eligible.dtype),
                  .record = {.why = "CRIMP_PROGRESS=thread"},
                  .blocks = false},
                 job.begun, Clock::now());
    });
  }

  // As a blocking call, but for what was decided when the program made it.
  int sum(const Job& job) {
    SumCall call = job.call;
    call.comm = comm_;
    AllreduceRequest request = request_of(call, job.eligible.dtype, job.shares, job.rank);
    // Two captures: a std::function keeps them without memory of its own.
    request.sum_exactly = [this, &call](void* buffer, std::uint64_t n) {
      return begun(next_pmpi(), MPI_IN_PLACE, buffer, static_cast<int>(n), call.datatype, call.op, comm_);
    };
    request.sum_by_mpi = [&call, &job] { return by_mpi(next_pmpi(), call, job); };
    Session* left = nullptr;
    request.left = &left;
    request.numbers = &*numbers_;
    request.blocks = false;
    PassReason why = PassReason::settings_differ;
    bool summed = false;
    int rc = guard(comm_, [&] { return summed = crimp::sum(call, job.eligible, request, &why), MPI_SUCCESS; });
    if (summed || rc != MPI_SUCCESS) return rc;
    Runtime::get().report.passed(why);
    const PassedSpan span(why, call.count);
    rc = request.sum_by_mpi();
    if (left && rc == MPI_SUCCESS) left->left_ended();
    return rc;
  }

  // A sum that blocks would spin beside the program, which spins as well where it waits for this one. All ranks begin
  // it so: MPI does not match sums that block with those that do not.
  static int begun(const NextMpi& next, const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm) {
    const ReentrancyGuard handed_on(next);
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = next.Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, &request);
    return rc == MPI_SUCCESS ? wait_quietly(request) : rc;
  }

  static int by_mpi(const NextMpi& next, const SumCall& call, const Job& job) {
    if (!job.shares) {
      const int n = static_cast<int>(call.count);
      return hand_on(call.comm, {call.sendbuf, call.recvbuf}, stages_sum(n, call.datatype), [&](Buffers b) {
        return begun(next, b.sendbuf, b.recvbuf, n, call.datatype, call.op, call.comm);
      });
    }
    const auto& [sendbuf, recvbuf, count, datatype, op, comm, shared] = call;
    const int* const counts = job.counts.data();
    if (job.shares->collective == Collective::reduce_scatter)
      return pass_begun_shares(next, ReduceScatterSum<int>{sendbuf, recvbuf, counts, datatype, op, comm});
    const auto root = std::max_element(job.counts.begin(), job.counts.end()) - job.counts.begin();
    return pass_begun_shares(
        next, ReduceSum<int>{sendbuf, recvbuf, counts[root], datatype, op, static_cast<int>(root), comm});
  }

  const MPI_Comm comm_;
  std::optional<CommunicatorNumbers> numbers_;
  const std::shared_ptr<std::atomic<bool>> freed_ = std::make_shared<std::atomic<bool>>(false);
  std::mutex mutex_;
  std::condition_variable more_;
  std::shared_ptr<Job> first_;
  Job* last_ = nullptr;  // where there is a first
  bool closing_ = false;
  std::thread thread_;
};

// An MPI library may have no more than 2048 communicators, which are the program's.
constexpr std::size_t kMostLanes = 256;

// Of the process; leaked, as Runtime.
struct Lanes {
  std::atomic<bool> open{false};
  int keyval = MPI_KEYVAL_INVALID;
  std::mutex mutex;
  std::set<Lane*> all;
  static Lanes& get() {
    static auto& lanes = *new Lanes;
    return lanes;
  }
  // Threads that make communicators at one time may all find the last place.
  bool have_room() {
    std::lock_guard lock(mutex);
    return all.size() < kMostLanes;
  }
  // A communicator's; null: it has none.
  Lane* of(MPI_Comm comm) const {
    if (!open.load(std::memory_order_acquire)) return nullptr;
    void* found = nullptr;
    int has = 0;
    check_mpi(PMPI_Comm_get_attr(comm, keyval, &found, &has), "MPI_Comm_get_attr");
    return has ? static_cast<Lane*>(found) : nullptr;
  }
};

Lane::~Lane() {
  {
    std::lock_guard lock(Lanes::get().mutex);
    Lanes::get().all.erase(this);
  }
  end();
}

std::string for_threads(MPI_Comm comm, const char* what) {
  return "for the others to " + std::string(what) + " for the thread of " + name_of(comm) +
         " (CRIMP_PROGRESS=thread). Likely a rank runs without Crimp, or is late or dead";
}

// The least of what all ranks have.
int least_of(MPI_Comm comm, int rank, int size, int mine) {
  int least = 0;
  MPI_Request request;
  check_mpi(PMPI_Iallreduce(&mine, &least, 1, MPI_INT, MPI_MIN, comm, &request), "MPI_Iallreduce");
  wait_for(request, rank, size, [&] { return for_threads(comm, "say whether there is what they need"); });
  return least;
}

// Once: a program may make many communicators.
void say_no_lane(MPI_Comm comm, const char* why) {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  logged("communicators without a thread", [&] {
    log(LogLevel::warn, "CRIMP_PROGRESS=thread: sums that do not block go as with CRIMP_PROGRESS=off on " +
                            name_of(comm) + ", and on others like it: " + why);
  });
}

// Whether this rank could give the communicator a lane. `own` is the lane's communicator, MPI_COMM_NULL where MPI has
// made none.
bool make_lane(MPI_Comm comm, int rank, int size, MPI_Comm* own) {
  Lanes& lanes = Lanes::get();
  try {
    {
      const StallGuard guard(rank, size, [&] { return for_threads(comm, "make a communicator"); });
      // A duplicate would have the program's attributes, whose callbacks would be asked.
      const int rc = PMPI_Comm_split(comm, 0, rank, own);
      if (rc != MPI_SUCCESS) *own = MPI_COMM_NULL;
      check_mpi(rc, "MPI_Comm_split");
    }
    check_mpi(PMPI_Comm_set_errhandler(*own, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    auto lane = std::make_unique<Lane>(*own);
    {
      std::lock_guard lock(lanes.mutex);
      lanes.all.insert(lane.get());
    }
    check_mpi(PMPI_Comm_set_attr(comm, lanes.keyval, lane.get()), "MPI_Comm_set_attr");
    lane.release();
    return true;
  } catch (const std::exception& e) {
    say_no_lane(comm, e.what());
    return false;
  }
}

// What is under way ends. Returns the lane's communicator, MPI_COMM_NULL where there was no lane.
MPI_Comm end_lane(MPI_Comm comm) {
  const std::unique_ptr<Lane> lane(Lanes::get().of(comm));
  if (!lane) return MPI_COMM_NULL;
  lane->set_freed();
  PMPI_Comm_delete_attr(comm, Lanes::get().keyval);
  return lane->comm();
}

}  // namespace

bool asks_for_threads() {
  if (environment_text("CRIMP_PROGRESS").empty() && environment_text("CRIMP_CONFIG").empty()) return false;
  try {
    std::vector<Complaint> unsaid;
    const Settings settings = read_settings(environ, unsaid);
    return settings.enable && settings.progress == "thread";
  } catch (const std::exception&) {
    return false;
  }
}

void open_lanes() {
  const Runtime& runtime = Runtime::get();
  if (runtime.late() || !runtime.usable() || runtime.settings().progress != "thread") return;
  int rank = 0, size = 1;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  if (least_of(MPI_COMM_WORLD, rank, size, many_threads())) {
    check_mpi(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &Lanes::get().keyval, nullptr),
              "MPI_Comm_create_keyval");
    Lanes::get().open.store(true, std::memory_order_release);
    open_lane(MPI_COMM_WORLD);
  } else if (rank == 0) {
    log(LogLevel::warn,
        "CRIMP_PROGRESS=thread is not used: MPI has no MPI_THREAD_MULTIPLE on all ranks. Every rank needs the setting before MPI_Init (mpirun -x CRIMP_PROGRESS=thread), and MPI must be built for threads");
  }
}

void open_lane(MPI_Comm comm) {
  Lanes& lanes = Lanes::get();
  if (!lanes.open.load(std::memory_order_acquire) || comm == MPI_COMM_NULL) return;
  int inter = 0, size = 1;
  check_mpi(PMPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
  if (!inter) check_mpi(PMPI_Comm_size(comm, &size), "MPI_Comm_size");
  if (size == 1 || !insist([&] { return of_this_world(comm); })) return;
  const ErrorsReturn errors(comm);  // the program has not been given it yet
  int rank = 0;
  check_mpi(PMPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  if (!least_of(comm, rank, size, lanes.have_room())) {
    if (rank == 0) say_no_lane(comm, "as many communicators of one of its ranks as may have a thread have one");
    return;
  }
  enum { kNothing, kCommunicator, kLane } mine = kNothing;
  MPI_Comm own = MPI_COMM_NULL;
  if (make_lane(comm, rank, size, &own)) mine = kLane;
  else if (own != MPI_COMM_NULL) mine = kCommunicator;
  const int least = least_of(comm, rank, size, mine);
  if (least == kLane) return;
  if (mine == kLane) end_lane(comm);
  // Where a rank has none, freeing the others' could wait for it.
  if (least == kCommunicator) PMPI_Comm_free(&own);
}

void close_lane(MPI_Comm comm) {
  MPI_Comm own = end_lane(comm);
  if (own != MPI_COMM_NULL) PMPI_Comm_free(&own);
}

void close_lanes() {
  Lanes& lanes = Lanes::get();
  lanes.open.store(false, std::memory_order_release);
  std::set<Lane*> left;
  {
    std::lock_guard lock(lanes.mutex);
    left.swap(lanes.all);
  }
  // Freeing waits for others, who have them in other orders: MPI_Finalize does it.
  for (Lane* const lane : left) lane->end();
}

bool start_in_lane(const SumCall& call, const Eligibility& eligible, std::shared_ptr<const Shares> shares, int rank,
                   MPI_Request* request) {
  Lane* const lane = Lanes::get().of(call.comm);
  if (!lane) return false;
  insist([&] { lane->count(call.comm); });
  auto job = insist([&] { return std::make_shared<Job>(call, eligible, shares, rank, lane->freed()); });
  for (int r = 0; shares && r < shares->ranks(); ++r)
    insist([&] { job->counts.push_back(static_cast<int>(shares->of(r).count())); });
  // The program may free its type and operation now.
  if (may_sum_halves(call.op)) job->call.datatype = half_type(eligible.dtype), job->call.op = half_sum(eligible.dtype);
  Requests::Room room = insist([] { return Requests::Room(); });
  std::unique_ptr<Pending> pending = insist([&] { return std::make_unique<PendingJob>(job); });
  check_mpi(PMPI_Grequest_start(query, release, cancel, nullptr, &job->request), "MPI_Grequest_start");
  expect_exit();
  go_on();
  room.fill(job->request, std::move(pending));
  *request = job->request;
  lane->add(std::move(job));
  return true;
}

}  // namespace crimp
