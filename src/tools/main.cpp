// crimp run | check | info | bench codec | bench select | bench rotation | bench allreduce | bench call | bench step |
// model | plan
#include <cstdio>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/nearest.hpp"

namespace crimp::tools {
namespace {

struct Command {
  const char *name, *summary;
  int (*call)(Arguments);
};
constexpr Command kCommands[] = {
    {"run", "start an MPI program with Crimp preloaded: crimp run -np 4 --codec 3lc -- ./program", run},
    {"check",
     "which reductions a program calls, and do they lead to Crimp? crimp check -- python3 -c \"import horovod.torch\"",
     check},
    {"info", "this build, its codecs and its settings", info},
    {"bench codec", "speed, size and error of codecs on this machine", bench_codec},
    {"bench select", "exact selection of the largest magnitudes beside std::nth_element", bench_select},
    {"bench rotation", "speed of the steps of THC: rotation, norms, integer sums", bench_rotation},
    {"bench allreduce", "MPI_Allreduce with and without Crimp, under mpirun or crimp run", bench_allreduce},
    {"bench call", "what a call costs besides encoding, wire and decoding, by the number of its tensors", bench_call},
    {"bench step", "steps that call as a training does, to hold a prediction of crimp plan against", bench_step},
    {"model", "what each algorithm would take on larger and faster networks, by the chooser's cost functions", model},
    {"plan",
     "what a step would take with each codec on a cluster, and what to run: from a model's tensors, or a report", plan},
};

void usage(std::FILE* to) {
  std::fprintf(to, "crimp %s: compressed reductions by interposing MPI\n\n", CRIMP_VERSION);
  for (const auto& c : kCommands) std::fprintf(to, "  crimp %-16s %s\n", c.name, c.summary);
  std::fprintf(to, "\ncrimp COMMAND --help lists the options of one.\n");
}

int dispatch(const Arguments& all) {
  if (all.empty() || all[0] == "--help" || all[0] == "-h")
    return usage(all.empty() ? stderr : stdout), all.empty() ? 2 : 0;
  if (all[0] == "--version") return std::printf("crimp %s\n", CRIMP_VERSION), 0;
  std::vector<std::string> names;
  std::string typed = all[0];
  if (typed == "bench" && all.size() > 1) typed += " " + all[1];
  for (const auto& c : kCommands) {
    names.emplace_back(c.name);
    if (typed == c.name) return c.call(Arguments(all.begin() + (typed == all[0] ? 1 : 2), all.end()));
  }
  std::fprintf(stderr, "crimp: there is no command '%s'%s\n\n", typed.c_str(), did_you_mean(typed, names).c_str());
  return usage(stderr), 2;
}

}  // namespace
}  // namespace crimp::tools

int main(int argc, char** argv) {
  try {
    return crimp::tools::dispatch(crimp::tools::Arguments(argv + 1, argv + argc));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "crimp: %s\n", e.what());
    return 2;
  }
}
