// crimp run: the launcher with the preload and the settings.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iomanip>

#include "collective/algorithms.hpp"
#include "collective/codec_rules.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/plain_text.hpp"
#include "core/settings.hpp"
#include "elf_file.hpp"
#include "exit_code.hpp"
#include "host_file.hpp"
#include "job_parts.hpp"
#include "mpi_family.hpp"
#include "preloaded_library.hpp"
#include "schedule/merge_plan.hpp"
#include "setting_options.hpp"

extern char** environ;

namespace crimp::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::argument_invalid, what); }

bool is_here(const Launcher& launcher) {
  return launcher.kind != LauncherKind::unknown || launcher.version.find("not found") == launcher.version.npos;
}

// $MPIRUN, or a launcher of the program's MPI on the PATH; srun where there is no other.
std::pair<std::string, Launcher> find_launcher(MpiFamily program) {
  const char* const named = std::getenv("MPIRUN");
  if (named && *named) return {named, ask_launcher(named)};
  const bool any = program == MpiFamily::unknown || program == MpiFamily::mpi_5;
  const Launcher usual = ask_launcher("mpirun");
  if (is_here(usual) && (any || usual.family == program || usual.kind == LauncherKind::unknown))
    return {"mpirun", usual};
  for (const char* name : {"mpiexec.mpich", "mpiexec.hydra", "mpirun.openmpi", "srun"})
    if (const Launcher other = ask_launcher(name);
        is_here(other) && (any || other.family == program || other.kind == LauncherKind::slurm))
      return {name, other};
  return {"mpirun", usual};
}

// As the ranks of one part would, before anything is started. first: the first part's options.
void check_settings(const Arguments& options, const Arguments& first) {
  std::vector<std::string> all = settings_among(options);
  const auto add = [&](const std::string& entry) {
    const std::string name = entry.substr(0, entry.find('=') + 1);
    if (std::none_of(all.begin(), all.end(), [&](const std::string& text) { return text.starts_with(name); }))
      all.push_back(entry);
  };
  for (const std::string& text : settings_among(first, true)) add(text);
  for (char** entry = environ; *entry; ++entry) add(*entry);
  std::vector<char*> environment;
  for (std::string& text : all) environment.push_back(text.data());
  environment.push_back(nullptr);
  std::vector<Complaint> complaints;
  const Settings settings = read_settings(environment.data(), complaints);
  for (const auto& c : complaints) {
    if (c.illegal) refuse(c.text);
    std::fprintf(stderr, "crimp run: %s\n", c.text.c_str());
  }
  if (std::error_code none;
      !settings.replay.empty() && (!fs::exists(settings.replay, none) || fs::is_directory(settings.replay, none)))
    refuse("run: CRIMP_REPLAY (--replay) is '" + settings.replay +
           "', which is no file here; legal is one that CRIMP_REPORT wrote");
  CodecRules codecs;
  codecs.read(settings, [](const std::string& text) { refuse(text); });
  static_cast<void>(MergePlan(settings.merge));
  check_algorithm(settings, codecs.codec().get(), 2);
}

// Launchers hand the ranks' standard error on through pipes, so that rank 0 does not know of this terminal.
void set_status(const std::string& given) {
  std::string value = given.empty() ? (::isatty(STDERR_FILENO) ? "live" : "stderr") : given;
  Settings as;
  for (const Option& option : option_table())
    if (option.name == std::string_view("CRIMP_STATUS") && option.set(as, value)) value = as.status;  // words for words
  if (value != "stderr" && value != "live" && value != "off") value = fs::absolute(value).string();
  setenv("CRIMP_STATUS", value.c_str(), 1);
}

// What a job before has left is no answer about this one. Of another file nothing is removed, nor of a link.
void remove_old_status(const char* named) {
  const fs::path file = named ? named : "";
  std::error_code none;
  if (!file.is_absolute() || !fs::is_regular_file(fs::symlink_status(file, none))) return;
  std::string begin;
  std::ifstream(file) >> std::setw(8) >> begin;
  if (begin == "crimp:" || begin == "crimp") fs::remove(file, none);
}

void check_families(const MpiOfFile& wanted, const std::string& program, const std::string& mpirun,
                    const Launcher& launcher) {
  if (wanted.family == MpiFamily::unknown || wanted.family == MpiFamily::mpi_5 ||
      launcher.family == MpiFamily::unknown || wanted.family == launcher.family)
    return;
  refuse("run: " + program + " needs " + wanted.soname + ", which is " + name_of(wanted.family) + "'s, but " + mpirun +
         " is " + name_of(launcher.family) + "'s (" + launcher.version +
         "): every rank would be alone in a job of its own. Name a launcher of " + name_of(wanted.family) +
         " in MPIRUN");
}

void warn_of_own_mpi(const std::string& program) {
  const auto calls = read_calls(in_path(program));
  if (!calls || !calls->has_own_mpi) return;
  std::fprintf(stderr,
               "crimp run: %s has an MPI of its own linked in (statically), which no preload reaches: nothing of it is "
               "compressed; link it with the shared MPI library\n",
               program.c_str());
}

}  // namespace

// The settings that have an option. The others are variables, or lines of --config.
constexpr const char* kSettings[] = {
    "CRIMP_PROFILE",   "CRIMP_CODEC",   "CRIMP_RULES",  "CRIMP_ALGORITHM", "CRIMP_QUALITY",        "CRIMP_MERGE",
    "CRIMP_PLAN_FILE", "CRIMP_CONTROL", "CRIMP_LADDER", "CRIMP_PROGRESS",  "CRIMP_ERROR_FEEDBACK", "CRIMP_MIN_COUNT",
    "CRIMP_THREADS",   "CRIMP_CONFIG",  "CRIMP_LOG",    "CRIMP_REPORT",    "CRIMP_TRACE",          "CRIMP_REPLAY"};

