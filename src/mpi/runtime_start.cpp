// How a job begins: settings read, compared and checked, hosts found, what Crimp will do announced.
#include <dlfcn.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "backend/device_plugin.hpp"
#include "codec/simd.hpp"
#include "collective/algorithms.hpp"
#include "collective/node.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/float_environment.hpp"
#include "core/log.hpp"
#include "core/private_directory.hpp"
#include "core/stall.hpp"
#include "core/types.hpp"
#include "mpi/mpi_agreement.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/own_handles.hpp"
#include "mpi/runtime.hpp"
#include "mpi/world_ranks.hpp"

extern char** environ;

namespace crimp {

void Runtime::agree() {
  const auto read = [this](std::span<const SettingText> of_rank_0) {
    std::vector<Complaint> known;
    Settings settings = read_settings(environ, known, of_rank_0);
    settings.replayed = settings_.replayed;
    return settings;
  };
  agreement_ = settings_agree_from(
      world_rank_, world_size_, settings_,
      "in MPI_Init for the others to compare settings with. Likely a rank runs without Crimp: LD_PRELOAD must reach all ranks "
      "(mpirun -x LD_PRELOAD=..., crimp run), or all must be linked with it",
      read);
  differ_ = !agreement_.same;
  together_ = agreement_.one_build;
}

namespace {

// Of what codecs keep of tensors, in which settings contradict each other.
void complain_of_memory(const Settings& settings, const CodecRules& codecs, std::vector<Complaint>& complaints) {
  if (settings.residual != "float32") {
    const Codec* const codec = codecs.codec().get();
    const FeedbackKind kind = codec ? codec->feedback().kind : FeedbackKind::residual;
    if (!settings.error_feedback || kind != FeedbackKind::residual)
      complaints.push_back({"CRIMP_RESIDUAL=" + settings.residual + " is not used with " +
                                (settings.error_feedback ? "the memory " + std::string(name_of(kind)) + " of codec " +
                                                               codec->spec() + ": only residuals can be kept so"
                                                         : "CRIMP_ERROR_FEEDBACK=0: no residuals are kept"),
                            false});
  }
  if (settings.error_feedback) return;
  codecs.any_codec([&](const Codec& codec) {
    const FeedbackKind kind = codec.feedback().kind;
    if (kind != FeedbackKind::momentum && kind != FeedbackKind::average) return false;
    complaints.push_back({"the memory " + std::string(name_of(kind)) + " of codec " + codec.spec() +
                              " is not used with CRIMP_ERROR_FEEDBACK=0: momentum is then the optimizer's",
                          false});
    return true;
  });
}

// Of settings that the algorithm which is named does not ask for, unless the program names another one
// (crimp_set_algorithm) or a record of a job says which were taken.
template <class Unused>
void complain_of_algorithm(const Settings& settings, const Unused& unused) {
  const AlgorithmEntry* const named = find_algorithm(settings.algorithm);  // null: auto, or illegal
  if (!named || settings.codec == "none" || !settings.replay.empty()) return;
  const Settings defaults;
  const bool given = settings.profile == "off";  // else CRIMP_QUALITY may be the profile's
  const std::string why = "CRIMP_ALGORITHM=" + settings.algorithm;
  const char* const unless = ", unless the program names another one";
  unused(settings.quality != defaults.quality && given, "CRIMP_QUALITY",
         why + " says how calls go, and CRIMP_QUALITY what auto may take" + unless);
  unused(settings.radix != defaults.radix && !named->plan_relayed, "CRIMP_RADIX", why + " has no relays" + unless);
  unused(settings.node_size != defaults.node_size && named->plan, "CRIMP_NODE_SIZE",
         why + " has no nodes" + unless + "; the report counts them so all the same");
}

}  // namespace

void Runtime::read() {
  const auto refuse = [&](const std::string& text) {
    complaints_.push_back({text + place_in_file(settings_, environ, text), true});
  };
  codecs_.read(settings_, refuse);
  try {
    merge_plan_ = MergePlan(settings_.merge);
  } catch (const Error& e) {
    refuse(e.what());
  }
  const auto unused = [&](bool is, const char* name, const std::string& why) {
    if (is) complaints_.push_back({name + (" is not used: " + why), false});
  };
  // Bound: the machine has more.
  cpu_set_t bound;
  if (settings_.threads > 1 && ::sched_getaffinity(0, sizeof bound, &bound) == 0)
    if (const int here = CPU_COUNT(&bound); here < settings_.threads && here < ::sysconf(_SC_NPROCESSORS_ONLN))
      complaints_.push_back({"CRIMP_THREADS is " + std::to_string(settings_.threads) + ", but this rank is bound to " +
                                 std::to_string(here) + (here == 1 ? " processor" : " processors") +
                                 ", which they share: mpirun --map-by slot:PE=" + std::to_string(settings_.threads) +
                                 " or --bind-to none, srun --cpus-per-task, and no OMP_PROC_BIND",
                             false});
  const Settings defaults;
  unused(!settings_.plan_file.empty() && !merge_plan_.searched(), "CRIMP_PLAN_FILE",
         "there are plans to save with CRIMP_MERGE=auto only");
  unused(settings_.state_interval && settings_.state_dir.empty(), "CRIMP_STATE_INTERVAL",
         "CRIMP_STATE_DIR names no directory to save in");
  unused(settings_.hold_ms != defaults.hold_ms && settings_.merge == "off", "CRIMP_HOLD_MS",
         "nothing is held back without CRIMP_MERGE");
  const char* const uncontrolled = "no codec changes without CRIMP_CONTROL=delay";
  if (settings_.control == "off") {
    unused(settings_.ladder != defaults.ladder, "CRIMP_LADDER", uncontrolled);
    unused(settings_.delay_target != defaults.delay_target, "CRIMP_DELAY_TARGET", uncontrolled);
    unused(settings_.gain_floor != defaults.gain_floor, "CRIMP_GAIN_FLOOR", uncontrolled);
  }
  complain_of_memory(settings_, codecs_, complaints_);
  complain_of_algorithm(settings_, unused);
  if (settings_.simd != "auto") {
    try {
      choose_simd(settings_.simd);
    } catch (const Error& e) {
      refuse(std::string("CRIMP_SIMD: ") + e.what());
    }
  }
  try {
    check_algorithm(settings_, codecs_.codec().get(), world_size_);
  } catch (const Error& e) {
    refuse(e.what());
  }
  for (const auto& c : complaints_)
    if (c.illegal) illegal_rank_ = world_rank_;
}

void Runtime::read_replay() {
  if (settings_.replay.empty()) return;
  std::vector<std::string> warnings;
  try {
    replay_ = Replay::read(settings_.replay, settings_, world_size_, warnings);
    settings_.replayed = replay_->digest();
    if (!replay_->algorithm().empty()) report.section(Replay::kRepeated, replay_->repeated_json(), "");
  } catch (const std::exception& e) {
    complaints_.push_back({e.what(), true});
  }
  for (std::string& text : warnings) complaints_.push_back({std::move(text), false});
}

namespace {

// By Open MPI's extension, where this library has it. Its name is the same with other MPI libraries that have one.
bool mpi_is_cuda_aware() {
  const auto query = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  return query && query() == 1;
}

}  // namespace

void Runtime::leave_files_to_parents() {
  MPI_Comm parent = MPI_COMM_NULL;
  PMPI_Comm_get_parent(&parent);
  std::string names;
  const auto leave = [&](std::string& file, const char* name, const std::string& none) {
    if (file == none) return;
    names += (names.empty() ? "" : ", ") + std::string(name);
    file = none;
  };
  if (parent == MPI_COMM_NULL) return;
  const bool status_in_file = settings_.status != "stderr" && settings_.status != "live";
  leave(settings_.report, "CRIMP_REPORT", "");
  leave(settings_.trace, "CRIMP_TRACE", "");
  leave(settings_.state_dir, "CRIMP_STATE_DIR", "");
  settings_.state_interval = 0;
  leave(settings_.plan_file, "CRIMP_PLAN_FILE", "");
  if (status_in_file) leave(settings_.status, "CRIMP_STATUS", "off");
  if (!names.empty())
    complaints_.push_back(
        {"not used: " + names + ". These ranks were started by others (MPI_Comm_spawn), which write the same files",
         false});
}

void Runtime::find_hosts() {
  int alone = 0;
  host_of_rank_ = hosts_of_world(world_rank_, world_size_, &alone);
  if (alone == 0) return;
  complaints_.push_back(
      {"MPI (MPI_COMM_TYPE_SHARED) does not tell all ranks alike who shares their machine, as Open MPI where several "
       "machines have one host name: " +
           std::to_string(alone) +
           " ranks are nodes of their own here, and add nothing in shared memory. Give each machine or container a "
           "host name of its own",
       false});
}

void Runtime::start(bool world) {
  const FloatEnvironment environment;  // parameters of codecs are rounded to float32
  std::lock_guard lock(mutex_);
  if (started()) return;
  PMPI_Comm_rank(MPI_COMM_WORLD, &world_rank_);
  PMPI_Comm_size(MPI_COMM_WORLD, &world_size_);
  fault::set_rank(world_rank_);
  settings_ = read_settings(environ, complaints_);
  set_log(settings_.log, world_rank_);
  set_stall(settings_.stall_s);
  read_replay();
  world_start_ = world;
  int threads = MPI_THREAD_MULTIPLE;
  PMPI_Query_thread(&threads);
  one_thread_ = threads != MPI_THREAD_MULTIPLE;  // at a time
  together_ = world && world_size_ > 1;
  if (together_) agree();
  leave_files_to_parents();
  read();
  if (!settings_.state_dir.empty()) state_dir_ = PrivateDirectory(settings_.state_dir).path();
  set_device_plugin(settings_.cuda_plugin);
  cuda_aware_ = settings_.cuda_aware == "auto" ? mpi_is_cuda_aware() : settings_.cuda_aware == "1";
  if (together_) {
    // Illegal values are not in the digest: one on a single rank must switch all ranks off.
    const std::vector<std::uint64_t> illegal =
        gather_in_init({illegal_rank_ >= 0}, world_rank_, world_size_,
                       "in MPI_Init for the others to say whether their settings are legal. Likely one has died");
    const auto first = std::find(illegal.begin(), illegal.end(), 1);
    illegal_rank_ = first == illegal.end() ? -1 : static_cast<int>(first - illegal.begin());
    // A difference may be that value's: the rank has the default in its place, or another one's.
    if (illegal_rank_ >= 0) differ_ = false;
  }
  usable_ = settings_.enable && illegal_rank_ < 0 && !differ_;
  if (usable_ && together_) find_hosts();
  files_.agree(settings_, world_rank_, world_size_, together_);
  if (files_.report_wanted()) logged("how the job goes", [&] { report.keep_history(Clock::now()); });
  OwnHandle::free_in_finalize();
  if (!world) {
    // Who initialized MPI past us may finalize it past us; MPI_Finalize deletes MPI_COMM_SELF's attributes first.
    int keyval = MPI_KEYVAL_INVALID;
    check_mpi(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &Runtime::finish_late, &keyval, nullptr),
              "MPI_Comm_create_keyval");
    check_mpi(PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, this), "MPI_Comm_set_attr");
  }
  // A duplicate of a communicator is another communicator: nothing is copied.
  check_mpi(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &Runtime::forget_session, &keyval_, nullptr),
            "MPI_Comm_create_keyval");
  check_mpi(PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &Runtime::forget_nonblocking, &nonblocking_keyval_, nullptr),
            "MPI_Comm_create_keyval");
  // Of ranks among which there are no such nodes no communicator has any.
  if (usable_ && settings_.codec != "none" && useful(crimp::nodes_of(host_of_rank_, settings_.node_size)))
    private_world.open();
  workers_ = std::make_unique<Workers>(usable_ && settings_.codec != "none" ? settings_.threads : 1);
  if (world_rank_ == 0 || world_rank_ == illegal_rank_) announce();
  if (met_horovod_) compress_horovod();  // where MPI was initialized past us it comes before the first call
  files_.open(settings_, report);
  state_.store(State::running, std::memory_order_release);
}

