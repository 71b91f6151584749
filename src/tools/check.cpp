// crimp check: which of MPI's reductions a program calls, and whether they lead to Crimp.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "commands.hpp"
#include "core/plain_text.hpp"
#include "elf_file.hpp"
#include "exit_code.hpp"
#include "mpi_family.hpp"

namespace crimp::tools {
namespace {

using Functions = std::vector<const MpiFunction*>;

volatile pid_t to_end = 0;  // the program that is run

std::string base(const std::string& file) { return file.substr(file.rfind('/') + 1); }

// "      compressed: MPI_Allreduce, MPI_Iallreduce", a line for each way
std::vector<std::string> by_handling(const Functions& functions) {
  std::vector<std::string> lines;
  for (const auto handling : {Handling::compressed, Handling::left}) {
    std::string names;
    for (const auto* f : functions)
      if (f->handling == handling) names += (names.empty() ? "" : ", ") + std::string(f->name);
    if (!names.empty()) lines.push_back("      " + std::string(text(handling)) + ": " + names);
  }
  return lines;
}

bool any_compressed(const Functions& functions) {
  return std::any_of(functions.begin(), functions.end(), [](auto f) { return f->handling == Handling::compressed; });
}

// Who looks MPI up by name when it runs, past every preload, and what makes it take Crimp's libcrimp.so in MPI's place.
struct ByName {
  const char *library, *remedy;  // %s: libcrimp.so
};
constexpr ByName kByName[] = {
    {"libmlx.", "MLX_MPI_LIBNAME=%s"},
    {"libccl.", "CCL_MPI_LIBRARY_PATH=%s"},
    {"libmpiwrapper",
     "build MPIwrapper's libmpiwrapper.so with -Wl,--no-as-needed %s ahead of MPI, and name that in MPITRAMPOLINE_LIB"},
    {"libmpitrampoline", "MPITRAMPOLINE_LIB: a libmpiwrapper.so that is linked with %s ahead of MPI"},
    {"libjulia", "in Julia: MPIPreferences.use_system_binary(library_names=[\"%s\"])"},
};
constexpr const char* kAnyByName = "give it %s where it wants the name of the MPI library";

// The one among these files, which fits their MPI; else this program's own.
std::string libcrimp_among(std::vector<std::string> files) {
  std::error_code none;
  for (auto& own : loaded_with(std::filesystem::read_symlink("/proc/self/exe", none).string()))
    files.push_back(std::move(own));
  for (const auto& file : files)
    if (base(file).starts_with("libcrimp.so")) return std::filesystem::absolute(file).lexically_normal().string();
  return "libcrimp.so";
}

std::string remedy_for(const std::string& file, const std::string& library) {
  const char* text = kAnyByName;
  for (const auto& known : kByName)
    if (base(file).starts_with(known.library)) text = known.remedy;
  std::string line = text;
  return line.replace(line.find("%s"), 2, library);
}

bool is_julia(const std::string& file) { return base(file).starts_with("libjulia."); }

// What is named and not called by the program and its libraries. An MPI library, or one that only hands calls on to it,
// names functions in its messages.
// Whether there are any.
bool print_by_name(const std::vector<std::string>& files, bool print = true) {
  bool any = false;
  for (const auto& file : files) {
    if (base(file).starts_with("libcrimp")) continue;
    const auto calls = read_calls(file);
    if (!calls || calls->is_mpi ||
        (!is_julia(file) && (!any_compressed(calls->named) || any_compressed(calls->called))))
      continue;
    any = true;
    if (!print) continue;
    std::printf("  %s may look %s up by name, past every preload; %s\n", file.c_str(),
                is_julia(file) ? "MPI" : std::string(calls->named.front()->name).c_str(),
                remedy_for(file, libcrimp_among(files)).c_str());
  }
  return any;
}

// A program or a library as the dynamic linker would load it: who calls what, and which library comes first.
struct Linked {
  std::vector<std::string> files;
  std::string first;                                       // where the calls lead
  std::vector<std::pair<std::string, Functions>> modules;  // without MPI libraries
  Functions compressed;                                    // that are called
  std::string named_sum;                                   // of crimp.h, that is called