int run(Arguments arguments) {
  std::string library, status, hosts;
  bool dry_run = false;
  CommandLine app(
      "Starts an MPI program with Crimp preloaded in every rank, by $MPIRUN or a launcher of its MPI on the PATH: mpirun of\n"
      "Open MPI, mpiexec of MPICH or Intel MPI, srun. Its exit code is the launcher's.\n\n"
      "  crimp run [OPTIONS] [LAUNCHER OPTIONS] -- PROGRAM [ARGUMENTS]",
      "crimp run");
  app.help_flag("--help", "Print this help and exit");  // -h would swallow mpirun's -host
  app.allow_others();
  const SettingOptions settings_given(app, kSettings);
  const auto shows_status =
      app.option(
             "--status", status,
             "Sets CRIMP_STATUS: one live line on this terminal while the job runs, a line every 10 s where there is none; "
             "or a file, which crimp status shows")
          .value_optional()
          .completes("CRIMP_STATUS");
  const auto hosts_named = app.option(
      "--hostfile", hosts,
      "A file of hosts, a line each: HOST, HOST:SLOTS or HOST slots=SLOTS; the launcher is told in its own form");
  app.option("--library", library,
             "The libcrimp.so to preload; without: the one for the program's MPI, as the program or the launcher says");
  app.flag("--dry-run", dry_run, "Print the command, start nothing");
  app.footer(
      "Everything else in front of -- goes to the launcher as it is. All CRIMP_* variables of the environment are passed to the ranks.\n"
      "An existing LD_PRELOAD (or -x LD_PRELOAD=...) is kept, in front of Crimp: sanitizers insist on the first place, and a\n"
      "profiler there sees every call. Only an MPI library in it is put behind Crimp, because it would hide Crimp.\n"
      "  crimp run -np 4 --codec 3lc --oversubscribe -- ./train --epochs 3");

  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  const Arguments program(mark == arguments.end() ? mark : mark + 1, arguments.end());
  arguments.erase(mark, arguments.end());
  if (const auto code = app.parse(arguments)) return *code;
  if (program.empty())
    refuse(
        "run: the program is missing; it stands behind '--', as in: crimp run -np 4 --codec 3lc -- ./program arguments");

  settings_given.to_environment();
  if (shows_status.given()) set_status(status);
  const std::vector<Part> parts = parts_of(app.others(), program);
  const auto differ = [&](std::size_t i) {  // a part's settings from the first one's
    const Arguments &own = parts[i].options, &first = parts[0].options;
    return !settings_among(own).empty() || settings_among(first) != settings_among(first, true);
  };
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (i == 0 || differ(i)) check_settings(parts[i].options, parts[0].options);
  if (hosts_named.given() && hosts.empty()) refuse("run: --hostfile names no file");

  if (!library.empty() && !fs::exists(library)) refuse("run: --library " + library + " does not exist");
  // What a program names as its linker is run with it, and not to print a line.
  const MpiOfFile wanted = mpi_of_file(program[0], dry_run ? Linker::own : Linker::of_file);
  const auto [mpirun, launcher] = find_launcher(wanted.family);
  check_families(wanted, program[0], mpirun, launcher);
  const MpiFamily family = wanted.family == MpiFamily::unknown ? launcher.family : wanted.family;
  library = fs::absolute(library.empty() ? library_for(family, wanted.soname, mpirun) : fs::path(library))
                .lexically_normal()
                .string();
  const MpiOfFile built = check_library(library, family);
  warn_of_own_mpi(program[0]);
  if (library.find_first_of(": ") != library.npos)
    refuse("run: '" + library +
           "' cannot be preloaded, because LD_PRELOAD splits at spaces and colons; use a link to it (--library)");

  const Arguments& options = parts.front().options;
  const bool several = parts.size() > 1 || std::find(options.begin(), options.end(), "--multi-prog") != options.end();
  if (several && launcher.kind == LauncherKind::slurm)
    refuse("run: several programs in one job (':', --multi-prog) are not possible with srun; start it yourself, with " +
           ("--export=ALL,LD_PRELOAD=" + library) + " and the CRIMP_* variables in the environment");
  Arguments command{mpirun};
  if (!hosts.empty()) {
    const Arguments as_launcher = host_options(hosts, launcher.kind);
    command.insert(command.end(), as_launcher.begin(), as_launcher.end());
  }
  const Arguments words_of_parts = with_preloads(parts, library, mpi_to_preload(built, wanted, mpirun), launcher.kind);
  command.insert(command.end(), words_of_parts.begin(), words_of_parts.end());

  if (dry_run) {
    for (std::size_t i = 0; i < command.size(); ++i) std::printf("%s%s", i ? " " : "", in_shell(command[i]).c_str());
    std::printf("\n");
    return 0;
  }
  if (shows_status.given()) remove_old_status(std::getenv("CRIMP_STATUS"));
  std::vector<char*> words;
  for (auto& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  const char* const named = std::getenv("MPIRUN");
  std::fprintf(stderr, "crimp run: '%s' could not be started: %s; %s\n", words[0], std::strerror(errno),
               named && *named ? "MPIRUN names it, and legal is a launcher's name or path"
                               : "put mpirun on the PATH or its path in MPIRUN");
  return kNotStarted;
}

}  // namespace crimp::tools
