#include "mpi/runtime.hpp"

#include <algorithm>
#include <map>

#include "codec/simd.hpp"
#include "collective/node.hpp"
#include "core/digest.hpp"
#include "core/log.hpp"
#include "core/reserve.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/nonblocking.hpp"
#include "mpi/session.hpp"
#include "mpi/world_ranks.hpp"

namespace crimp {

Runtime::Runtime() = default;

constinit std::atomic<Runtime*> Runtime::made_{nullptr};

Runtime& Runtime::make() {
  static auto& runtime = *new Runtime;
  made_.store(&runtime, std::memory_order_release);
  return runtime;
}

std::vector<std::vector<int>> Runtime::nodes_of(const std::vector<int>& world_ranks) const {
  if (!private_world.is_open()) return {};
  return crimp::nodes_of(hosts_of(world_ranks), settings_.node_size);
}

std::uint64_t Runtime::group_of(const std::vector<int>& world_ranks) const {
  return crimp::group_of(world_ranks, hosts_of(world_ranks));
}

std::vector<int> Runtime::hosts_of(const std::vector<int>& world_ranks) const {
  std::vector<int> hosts;
  if (host_of_rank_.empty()) return hosts;
  for (const int r : world_ranks) {
    if (r < 0) return {};
    hosts.push_back(host_of_rank_[static_cast<std::size_t>(r)]);
  }
  return hosts;
}

int Runtime::ranks_per_host(MPI_Comm comm) const {
  if (host_of_rank_.empty()) return 0;
  std::map<int, int> ranks;
  for (const int r : world_ranks(comm))
    if (r >= 0) ++ranks[host_of_rank_[static_cast<std::size_t>(r)]];
  const auto other =
      std::find_if(ranks.begin(), ranks.end(), [&](const auto& host) { return host.second != ranks.begin()->second; });
  return ranks.empty() || other != ranks.end() ? 0 : ranks.begin()->second;
}

PassReason Runtime::why_off() const {
  if (!switched_on.load(std::memory_order_relaxed) || !settings_.enable) return PassReason::off;
  if (differ_) return PassReason::settings_differ;
  return usable_ ? PassReason::no_codec : PassReason::off;
}

int Runtime::forget_session(MPI_Comm, int, void* session, void*) {
  // MPI may hold a lock of its own, and other ranks may be anywhere: what follows is local.
  Runtime& self = get();
  auto* s = static_cast<Session*>(session);
  {
    std::lock_guard lock(self.mutex_);
    if (!self.sessions_.erase(s)) return MPI_SUCCESS;
  }
  self.end(s);
  return MPI_SUCCESS;
}

void Runtime::forget(MPI_Comm comm) {
  if (!running()) return;
  void* session = nullptr;
  int has = 0;
  check_mpi(PMPI_Comm_get_attr(comm, keyval_, &session, &has), "MPI_Comm_get_attr");
  if (has) check_mpi(PMPI_Comm_delete_attr(comm, keyval_), "MPI_Comm_delete_attr");
}

void Runtime::end(Session* session) {
  session->save_last();
  logged("what a communicator's calls were", [&] { session->note_in(report); });
  delete session;
}

CommunicatorNumbers Runtime::count(const std::vector<int>& world_ranks) {
  const auto* const bytes = reinterpret_cast<const char*>(world_ranks.data());
  const bool whole = world_ranks.size() == static_cast<std::size_t>(world_size_) &&
                     std::find(world_ranks.begin(), world_ranks.end(), -1) == world_ranks.end();
  std::lock_guard lock(mutex_);
  CommunicatorNumbers numbers{communicators_[digest({bytes, world_ranks.size() * sizeof(int)})]++, std::nullopt};
  if (whole) numbers.of_world = of_world_++;
  return numbers;
}

Context Runtime::context() {
  return {settings_,
          legal(),
          cuda_aware_,
          codecs_,
          *workers_,
          files_.trace(),
          state_dir_,
          report,
          models,
          private_world,
          files_.report_wanted(),
          files_.tensors_wanted(),
          replay_ ? &*replay_ : nullptr,
          [this](const std::vector<int>& ranks) { return count(ranks); },
          [this](const std::vector<int>& ranks) { return nodes_of(ranks); },
          [this](const std::vector<int>& ranks) { return group_of(ranks); }};
}

Session* Runtime::session(MPI_Comm comm, PassReason* why, const AllreduceRequest* request) {
  if (!running()) {
    *why = PassReason::off;
    return nullptr;
  }
  void* found = nullptr;
  int has = 0;
  check_mpi(PMPI_Comm_get_attr(comm, keyval_, &found, &has), "MPI_Comm_get_attr");
  if (!has) {
    fill_reserve();
    int inter = 0, size = 1, rank = 0;
    check_mpi(PMPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
    if (!inter) check_mpi(PMPI_Comm_size(comm, &size), "MPI_Comm_size");
    if (inter || size == 1) {
      *why = PassReason::communicator;
      return nullptr;
    }
    check_mpi(PMPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    if (!insist([&] { return of_this_world(comm); })) {
      *why = PassReason::unprepared;
      return nullptr;
    }
    auto made = Session::make(insist([&] { return context(); }), comm, rank, size, request);
    {
      std::lock_guard lock(mutex_);
      insist([&] { sessions_.insert(made.get()); });  // the other ranks have theirs
    }
    if (const int rc = PMPI_Comm_set_attr(comm, keyval_, made.get()); rc != MPI_SUCCESS) {
      std::lock_guard lock(mutex_);
      sessions_.erase(made.get());
      check_mpi(rc, "MPI_Comm_set_attr");
    }
    found = made.release();
  }
  auto* session = static_cast<Session*>(found);
  if (session->usable()) return session;
  *why = PassReason::settings_differ;
  return nullptr;
}

int Runtime::forget_nonblocking(MPI_Comm, int, void* sums, void*) {
  Runtime& self = get();
  std::shared_ptr<NonblockingSums> last;
  std::lock_guard lock(self.mutex_);
  if (const auto found = self.nonblocking_.find(sums); found != self.nonblocking_.end()) {
    last = std::move(found->second);  // sums under way still have it
    self.nonblocking_.erase(found);
    last->freed();
  }
  return MPI_SUCCESS;
}

std::shared_ptr<NonblockingSums> Runtime::nonblocking(MPI_Comm comm, PassReason* why) {
  if (late() || !running()) {
    *why = PassReason::unprepared;
    return nullptr;
  }
  void* found = nullptr;
  int has = 0;
  check_mpi(PMPI_Comm_get_attr(comm, nonblocking_keyval_, &found, &has), "MPI_Comm_get_attr");
  if (!has) {
    fill_reserve();
    int inter = 0, size = 1, rank = 0;
    check_mpi(PMPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter");
    if (!inter) check_mpi(PMPI_Comm_size(comm, &size), "MPI_Comm_size");
    if (!inter && size > 1) {
      check_mpi(PMPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
      if (!insist([&] { return of_this_world(comm); })) {
        *why = PassReason::unprepared;
        return nullptr;
      }
      auto made = insist([&] { return NonblockingSums::make(context(), comm, rank, size); });
      found = made.get();
      {
        std::lock_guard lock(mutex_);
        insist([&] { nonblocking_.emplace(found, made); });
      }
      if (const int rc = PMPI_Comm_set_attr(comm, nonblocking_keyval_, found); rc != MPI_SUCCESS) {
        std::lock_guard lock(mutex_);
        nonblocking_.erase(found);
        check_mpi(rc, "MPI_Comm_set_attr");
      }
    }
  }
  if (!found) {
    *why = PassReason::communicator;
    return nullptr;
  }
  std::lock_guard lock(mutex_);
  return nonblocking_.at(found);
}

Session* Runtime::known_session(MPI_Comm comm) {
  if (!running() || comm == MPI_COMM_NULL) return nullptr;
  void* found = nullptr;
  int has = 0;
  check_mpi(PMPI_Comm_get_attr(comm, keyval_, &found, &has), "MPI_Comm_get_attr");
  auto* session = has ? static_cast<Session*>(found) : nullptr;
  return session && session->usable() ? session : nullptr;
}

int Runtime::finish_late(MPI_Comm, int, void*, void*) {
  get().finish();
  return MPI_SUCCESS;
}

void Runtime::finish() noexcept {
  std::set<Session*> left;
  {
    std::lock_guard lock(mutex_);
    if (!running()) return;
    // Attributes of communicators that the program never frees are not deleted by MPI; those that are find their
    // session gone. A callback of MPI_Finalize's may still ask for one, and gets none.
    left.swap(sessions_);
    nonblocking_.clear();
    state_.store(State::finished, std::memory_order_release);
  }
  logged("what is known of communicators", [&] {
    for (Session* s : left) end(s);
    private_world.close();
  });
  logged("what came of CRIMP_RULES", [&] {
    if (CodecRules::Use use = codecs_.use(); usable_ && codecs_.any() && settings_.rules != Settings().rules)
      report.rules(std::move(use.idle), std::move(use.first));
  });
  files_.end_status();  // which says what the summary is made of, too
  logged("the summary", [&] {
    if (world_rank_ == 0 && usable_ && (codecs_.any() || report.compressed_any()))
      log(LogLevel::info, report.summary());
  });
  logged("CRIMP_MERGE", [&] { say_unmerged(); });
  files_.write([this](const std::vector<std::string>& of_ranks) { return report_text(of_ranks); });
  if (NonblockingSums::outstanding() == 0) workers_.reset();
  else static_cast<void>(workers_.release());
}

void Runtime::say_unmerged() const {
  if (world_rank_ != 0 || !usable_ || settings_.merge == "off" || met_horovod_) return;
  log(LogLevel::info,
      "CRIMP_MERGE is not used: rank 0 has met no Horovod that uses MPI; under Horovod set HOROVOD_CONTROLLER=mpi and "
      "HOROVOD_CPU_OPERATIONS=mpi, elsewhere leave it out");
}

std::string Runtime::report_text(const std::vector<std::string>& of_ranks) const {
  const bool on = usable_ && (codecs_.any() || report.compressed_any());
  return Report::of_job(settings_, world_size_, simd_target(), on ? "on" : text_of(why_off()), of_ranks,
                        crimp::nodes_of(host_of_rank_, settings_.node_size).size());
}

}  // namespace crimp
