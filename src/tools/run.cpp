// crimp run: the launcher with the preload and the settings.
#include <mpi.h>
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
#include "mpi_family.hpp"
#include "schedule/merge_plan.hpp"
#include "setting_options.hpp"

extern char** environ;

namespace crimp::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::argument_invalid, what); }

fs::path find_library() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  std::string tried;
  for (const char* place : {CRIMP_LIBRARIES, "../lib", "..", "."}) {
    const fs::path candidate = (here / place / "libcrimp.so").lexically_normal();
    if (fs::exists(candidate)) return candidate;
    // Distributions keep the name without a number to those who link.
    if (const fs::path numbered = candidate.parent_path() / CRIMP_SONAME; fs::exists(numbered)) return numbered;
    tried += (tried.empty() ? "" : ", ") + candidate.string();
  }
  refuse("libcrimp.so was not found (tried " + tried + "); give its place with --library");
}

#ifdef OMPI_MAJOR_VERSION
constexpr MpiFamily kFirstFamily = MpiFamily::open_mpi;
#else
constexpr MpiFamily kFirstFamily = MpiFamily::mpich;
#endif

// An MPI library in the installation that a launcher belongs to; empty: it is not there.
fs::path beside_launcher(const std::string& mpirun, const std::string& soname) {
  const fs::path named = in_path(mpirun);
  std::error_code none;
  if (named.empty()) return {};
  for (const fs::path& launcher : {fs::absolute(named, none), fs::canonical(named, none)})
    for (const char* libraries : {"lib", "lib/release"}) {
      const fs::path candidate = launcher.parent_path().parent_path() / libraries / soname;
      if (!launcher.empty() && fs::exists(candidate, none)) return candidate.lexically_normal();
    }
  return {};
}

// The library for a program's MPI: the first one, or crimp/SONAME/libcrimp.so beside it. Where the soname is not known,
// the one whose MPI is found here.
fs::path library_for(MpiFamily family, const std::string& soname, const std::string& mpirun) {
  const fs::path first = find_library(), others = first.parent_path() / "crimp";
  if (!soname.empty() && fs::exists(others / soname / "libcrimp.so")) return others / soname / "libcrimp.so";
  if (family == MpiFamily::unknown || family == kFirstFamily) return first;
  fs::path any;
  for (const char* name : {"libmpi.so.12", "libmpich.so.12"}) {
    const fs::path candidate = others / name / "libcrimp.so";
    if (family != MpiFamily::mpich || !fs::exists(candidate)) continue;
    any = candidate;
    if (!beside_launcher(mpirun, name).empty()) return candidate;
    if (mpi_of_file(candidate.string(), Linker::own).found) return candidate;
  }
  if (!any.empty()) return any;
  refuse("run: the program's MPI is " + std::string(name_of(family)) +
         ", and this Crimp was built without a library for it (CMake's CRIMP_MPICH)");
}

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

// LD_PRELOAD is searched from left to right. Libraries that are there already stay in front: sanitizers insist on it,
// and a profiler there sees every call and reaches Crimp through PMPI_Allreduce. Only an MPI library itself must come
// behind, or it would hide Crimp.
std::string preload(const std::string& library, const std::string& existing) {
  std::vector<std::string> all;
  std::size_t at = 0;
  while (at < existing.size()) {
    const std::size_t end = std::min(existing.find_first_of(": ", at), existing.size());
    if (end > at) all.push_back(existing.substr(at, end - at));
    at = end + 1;
  }
  std::erase(all, library);
  const auto is_mpi = [](const std::string& path) {
    const std::string name = fs::path(path).filename().string();
    return name.starts_with("libmpi.so") || name.starts_with("libmpich.so") || name.starts_with("libmpi_");
  };
  all.insert(std::find_if(all.begin(), all.end(), is_mpi), library);
  std::string text;
  for (const auto& path : all) text += (text.empty() ? "" : ":") + path;
  return text;
}

// What launcher's options set of CRIMP_*, as NAME=VALUE. of_all: for all of a job's programs, unlike Hydra's -env.
std::vector<std::string> settings_among(const Arguments& options, bool of_all = false) {
  std::vector<std::string> found;
  for (std::size_t i = 1; i < options.size(); ++i) {
    const bool of_hydra = options[i - 1] == "-genv" || (options[i - 1] == "-env" && !of_all);
    if (!options[i].starts_with("CRIMP_") || (options[i - 1] != "-x" && !of_hydra)) continue;
    if (options[i].find('=') != std::string::npos) found.push_back(options[i]);
    else if (of_hydra && i + 1 < options.size()) found.push_back(options[i] + "=" + options[i + 1]);
  }
  return found;
}

// One of a job's programs, and what the launcher is told of it alone.
struct Part {
  Arguments options, program;
};

