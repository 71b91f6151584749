#include "horovod/observer.hpp"

#include <fmt/format.h>

#include <memory>
#include <span>
#include <string>

#include "backend/device_plugin.hpp"
#include "core/log.hpp"
#include "horovod/negotiation.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/runtime.hpp"

namespace crimp::horovod {
namespace {
thread_local bool horovods __attribute__((tls_model("initial-exec"))) = false;  // this thread is Horovod's

// What a plan depends on beside ranks and tensors, as far as it is the same in the next job: settings that are not
// their defaults, and what Horovod packs without a plan. What a network gives is not known by any name; step times say
// it.
std::string settings_of(const Settings& settings, const Options& options, int ranks_per_host) {
  std::string out;
  for (const Option& option : option_table())
    if (const std::string value = option.get(settings);
        option.agreed && value != option.default_value() && option.name != std::string_view("CRIMP_PROFILE"))
      out += std::string(option.name) + "=" + value + " ";
  return out + "HOROVOD_FUSION_THRESHOLD=" + std::to_string(options.fusion_threshold) +
         (options.autotune ? " HOROVOD_AUTOTUNE=1" : "") + " ranks per host=" + std::to_string(ranks_per_host);
}

// CRIMP_PLAN_FILE; the same for all communicators, so that it means the file that it meant first.
std::shared_ptr<const PlanFile> plan_file(const std::string& name) {
  static const auto file = name.empty() ? nullptr : std::make_shared<const PlanFile>(name);
  return file;
}

std::shared_ptr<RecordedPlans> recorded_plans() {
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const std::vector<PlanTurns>* const plans = Runtime::get().recorded_plans(rank);
  static const auto recorded = plans ? std::make_shared<RecordedPlans>(*plans) : nullptr;
  return recorded;
}

std::string late_line(std::size_t unmerged, std::size_t tensors, const Settings& settings) {
  return fmt::format(
      "CRIMP_MERGE={}: {} of {} tensors did not come within CRIMP_HOLD_MS={} ms of the first of their group and are "
      "merged no more (where they are only late, a larger CRIMP_HOLD_MS keeps them)",
      settings.merge, unmerged, tensors, settings.hold_ms);
}

// Of plans that are searched, and of what is late.
Leader leader_of(MPI_Comm comm, int ranks, const Options& options, int ranks_per_host) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  Leader leader;
  leader.here = rank == 0;
  leader.broadcast = [comm, rank, ranks](std::span<std::uint8_t> bytes) {
    MPI_Request request;
    check_mpi(PMPI_Ibcast(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, comm, &request), "MPI_Ibcast");
    wait_for(request, rank, ranks, [] {
      return "for rank 0's merge plan (CRIMP_MERGE=auto): rank 0 is late, stopped or dead, or its CRIMP_PLAN_FILE lies "
             "on a file system that hangs";
    });
  };
  leader.learnt = [] { return Runtime::get().report.learnt(); };
  leader.chosen = [](const SearchRecord& record) {
    logged("the plan that was chosen", [&] { log(LogLevel::info, record.line()); });
  };
  leader.warn = [](const std::string& problem) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true)) log(LogLevel::warn, problem);
  };
  leader.late = [here = leader.here](std::size_t unmerged, std::size_t tensors) {
    static std::atomic<bool> said[2] = {};
    if (said[here].exchange(true)) return;
    logged("tensors that are merged no more", [&] {  // on all ranks alike, more often than not: one line is enough
      log(here ? LogLevel::info : LogLevel::debug, late_line(unmerged, tensors, Runtime::get().settings()));
    });
  };
  if (leader.here) leader.recorded = recorded_plans();
  leader.codecs = Runtime::get().codecs_to_choose_from();
  const Settings& settings = Runtime::get().settings();
  if (leader.here) leader.file = plan_file(settings.plan_file);
  if (!leader.file) return leader;
  leader.key.ranks = ranks;
  leader.key.settings = settings_of(settings, options, ranks_per_host);
  return leader;
}

// Once a process, and by the first communicator's rank 0 alone where all ranks have met the same one first.
void say_unheld(MPI_Comm comm) {
  static std::atomic<bool> met{false};
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  if (met.exchange(true) || rank != 0) return;
  logged("CRIMP_MERGE", [] {
    log(LogLevel::warn,
        "CRIMP_MERGE has no effect with HOROVOD_CACHE_CAPACITY=0: tensors are held back in Horovod's ready bits, which "
        "it has of cached tensors only. Leave HOROVOD_CACHE_CAPACITY out");
  });
}

}  // namespace

constinit std::atomic<Observer*> Observer::made_{nullptr};

Observer& Observer::make() {
  static auto& observer = *new Observer;
  made_.store(&observer, std::memory_order_release);
  return observer;
}

bool Observer::in_its_thread() { return horovods; }

void Observer::detect() {
  horovods = true;  // its background thread makes the operations, anew where it is started again
  if (detected_.exchange(true)) return;
  Runtime::get().horovod_recognised();
}