void Runtime::horovod_recognised() {
  std::lock_guard lock(mutex_);
  met_horovod_ = true;
  compress_horovod();
}

void Runtime::compress_horovod() {
  if (codecs_.any() || settings_.codec != "auto" || !usable_) return;
  only_for_horovod_.store(true, std::memory_order_relaxed);
  codecs_.choose(kHorovodCodec);
  if (world_rank_ == 0)
    log(LogLevel::info, "Horovod recognised: its gradients are compressed with " + codecs_.codec()->spec() +
                            " (CRIMP_CODEC=none switches this off)");
}

void Runtime::announce() const {
  for (const auto& c : complaints_) log(c.illegal ? LogLevel::error : LogLevel::warn, c.text);
  if (world_rank_ != 0) return;
  if (differ_ && !agreement_.difference.empty()) log(LogLevel::error, agreement_.difference);
  if (const int taken = agreement_.taken; taken > 0 && illegal_rank_ < 0)
    log(LogLevel::info,
        std::to_string(taken) + (taken == 1 ? " rank was" : " ranks were") +
            " not given all of rank 0's settings, as happens where a launcher loses variables, and took them from it");
  if (settings_.help) log(LogLevel::info, "settings:\n" + options_as_text());
  const std::string version = std::string("version ") + CRIMP_VERSION + ", ";
  if (illegal_rank_ >= 0)
    log(LogLevel::error,
        version + "off because of " +
            (illegal_rank_ ? "a setting on rank " + std::to_string(illegal_rank_) : "the setting above") +
            ": every call passes through uncompressed");
  else if (differ_)
    log(LogLevel::error, version + "off because the settings differ: every call passes through uncompressed");
  else if (!settings_.enable) log(LogLevel::info, version + "off (CRIMP_ENABLE=0): every call passes through");
  else if (!codecs_.any())
    log(LogLevel::info,
        version +
            (settings_.codec == "none"
                 ? "nothing is compressed (CRIMP_CODEC=none)"
                 : "nothing is compressed until CRIMP_CODEC names a codec, as in CRIMP_CODEC=3lc (or Horovod is recognised)") +
            (settings_.profile == "off" ? "" : " (profile " + settings_.profile + ")"));
  else
    log(LogLevel::info,
        version + std::to_string(world_size_) + (world_size_ == 1 ? " rank" : " ranks") + ", MPI_Allreduce sums of " +
            std::to_string(settings_.min_count) + " or more floats are compressed with " + codecs_.codec()->spec() +
            (codecs_.ladder().empty()
                 ? ""
                 : ", and then as the network makes necessary (CRIMP_CONTROL=" + settings_.control + ")") +
            " (" + (settings_.profile == "off" ? "" : "profile " + settings_.profile + ", ") + simd_target() + ", " +
            std::to_string(settings_.threads) + (settings_.threads == 1 ? " thread)" : " threads)"));
  if (usable_ && codecs_.momentum())
    log(LogLevel::info,
        "the codec holds the training's momentum, so the optimizer's must be 0. Calls of fewer than " +
            std::to_string(settings_.min_count) +
            " elements have it where their tensors are named (crimp_allreduce, Horovod), calls on one rank never. Named "
            "tensors that are no parameters, as metrics, want CRIMP_RULES=<pattern>=none:memory=none ahead of others");
}

}  // namespace crimp
