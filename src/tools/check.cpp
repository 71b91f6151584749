// crimp check -- program arguments: does the program's MPI_Allreduce lead to Crimp, the way it is linked or preloaded?
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "commands.hpp"

namespace crimp::tools {

int check(Arguments arguments) {
  CLI::App app("Runs a program and says whether its MPI_Allreduce leads to Crimp, the way it is linked or preloaded.", "crimp check");
  std::vector<std::string> command;
  app.add_option("command", command, "the program and its arguments, behind --");
  app.positionals_at_end();
  if (const auto status = parse(app, std::move(arguments))) return *status;
  if (command.empty()) return std::fprintf(stderr, "crimp check: no program; as in: crimp check -- python3 -c \"import horovod.torch\"\n"), 2;
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
  bool any = false, bypassed = false;
  std::string line, where;
  while (std::getline(file, line)) {
    any = true;
    if (line.starts_with("bypassed")) {
      bypassed = true;
      where = line.substr(line.find('\t') + 1);
    }
  }
  ::unlink(answer);
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    return std::fprintf(stderr, "crimp check: the program ended with %d\n", WEXITSTATUS(status)), WEXITSTATUS(status) == 127 ? 2 : 1;
  if (!any)
    std::printf("not loaded: the program never loads libcrimp.so; preload it (crimp run) or link it ahead of libmpi\n");
  else if (bypassed)
    std::printf("bypassed: libcrimp.so is loaded, but MPI_Allreduce resolves to %s; preload it instead (crimp run)\n", where.c_str());
  else
    std::printf("ok: MPI_Allreduce resolves to Crimp\n");
  return any && !bypassed ? 0 : 1;
}

}  // namespace crimp::tools
