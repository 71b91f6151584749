// crimp check -- program arguments: does the program's MPI_Allreduce lead to Crimp, the way it is linked or preloaded?
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "commands.hpp"

namespace crimp::tools {
namespace {

// What mpi_shim/self_check.cpp writes: pid, moment, answer, module, target. Each process's latest moment counts: what
// ends by a signal has none but the first. Modules that are not linked with Crimp are told, and decide nothing.
struct Answers {
  bool loaded = false, caught = false, bypassed = false;
  std::string bypassed_to;
  std::set<std::string> lines;  // one per module

  explicit Answers(std::istream& file) {
    std::map<std::string, std::pair<std::string, std::vector<std::array<std::string, 3>>>> latest;
    const auto field = [&](std::string& to) -> bool { return !!std::getline(file, to, '\t'); };
    std::string pid, moment, answer, module, target;
    while (field(pid) && field(moment) && field(answer) && field(module) && std::getline(file, target)) {
      auto& [when, modules] = latest[pid];
      if (when != moment) modules.clear();
      when = moment;
      modules.push_back({answer, module, target});
    }
    loaded = !latest.empty();
    for (const auto& process : latest)
      for (const auto& [reply, name, leads_to] : process.second.second) {
        caught |= reply == "crimp";
        if (reply == "bypassed") bypassed = true, bypassed_to = leads_to;
        if (!name.empty())
          lines.insert("  " + name + " -> " + leads_to + (reply == "not linked" ? " (not linked with Crimp)" : ""));
      }
  }
};

}  // namespace

int check(Arguments arguments) {
  CommandLine app(
      "Runs a program and says whether its MPI_Allreduce leads to Crimp, the way it is linked or preloaded.",
      "crimp check");
  std::vector<std::string> command;
  app.option("command", command, "the program and its arguments, behind --");
  app.positions_at_end();
  if (const auto status = app.parse(std::move(arguments))) return *status;
  if (command.empty())
    return std::fprintf(stderr, "crimp check: no program; as in: crimp check -- python3 -c \"import horovod.torch\"\n"),
           2;
  char answer[] = "/tmp/crimp-check-XXXXXX";
  const int fd = ::mkstemp(answer);
  if (fd < 0) return std::perror("crimp check: /tmp"), 2;
  ::close(fd);
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("CRIMP_CHECK", answer, 1);
    std::vector<char*> words;
    for (const auto& a : command) words.push_back(const_cast<char*>(a.c_str()));
    words.push_back(nullptr);
    ::execvp(words[0], words.data());
    std::perror(("crimp check: " + command[0]).c_str());
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return std::perror("crimp check"), 2;
  std::ifstream file(answer);
  const Answers found(file);
  ::unlink(answer);
  const bool good = found.caught && !found.bypassed;
  if (!found.loaded)
    std::printf("not loaded: the program never loads libcrimp.so; preload it (crimp run) or link it ahead of libmpi\n");
  else if (found.bypassed)
    std::printf(
        "bypassed: libcrimp.so is loaded, but MPI_Allreduce resolves to %s, which was there first; load that later, or preload "
        "libcrimp.so (crimp run)\n",
        found.bypassed_to.c_str());
  else if (!good)
    std::printf(
        "not linked: libcrimp.so is loaded, but what calls MPI_Allreduce is not linked with it; preload it (crimp run)\n");
  else std::printf("ok: MPI_Allreduce resolves to Crimp\n");
  for (const auto& line : found.lines) std::printf("%s\n", line.c_str());
  if (WIFSIGNALED(status))
    return std::fprintf(stderr, "crimp check: the program ended by signal %d\n", WTERMSIG(status)), 1;
  if (WEXITSTATUS(status) != 0)
    return std::fprintf(stderr, "crimp check: the program ended with %d\n", WEXITSTATUS(status)),
           WEXITSTATUS(status) == 127 ? 2 : 1;
  return good ? 0 : 1;
}

}  // namespace crimp::tools