  explicit Linked(const std::string& file) : files{file} {
    for (auto& other : loaded_with(file)) files.push_back(std::move(other));
    std::set<const MpiFunction*> defined;
    for (const auto& f : files) {
      const auto calls = read_calls(f);
      if (!calls) continue;
      defined.insert(calls->defined.begin(), calls->defined.end());
      if (calls->is_mpi && first.empty()) first = f;
      if (!calls->is_mpi && named_sum.empty()) named_sum = calls->named_sum;
      if (!calls->is_mpi && !calls->called.empty()) modules.push_back({f, calls->called});
    }
    if (!defined.empty())  // weak references to what this MPI has not
      for (auto& [module, functions] : modules) std::erase_if(functions, [&](auto f) { return !defined.count(f); });
    for (const auto& [module, functions] : modules)
      for (const auto* f : functions)
        if (f->handling == Handling::compressed) compressed.push_back(f);
  }

  bool reaches_crimp() const { return base(first).starts_with("libcrimp"); }
  void print() const {
    for (const auto& [module, functions] : modules) {
      std::printf("  %s\n", plain_text(module).c_str());
      for (const auto& line : by_handling(functions)) std::printf("%s\n", line.c_str());
    }
    print_by_name(files);
  }
};

void print_own_mpi(const std::string& file) {
  std::printf(
      "out of reach: %s has an MPI of its own linked in (statically), where no preload and no order of libraries leads its "
      "calls to Crimp; link it with the shared MPI library\n",
      plain_text(file).c_str());
}

// One file, which is not run. 0: its reductions lead to Crimp as it is linked or preloaded; 1: they do not; 2: it
// cannot be read.
int check_file(const std::string& given) {
  std::error_code none;
  const std::string file = std::filesystem::absolute(given, none).string();
  const auto own = read_calls(file);
  if (!own)
    return std::fprintf(stderr, "crimp check: %s is no program and no library of this machine\n", given.c_str()), 2;
  if (own->has_own_mpi) return print_own_mpi(given), 1;
  const Linked linked(file);
  const std::string function(linked.compressed.empty() ? linked.named_sum : linked.compressed.front()->name);
  const MpiOfFile built = mpi_of_file(linked.first, Linker::own), wanted = mpi_of_file(file, Linker::own);
  const bool other_mpi = linked.reaches_crimp() && built.family != wanted.family &&
                         built.family != MpiFamily::unknown && wanted.family != MpiFamily::unknown;
  if (other_mpi) {
    std::printf(
        "another MPI: %s is built for %s, and the program's MPI is %s; `crimp run` takes the library that fits\n",
        linked.first.c_str(), name_of(built.family), name_of(wanted.family));
    linked.print();
    return 1;
  }
  if (linked.modules.empty() && function.empty())
    std::printf("no calls: nothing that is linked here calls one of MPI's reductions\n");
  else if (function.empty())
    std::printf("left to MPI: none of the reductions that are called here is one that Crimp compresses\n");
  else if (linked.reaches_crimp())
    std::printf("ok: %s leads to %s\n", function.c_str(), plain_text(linked.first).c_str());
  else
    std::printf(
        "not linked: %s leads to %s; preload Crimp: crimp run -np N -- %s\n", function.c_str(),
        linked.first.empty() ? "the MPI library of the program that loads this" : plain_text(linked.first).c_str(),
        own->interpreter.empty() ? "the program that loads this" : given.c_str());
  linked.print();
  return linked.reaches_crimp() && !function.empty() ? 0 : 1;
}

void print_table(bool markdown) {
  if (markdown) std::printf("| Crimp | functions |\n|---|---|\n");
  for (const auto handling : {Handling::compressed, Handling::left}) {
    std::string names;
    for (const auto& f : kReductions) {
      if (f.handling != handling) continue;
      if (markdown) names += (names.empty() ? "`" : ", `") + std::string(f.name) + '`';
      else std::printf("%s\t%s\n", std::string(f.name).c_str(), std::string(text(handling)).c_str());
    }
    if (!names.empty()) std::printf("| %s | %s |\n", std::string(text(handling)).c_str(), names.c_str());
  }
}

// What mpi_shim/self_check.cpp writes: pid, moment, answer, module, target, function. Each process's latest moment
// counts: what ends by a signal has none but the first. Modules that are not linked with Crimp are told, and decide
// nothing, and so are functions that Crimp leaves to MPI.
struct Answers {
  bool loaded = false, caught = false, bypassed = false;
  bool past = false;             // MPI was used, and nothing of that came to Crimp
  std::string unfit, unfit_mpi;  // a module that needs an MPI of the other family, and that
  bool began = false;            // MPI, and Crimp with it
  bool unstarted = false;        // calls came where MPI_Init had not been called, nor was later
  std::string bypassed_to, bypassed_function;
  std::string tool, tool_function;           // which was there first, and from which nothing came
  std::map<std::string, Functions> modules;  // "module -> target"
  std::set<std::string> files;

