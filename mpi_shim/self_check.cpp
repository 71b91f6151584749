#include "self_check.hpp"

#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>

#include "callers.hpp"
#include "core/environment.hpp"
#include "core/log.hpp"
#include "core/output_file.hpp"
#include "core/progress.hpp"
#include "mpi/runtime.hpp"
#include "other_mpi.hpp"

namespace crimp {
namespace {

std::string last_part(const std::string& file) { return file.substr(file.rfind('/') + 1); }

// The settings are read when Crimp starts, which it may never do.
bool may_warn() {
  if (environment_text("CRIMP_ENABLE") == "0") return false;
  const std::string level = Runtime::get().started() ? "" : environment_text("CRIMP_LOG");
  return level != "off" && level != "error";
}

// Some reduction of this process has come here.
bool any_came() {
  const JobProgress so_far = Runtime::get().report.progress();
  return so_far.compressed + so_far.passed > 0;
}

bool is_bypassed(const Caller& c) { return c.meant && c.past && !c.caught; }
// A tool was there first, which calls MPI in ways that relocations do not show.
bool is_tools(const Caller& c) { return c.meant && !c.past && !c.caught; }

const char* answer(const Caller& c) {
  return c.caught || (is_tools(c) && any_came()) ? "crimp"
         : is_bypassed(c)                        ? "bypassed"
         : c.meant                               ? "tool"
                                                 : "not linked";
}

std::atomic<bool> came_before_init{false};  // a sum has come here

constinit std::atomic<const OtherMpi*> unfit{nullptr};  // which makes this the wrong library; never freed
void keep(OtherMpi other) {
  if (other.module.empty()) other.module = program_file();
  unfit = new OtherMpi(std::move(other));
}

// For `crimp check`: pid, moment, answer, module, target, function; and the files that are loaded. past: the program
// has used MPI, and nothing of that came here.
void write_answers(const char* moment, const std::vector<Caller>& found, bool past = false) {
  const std::string name = environment_text("CRIMP_CHECK");
  if (name.empty()) return;
  const std::string begin = std::to_string(::getpid()) + '\t' + moment + '\t';
  std::string lines;
  for (const auto& c : found.empty() ? std::vector{next_caller()} : found)
    lines += begin + answer(c) + '\t' + c.module + '\t' + c.target + '\t' + std::string(c.function->name) + '\n';
  const std::string of_all = "\t\t\t" + std::string(kReductions[0].name) + '\n';
  if (past) lines += begin + "past" + of_all;
  if (const OtherMpi* const other = unfit)
    lines += begin + "unfit\t" + other->module + '\t' + other->file + '\t' + std::string(kReductions[0].name) + '\n';
  if (came_before_init && !Runtime::get().started()) lines += begin + "unstarted" + of_all;
  for (const auto& file : loaded_modules()) lines += begin + "loaded\t" + file + "\t\t\n";
  static bool told = false;
  const std::string why = append_to_file(name, lines);
  if (why.empty() || told || !may_warn()) return;
  told = true;
  log(LogLevel::warn, "CRIMP_CHECK: " + why);
}

bool first_rank() {
  return environment_number("OMPI_COMM_WORLD_RANK",
                            environment_number("PMIX_RANK", environment_number("PMI_RANK", 0))) == 0;
}

void warn_of_other_mpi(const OtherMpi& other) {
  if (!first_rank() || !may_warn()) return;
  log(LogLevel::warn,
      "off: " + own_file() + " is built for " + kOwnMpi + ", but the program's MPI is " + other.file +
          "; its calls go there as if Crimp were not loaded. `crimp run` takes the library that fits where the program itself stands behind --; for one that "
          "a script starts name the launcher of its MPI, under which alone its ranks are one job (MPIRUN=" +
          other.launcher + " crimp run ...)");
}

// Said where Crimp is switched off, too: it is the preload that harms.
void warn_of_caller(const OtherMpi& other) {
  if (!first_rank() || environment_text("CRIMP_LOG") == "off") return;
  log(LogLevel::error,
      "wrong library: " + other.module + " needs " + other.file + ", but " + own_file() + " is built for " + kOwnMpi +
          ", which takes its place under this preload, so that the program may crash, with CRIMP_ENABLE=0 too. Take the library for "
          "the program's MPI: by that MPI's launcher (MPIRUN=" +
          other.launcher + " crimp run ...), or under srun by name (crimp run --library)");
}

void warn_of_launcher() {
  if (unfit) return;  // then it is the library that does not fit
  const std::string says = launcher_of_another_mpi();
  if (says.empty() || !first_rank() || !may_warn()) return;
  log(LogLevel::warn, "every rank is alone in its MPI_COMM_WORLD, but " + says + "=" + environment_text(says.c_str()) +
                          ": the program's MPI is " + kOwnMpi + ", and the launcher is another MPI's");
}

// "MPI_Allreduce of a, b leads to c", of the first function of which that is so (what is there first has all of them);
// empty: of none.
std::string leads_elsewhere(const std::vector<Caller>& found, bool (*so)(const Caller&)) {
  std::string modules, target;
  const MpiFunction* function = nullptr;
  for (const auto& c : found)
    if (c.function->handling == Handling::compressed && so(c) && (!function || function == c.function)) {
      function = c.function;
      modules += (modules.empty() ? "" : ", ") + last_part(c.module);
      target = c.target;
    }
  return function ? std::string(function->name) + " of " + modules + " leads to " + target : "";
}

void warn(const std::vector<Caller>& found) {
  static bool warned = false;
  const std::string what = leads_elsewhere(found, is_bypassed);
  if (what.empty() || warned || !first_rank() || !may_warn()) return;
  warned = true;
  log(LogLevel::warn, "loaded but bypassed: " + what +
                          ", which was there first (mpi4py imported before?); load that later, or preload " +
                          own_file() + " instead");
}

// At the end: where a tool was there first, whether it has handed anything on.
void warn_of_tools(const std::vector<Caller>& found) {
  const std::string what = leads_elsewhere(found, is_tools);
  if (what.empty() || any_came() || !first_rank() || !may_warn()) return;
  log(LogLevel::warn, what + " first, and no reduction has come from there to " + own_file() +
                          "; where the program has called any, load that later");
}

pid_t watched = 0;  // its forked children have no MPI

// MPI was initialized, and neither that nor any sum came here.
void warn_of_names() {
  if (!first_rank() || !may_warn()) return;
  log(LogLevel::warn,
      "loaded but bypassed: the program has used MPI and called nothing of " + own_file() +
          ". Where it looks MPI up by name when it runs (dlopen, ctypes, Julia), it takes Crimp if it " +
          "opens that file in place of libmpi");
}

// "MPI_Allreduce leads here from a, b; MPI_Iallreduce from b"
std::string lead_here(const std::vector<Caller>& found) {
  std::string all;
  for (const auto& function : kReductions) {
    std::string modules;
    for (const auto& c : found)
      if (c.function == &function && function.handling == Handling::compressed && c.caught)
        modules += (modules.empty() ? "" : ", ") + last_part(c.module);
    if (modules.empty()) continue;
    all += (all.empty() ? "" : "; ") + std::string(function.name) + (all.empty() ? " leads here from " : " from ") +
           modules;
  }
  return all;
}

template <class Look>
void quietly(Look look) noexcept {
  try {
    look();
  } catch (const std::exception&) {  // out of memory: nothing can be said
  }
}

// When the library is loaded, and when the process ends. A process that does not use MPI is left alone.
void look(const char* moment) {
  int initialized = 0;
  PMPI_Initialized(&initialized);
  if (!initialized && environment_text("CRIMP_CHECK").empty()) return;
  const auto found = callers();
  const bool any = std::any_of(found.begin(), found.end(), [](const Caller& c) {
    return c.function->handling == Handling::compressed && (c.meant || c.caught);
  });
  const bool end = std::string_view(moment) == "end";
  const bool past = initialized && !any && end && !Runtime::get().started() && ::getpid() == watched;
  write_answers(moment, found, past);
  if (!initialized) return;
  if (any) warn(found);
  if (any && end) warn_of_tools(found);
  if (past) warn_of_names();
}

void look_behind() {
  OtherMpi other = find_other_mpi();
  if (!other_mpi) return;
  warn_of_other_mpi(other);
  if (environment_text("CRIMP_CHECK").empty()) return;
  keep(std::move(other));
  write_answers("load", {});
}

__attribute__((constructor)) void watch() {
  note_scope();
  watched = ::getpid();
  quietly(look_behind);
  if (other_mpi) return;
  quietly([] { look("load"); });
  std::atexit([] { quietly([] { look("end"); }); });
}

}  // namespace

#ifdef CRIMP_HIGHWAY
const char* highway_missing();  // the library's name where it is (highway.cpp), else null
#else
const char* highway_missing() { return nullptr; }
#endif

void check_before_init() noexcept {
  int initialized = 0;
  if (came_before_init) return;
  PMPI_Initialized(&initialized);
  if (initialized || came_before_init.exchange(true)) return;
  quietly([] {
    write_answers("call", callers());
    if (!first_rank() || !may_warn()) return;
    log(LogLevel::warn,
        "off: a sum has come before MPI_Init, where nothing is compressed. What uses MPI by sessions alone (MPI_Session_init) is not "
        "compressed, and has no report; call MPI_Init (or MPI_Init_thread) first");
  });
}

void check_caller() noexcept {
  if (unfit) return;
  quietly([] {
    OtherMpi other = find_callers_mpi();
    if (other.file.empty()) return;
    keep(std::move(other));
    warn_of_caller(*unfit);
    write_answers("call", callers());
  });
}

void check_at_start() noexcept {
  quietly([] {
    const auto found = callers();
    write_answers("start", found);
    warn_of_launcher();
    if (const char* const library = Runtime::get().compressing() ? highway_missing() : nullptr)
      log(LogLevel::warn, std::string(library) + " is not found on this rank's machine: its codecs use no more than " +
                              "every processor has, and take several times as long");
    const std::string caught = lead_here(found);
    if (first_rank() && !caught.empty()) log(LogLevel::info, caught);
    const std::string tools = leads_elsewhere(found, is_tools);
    if (first_rank() && !tools.empty()) log(LogLevel::info, tools + " first");
    warn(found);
  });
}

}  // namespace crimp