int Observer::forget(MPI_Comm, int, void* negotiation, void*) {
  std::unique_ptr<Negotiation> gone(static_cast<Negotiation*>(negotiation));
  Observer& self = get();
  std::lock_guard lock(self.mutex_);
  if (std::erase(self.live_, gone.get())) logged("what was seen of Horovod", [&] { self.note(gone->record()); });
  return MPI_SUCCESS;
}

void Observer::note(const Record& record) {
  noted_.add(record);
  Runtime::get().report.section("horovod", noted_.json(), noted_.clause());
}

void Observer::finish() {
  std::lock_guard lock(mutex_);
  for (const Negotiation* negotiation : live_) note(negotiation->record());
  live_.clear();
}

Negotiation* Observer::find(MPI_Comm comm, bool make) {
  if (!detected() || comm == MPI_COMM_NULL) return nullptr;
  int keyval = keyval_.load(std::memory_order_acquire);
  if (keyval == MPI_KEYVAL_INVALID) {
    if (!make || PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &Observer::forget, &keyval, nullptr) != MPI_SUCCESS)
      return nullptr;
    keyval_.store(keyval, std::memory_order_release);
  }
  void* found = nullptr;
  int has = 0;
  PMPI_Comm_get_attr(comm, keyval, &found, &has);
  if (has || !make) return has ? static_cast<Negotiation*>(found) : nullptr;
  int size = 1, inter = 0;
  PMPI_Comm_test_inter(comm, &inter);
  PMPI_Comm_size(comm, &size);
  if (inter || size == 1) return nullptr;
  Runtime& runtime = Runtime::get();
  const int ranks_per_host = runtime.ranks_per_host(comm);
  const Options options = Options::from_environment(ranks_per_host);
  std::lock_guard lock(mutex_);
  // One threshold until Horovod has freed its last communicator, as it does before it is initialised again.
  auto threshold = threshold_.lock();
  if (!threshold) threshold_ = threshold = std::make_shared<std::int64_t>(options.fusion_threshold);
  MergePlan plan = runtime.merge_plan();
  // Of a library that was loaded late nobody has compared this rank's settings but the communicator's session.
  if (plan.searched() && runtime.late() && !runtime.known_session(comm)) plan = MergePlan();
  if (!plan.off() && options.cache_capacity == 0) say_unheld(comm);
  if (plan.searched()) searches_.store(true, std::memory_order_relaxed);
  auto* made = new Negotiation(size, options, plan, std::chrono::milliseconds(runtime.settings().hold_ms), threshold,
                               leader_of(comm, size, options, ranks_per_host));
  PMPI_Comm_set_attr(comm, keyval, made);
  live_.push_back(made);
  return made;
}

void Observer::before_allreduce(void* in_place, int words, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (type != MPI_LONG_LONG_INT || op != MPI_BAND || words <= 0) return;
  if (Negotiation* negotiation = find(comm, true))
    negotiation->hold({static_cast<std::int64_t*>(in_place), static_cast<std::size_t>(words)});
}

void Observer::after_allreduce(const void* result, int words, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  if (type != MPI_LONG_LONG_INT || (op != MPI_BAND && op != MPI_BOR) || words <= 0) return;
  Negotiation* negotiation = find(comm, true);
  if (!negotiation) return;
  const std::span bits(static_cast<const std::int64_t*>(result), static_cast<std::size_t>(words));
  op == MPI_BAND ? negotiation->ready_bits(bits) : negotiation->invalid_bits(bits);
}

void Observer::after_gatherv(MPI_Datatype sent, MPI_Comm comm) {
  if (sent != MPI_BYTE) return;
  // Programs gather bytes, too (mpi4py's objects). Horovod's coordinator first asks for bits, unless it has no cache.
  static const bool first = [] {
    const Options options = Options::from_environment(0);
    return options.cache_capacity == 0 || options.autotune;
  }();
  if (Negotiation* negotiation = find(comm, first)) negotiation->gathered();
}

void Observer::after_bcast(const void* bytes, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  if (type != MPI_BYTE || root != 0 || count <= 0) return;
  if (Negotiation* negotiation = find(comm, false)) negotiation->broadcast(bytes, static_cast<std::size_t>(count));
}

std::optional<Clock::time_point> Observer::times() const {
  if (!searches_.load(std::memory_order_relaxed)) return {};
  return Clock::now();
}

void Observer::called(std::optional<Clock::time_point> begin, int count, MPI_Datatype type, MPI_Comm comm) {
  if (!begin || type == MPI_LONG_LONG_INT) return;
  Negotiation* negotiation = find(comm, false);
  int each = 0;
  if (!negotiation || PMPI_Type_size(type, &each) != MPI_SUCCESS) return;
  negotiation->called(static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(each),
                      seconds(Clock::now() - *begin));
}

bool Observer::is_adasum(Dtype type, MPI_Comm comm) { return horovods && type == Dtype::f64 && !find(comm, false); }

std::shared_ptr<const Layout> Observer::data_call(const void* received, std::uint64_t count, Dtype type,
                                                  MPI_Comm comm) {
  Negotiation* negotiation = find(comm, false);
  if (!negotiation) return {};
  return negotiation->data_call(count, type, [&] { return pointer_attributes(received).on_device(); });
}

}  // namespace crimp::horovod