  bool called_compressed() const {
    return std::any_of(modules.begin(), modules.end(), [](const auto& m) { return any_compressed(m.second); });
  }

  explicit Answers(std::istream& file) {
    using Line = std::array<std::string, 4>;
    std::map<std::string, std::pair<std::string, std::vector<Line>>> latest;
    const auto field = [&](std::string& to) -> bool { return !!std::getline(file, to, '\t'); };
    std::string pid, moment;
    Line line;
    while (field(pid) && field(moment) && field(line[0]) && field(line[1]) && field(line[2]) &&
           std::getline(file, line[3])) {
      auto& [when, lines] = latest[pid];
      if (when != moment) lines.clear();
      when = moment;
      began |= moment == "start";
      lines.push_back(line);
    }
    // `crimp run` is no part of the program that it starts, though it calls MPI as well (crimp bench).
    std::error_code none;
    const std::string own = std::filesystem::read_symlink("/proc/self/exe", none).string();
    for (auto& [_, process] : latest) {
      auto& lines = process.second;
      const auto is_own = [&](const Line& of) { return of[0] != "loaded" && of[1] == own; };
      const bool became_launcher = process.first == "load" && std::any_of(lines.begin(), lines.end(), is_own);
      if (became_launcher) continue;
      loaded = true;
      if (process.first != "load" || !add_linked(lines)) add(lines);
    }
    // What is only linked with another MPI may never call it: a process that is known to use MPI decides.
    if (unfit.empty() && !began && !bypassed && !past && !unstarted) unfit = linked_, unfit_mpi = linked_mpi_;
  }

 private:
  std::string linked_, linked_mpi_;  // as unfit, of a process that had no chance to call anything of Crimp's

  // Whether these are the lines of such a process, in which Crimp catches nothing.
  bool add_linked(const std::vector<std::array<std::string, 4>>& lines) {
    const auto found = std::find_if(lines.begin(), lines.end(), [](const auto& of) { return of[0] == "unfit"; });
    if (found == lines.end()) return false;
    linked_ = (*found)[1];
    linked_mpi_ = (*found)[2];
    return true;
  }

