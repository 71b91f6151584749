// The crimp command: one of a table.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "commands.hpp"
#include "core/error.hpp"
#include "core/nearest.hpp"
#include "core/plain_text.hpp"
#include "exit_code.hpp"

namespace crimp::tools {
namespace {

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
    {"trace", "who waits for whom, and what the calls of a trace took; or what differs between two traces", trace},
    {"report", "what a job did, by its report: crimp report report.json -o report.html", report},
    {"status", "what a job that runs has done so far, from the file of its CRIMP_STATUS", status},
    {"completion", "completion of this command's words for a shell: eval \"$(crimp completion bash)\"", completion},
    {"man", "a manual page: crimp man run | man -l -", man},
};

constexpr const char* kGroup = "bench";

// Of the commands whose names begin so.
void usage(std::FILE* to, std::string_view begin = "") {
  std::fprintf(to, "crimp %s: compressed reductions by interposing MPI\n\n", CRIMP_VERSION);
  for (const auto& c : kCommands)
    if (std::string_view(c.name).starts_with(begin)) std::fprintf(to, "  crimp %-16s %s\n", c.name, c.summary);
  std::fprintf(to, "\ncrimp COMMAND --help lists the options of one.\n\nExit codes:\n");
  for (const auto& e : kExitTexts) std::fprintf(to, "  %-3d %s\n", e.code, e.text);
  std::fprintf(to, "crimp run returns what the launcher does, once that has started.\n");
}

int dispatch(const Arguments& all) {
  if (all.empty() || all[0] == "--help" || all[0] == "-h" || (all[0] == "help" && all.size() == 1))
    return usage(all.empty() ? stderr : stdout), all.empty() ? kArguments : kDone;
  const bool of_group = all[0] == kGroup;
  if (of_group && all.size() == 1) return usage(stderr, kGroup), kArguments;
  if (of_group && all.size() == 2 && (all[1] == "--help" || all[1] == "-h")) return usage(stdout, kGroup), kDone;
  if (all[0] == "--version") return std::printf("crimp %s\n", CRIMP_VERSION), kDone;
  if (all[0] == "help") {  // crimp help bench codec
    Arguments asked(all.begin() + 1, all.end());
    asked.insert(std::find(asked.begin(), asked.end(), "--"), "--help");
    return dispatch(asked);
  }
  if (all[0] == "complete") return complete({all.begin() + 1, all.end()});
  std::vector<std::string> names;
  std::string typed = all[0];
  if (of_group) typed += " " + all[1];
  for (const auto& c : kCommands) {
    names.emplace_back(c.name);
    if (typed == c.name) return c.call(Arguments(all.begin() + (typed == all[0] ? 1 : 2), all.end()));
  }
  std::fprintf(stderr, "crimp: there is no command '%s'%s\n\n", typed.c_str(), did_you_mean(typed, names).c_str());
  return usage(stderr, of_group ? kGroup : ""), kArguments;
}

// Texts quote what files hold.
void complain(const std::exception& e) { std::fprintf(stderr, "crimp: %s\n", plain_text(e.what(), "\n\t").c_str()); }

int code_of(const Error& e) {
  switch (e.code()) {
    case ErrorCode::option_invalid:
    case ErrorCode::codec_unknown:
    case ErrorCode::layout_invalid:
    case ErrorCode::argument_invalid: return kArguments;
    default: return kNotSo;
  }
}

}  // namespace

std::span<const Command> commands() { return kCommands; }

}  // namespace crimp::tools

int main(int argc, char** argv) {
  using namespace crimp::tools;
  try {
    const int code = dispatch(Arguments(argv + 1, argv + argc));
    // What was asked for and could not be written, as to a full disk, was not done.
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
      std::fprintf(stderr, "crimp: standard output could not be written\n");
      return code == kDone ? kNotSo : code;
    }
    return code;
  } catch (const Lacking& e) {
    complain(e);
    return kLacking;
  } catch (const crimp::Error& e) {
    complain(e);
    return code_of(e);
  } catch (const std::exception& e) {
    complain(e);
    return kNotSo;
  }
}