// Behind a ':' stand options in front of the program. How many values each has only the launcher knows, so they end
// where something stands that can be started.
std::vector<Part> parts_of(Arguments options, const Arguments& words) {
  const auto is_program = [](const std::string& word) {
    std::error_code none;
    const std::string file = word.starts_with('-') ? "" : in_path(word);
    return fs::is_regular_file(file, none) && ::access(file.c_str(), X_OK) == 0;
  };
  std::vector<Part> parts{{std::move(options), {}}};
  bool in_program = true;
  for (const std::string& word : words) {
    if (word == ":") {
      parts.emplace_back();
      in_program = false;
      continue;
    }
    in_program = in_program || is_program(word);
    (in_program ? parts.back().program : parts.back().options).push_back(word);
  }
  return parts;
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

// Takes what sets LD_PRELOAD out of Hydra's options, and lists the other names that they set.
std::string take_hydra_preload(Arguments& options, std::vector<std::string>& exported, std::string found) {
  // -genv NAME VALUE, and -genv NAME=VALUE.
  for (std::size_t i = 0; i + 1 < options.size(); ++i) {
    if (options[i] != "-genv" && options[i] != "-env") continue;
    const std::size_t equals = options[i + 1].find('=');
    const std::string name = options[i + 1].substr(0, equals);
    const bool together = equals != std::string::npos;
    if (name != "LD_PRELOAD") {
      exported.push_back(name);
      continue;
    }
    if (!together && i + 2 >= options.size()) break;
    found = together ? options[i + 1].substr(equals + 1) : options[i + 2];
    const auto at = options.begin() + static_cast<std::ptrdiff_t>(i);
    options.erase(at, at + (together ? 2 : 3));
    --i;
  }
  return found;
}

// Takes `-x LD_PRELOAD=...` out of mpirun's options, and lists the names that other -x options export. `found`: what is
// preloaded without.
std::string take_preload(Arguments& options, std::vector<std::string>& exported, LauncherKind kind, std::string found) {
  if (kind == LauncherKind::hydra) return take_hydra_preload(options, exported, found);
  if (kind == LauncherKind::slurm) return found;
  for (std::size_t i = 0; i + 1 < options.size(); ++i) {
    if (options[i] != "-x") continue;
    const std::string value = options[i + 1];
    if (value.substr(0, value.find('=')) == "LD_PRELOAD") {
      if (value.starts_with("LD_PRELOAD=")) found = value.substr(std::strlen("LD_PRELOAD="));
      options.erase(options.begin() + static_cast<std::ptrdiff_t>(i),
                    options.begin() + static_cast<std::ptrdiff_t>(i) + 2);
      --i;
    } else {
      exported.push_back(value.substr(0, value.find('=')));
      ++i;
    }
  }
  return found;
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

// What the library is built for.
MpiOfFile check_library(const std::string& library, MpiFamily family) {
  if (const auto calls = read_calls(library); !calls || !calls->is_mpi || !calls->is_crimp)
    refuse("run: --library " + library + " is no library of Crimp's; legal is a libcrimp.so");
  const MpiOfFile built = mpi_of_file(library, Linker::own);
  if (built.family != MpiFamily::unknown && family != MpiFamily::unknown && built.family != family)
    refuse("run: " + library + " is built for " + name_of(built.family) + " (" + built.soname + "), and the job is " +
           name_of(family) + "'s; without --library the one that fits is taken");
  return built;
}

// What else is preloaded: of a script, or a program that finds no MPI, the library's own MPI, which would not be found
// either (a module or a wheel that is no place of the linker's). Empty: nothing.
std::string mpi_to_preload(const MpiOfFile& built, const MpiOfFile& wanted, const std::string& mpirun) {
  if (built.soname.empty() || built.found || wanted.found) return {};
  const std::string file = beside_launcher(mpirun, built.soname).string();
  return file.find_first_of(": ") == file.npos ? file : "";
}

void warn_of_own_mpi(const std::string& program) {
  const auto calls = read_calls(in_path(program));
  if (!calls || !calls->has_own_mpi) return;
  std::fprintf(stderr,
               "crimp run: %s has an MPI of its own linked in (statically), which no preload reaches: nothing of it is "
               "compressed; link it with the shared MPI library\n",
               program.c_str());
}

// What gives the ranks these variables: Open MPI's -x, Hydra's -genv (of one program alone -env), and `env` in front of
// a program that Slurm starts, whose own list would end at the first comma of a value.
Arguments as_options(const std::vector<std::string>& settings, LauncherKind kind, const char* of_hydra) {
  Arguments options;
  if (kind == LauncherKind::slurm) options.push_back("/usr/bin/env");  // without a PATH, too (srun --export=NONE)
  for (const auto& setting : settings)
    if (kind == LauncherKind::slurm) options.push_back(setting);
    else if (kind == LauncherKind::hydra) {
      const std::size_t equals = setting.find('=');
      options.insert(options.end(), {of_hydra, setting.substr(0, equals), setting.substr(equals + 1)});
    } else options.insert(options.end(), {"-x", setting});
  return options;
}

// All programs with their options, and in each part what Crimp needs there. mpirun's ':' starts a program that takes
// none of the first one's -x, and settings must be the same on all ranks; Hydra's takes its -genv.
Arguments with_preloads(std::vector<Part> parts, const std::string& library, const std::string& mpi,
                        LauncherKind kind) {
  const char* const inherited = std::getenv("LD_PRELOAD");
  std::string existing = inherited ? inherited : "";
  std::vector<std::string> all = settings_among(parts.front().options);
  for (char** entry = environ; *entry; ++entry)
    if (std::string_view(*entry).starts_with("CRIMP_")) all.emplace_back(*entry);
  Arguments words;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    std::vector<std::string> names;
    const std::string own = take_preload(part.options, names, kind, existing);
    if (i == 0) existing = own;
    const bool told = i > 0 && kind == LauncherKind::hydra;
    std::vector<std::string> settings;
    if (!told || own != existing) settings.push_back("LD_PRELOAD=" + preload(library, own + ":" + mpi));
    for (const std::string& text : told ? Arguments() : all) {
      const std::string name = text.substr(0, text.find('='));
      if (std::count(names.begin(), names.end(), name)) continue;
      settings.push_back(text);
      names.push_back(name);
    }
    const Arguments ours = as_options(settings, kind, told ? "-env" : "-genv");
    if (i > 0) words.push_back(":");
    // Of a part whose program was not found the options are all of it.
    if (i > 0) words.insert(words.end(), ours.begin(), ours.end());
    words.insert(words.end(), part.options.begin(), part.options.end());
    if (i == 0) words.insert(words.end(), ours.begin(), ours.end());
    words.insert(words.end(), part.program.begin(), part.program.end());
  }
  return words;
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