  void add(const std::vector<std::array<std::string, 4>>& lines) {
    std::map<std::string, std::string> of_module;  // where its first function leads
    for (const auto& [reply, module, target, name] : lines) {
      if (reply == "loaded") {
        files.insert(module);
        continue;
      }
      if (reply == "unfit") {
        unfit = module;
        unfit_mpi = target;
        continue;
      }
      const MpiFunction* const function = reduction(name);
      if (!function) continue;
      if (!module.empty()) {
        const auto& line = of_module
                               .try_emplace(module, "  " + module + " -> " + target +
                                                        (reply == "not linked" ? " (not linked with Crimp)" : ""))
                               .first->second;
        auto& functions = modules[line];
        if (!std::count(functions.begin(), functions.end(), function)) functions.push_back(function);
      }
      if (function->handling != Handling::compressed) continue;
      caught |= reply == "crimp";
      past |= reply == "past";
      unstarted |= reply == "unstarted";
      if (reply == "tool") tool = target, tool_function = name;
      if (reply == "bypassed") bypassed = true, bypassed_to = target, bypassed_function = name;
    }
  }
};

// Of a program that was run and never loaded Crimp: what its file says. Nothing of a script.
void print_not_loaded(const std::string& program) {
  const std::string file = in_path(program);
  const auto calls = read_calls(file);
  if (calls && calls->has_own_mpi) return print_own_mpi(program);
  std::printf("not loaded: the program never loads libcrimp.so; preload it (crimp run) or link it ahead of libmpi\n");
  if (calls) Linked(file).print();
}

// The first line: whether what Crimp compresses reaches it, which is returned. files: that were loaded.
bool print_verdict(const Answers& found, const std::vector<std::string>& files) {
  std::string named_sum, own_mpi;
  for (const auto& file : files) {
    const auto of = read_calls(file);
    if (of && !of->is_mpi && named_sum.empty()) named_sum = of->named_sum;
    if (of && of->has_own_mpi) own_mpi = file;
  }
  const bool calls = found.called_compressed() || !named_sum.empty() || print_by_name(files, false);
  const std::string name = found.bypassed_function.empty() ? std::string(kReductions[0].name) : found.bypassed_function;
  if (!own_mpi.empty()) print_own_mpi(own_mpi);
  else if (!found.unfit.empty())
    std::printf(
        "another MPI: %s needs %s, for which this libcrimp.so is not built; `crimp run` takes the one that fits by the "
        "launcher, which MPIRUN names, and under srun --library does\n",
        plain_text(found.unfit).c_str(), plain_text(found.unfit_mpi).c_str());
  else if (found.bypassed)
    std::printf(
        "bypassed: libcrimp.so is loaded, but %s resolves to %s, which was there first; load that later, or preload "
        "libcrimp.so (crimp run)\n",
        name.c_str(), found.bypassed_to.c_str());
  else if (!found.tool.empty())
    std::printf(
        "not known: libcrimp.so is loaded, but %s resolves to %s, which was there first, and no reduction has come from "
        "there to Crimp; where the program has called any, load that later\n",
        found.tool_function.c_str(), found.tool.c_str());
  else if (found.unstarted)
    std::printf(
        "not started: calls come to Crimp, but the program never calls MPI_Init, without which nothing is compressed "
        "(sessions, MPI_Session_init, are not enough); call MPI_Init first\n");
  else if (found.past)
    std::printf(
        "bypassed: libcrimp.so is loaded, but the program has used MPI and called nothing of Crimp's; where it looks MPI up by "
        "name when it runs (dlopen, ctypes, Julia), it takes Crimp if it opens %s in libmpi's place\n",
        libcrimp_among(files).c_str());
  else if (found.caught && !calls)
    std::printf(
        "no calls: %s would resolve to Crimp, but nothing that was loaded is linked with a reduction that Crimp compresses; "
        "a program that looks MPI up by name when it runs (dlopen, ctypes, Julia) takes Crimp if it opens %s in libmpi's "
        "place\n",
        name.c_str(), libcrimp_among(files).c_str());
  else if (found.caught)
    return std::printf("ok: %s resolves to Crimp\n",
                       found.called_compressed() || named_sum.empty() ? name.c_str() : named_sum.c_str()),
           true;
  else if (found.called_compressed())
    std::printf("not linked: libcrimp.so is loaded, but what calls %s is not linked with it; preload it (crimp run)\n",
                name.c_str());
  else std::printf("left to MPI: none of the reductions that the program calls is one that Crimp compresses\n");
  return false;
}

}  // namespace

int check(Arguments arguments) {
  CommandLine app(
      "Runs a program and says which of MPI's reductions it calls and whether they lead to Crimp, the way it is linked or\n"
      "preloaded. Exit code 0: what Crimp compresses reaches it; 1: it does not, and why; 2: the question cannot be asked; 127: the program\n"
      "could not be started.",
      "crimp check");
  std::vector<std::string> command, files;
  bool functions = false, markdown = false;
  app.option("command", command, "the program and its arguments, behind --").completes("command");
  app.option("--file", files, "A program or library that is read and not run; repeatable").one_each();
  app.flag("--functions", functions, "Print what Crimp does with each of MPI's reductions");
  app.flag("--markdown", markdown, "... as a table");
  app.positions_at_end();
  // Its words are the program's: brackets in them are no lists.
  const auto mark = std::find(arguments.begin(), arguments.end(), "--");
  const Arguments behind(mark == arguments.end() ? mark : mark + 1, arguments.end());
  arguments.erase(mark, arguments.end());
  if (const auto status = app.parse(std::move(arguments))) return *status;
  command.insert(command.end(), behind.begin(), behind.end());
  if (functions) return print_table(markdown), 0;
  if (!files.empty() && !command.empty())
    return std::fprintf(stderr, "crimp check: --file reads files and runs no program; leave out '%s', or --file\n",
                        command[0].c_str()),
           kArguments;
  if (!files.empty()) {
    int worst = 0;
    for (const auto& file : files) {
      if (files.size() > 1) std::printf("%s\n", file.c_str());
      worst = std::max(worst, check_file(file));
    }
    return worst;
  }
  if (command.empty())
    return std::fprintf(stderr, "crimp check: no program; as in: crimp check -- python3 -c \"import horovod.torch\"\n"),
           2;
  std::error_code none;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(none);
  std::string place = std::filesystem::absolute(none ? "/tmp" : folder) / "crimp-check-XXXXXX";
  char* const answer = place.data();
  const int fd = ::mkstemp(answer);
  if (fd < 0) {
    std::perror(("crimp check: " + place + " (TMPDIR says where)").c_str());
    return kArguments;
  }
  ::close(fd);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("CRIMP_CHECK", answer, 1);
    std::vector<char*> words;
    for (const auto& a : command) words.push_back(const_cast<char*>(a.c_str()));
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    std::perror(("crimp check: " + command[0]).c_str());
    ::_exit(kNotStarted);
  }
  // What would end this ends the program instead, so that the file goes and what was found until then is said.
  to_end = child;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    std::signal(signal, [](int number) {
      if (to_end > 0) ::kill(to_end, number);
    });
  int status = 0;
  pid_t ended;
  do ended = child < 0 ? child : ::waitpid(child, &status, 0);
  while (ended < 0 && child > 0 && errno == EINTR);
  to_end = 0;
  if (ended != child || child < 0) {
    std::perror("crimp check");
    ::unlink(answer);
    return kNotSo;
  }
  std::ifstream file(answer);
  const Answers found(file);
  ::unlink(answer);
  const std::vector<std::string> loaded_files(found.files.begin(), found.files.end());
  const bool good = found.loaded && print_verdict(found, loaded_files);
  if (!found.loaded) print_not_loaded(command[0]);
  for (const auto& [line, of_line] : found.modules) {
    std::printf("%s\n", line.c_str());
    for (const auto& handled : by_handling(of_line)) std::printf("%s\n", handled.c_str());
  }
  print_by_name(loaded_files);
  if (WIFSIGNALED(status))
    return std::fprintf(stderr, "crimp check: the program ended by signal %d\n", WTERMSIG(status)), 1;
  if (WEXITSTATUS(status) != 0)
    return std::fprintf(stderr, "crimp check: the program ended with %d\n", WEXITSTATUS(status)),
           WEXITSTATUS(status) == kNotStarted ? kNotStarted : kNotSo;
  return good ? 0 : 1;
}

}  // namespace crimp::tools
