// crimp info: what this build is and can do.
#include <hwy/targets.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "codec/simd.hpp"
#include "collective/algorithms.hpp"
#include "commands.hpp"
#include "core/build_id.hpp"
#include "core/error.hpp"
#include "core/profile.hpp"
#include "core/settings.hpp"
#include "crimp/crimp.h"
#include "cuda_device.hpp"

namespace crimp::tools {
namespace {

std::string built_with_mpi() {
#if defined(OPEN_MPI)
  return "Open MPI " + std::to_string(OMPI_MAJOR_VERSION) + "." + std::to_string(OMPI_MINOR_VERSION) + "." +
         std::to_string(OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  return "MPICH " MPICH_VERSION;
#else
  return "MPI " + std::to_string(MPI_VERSION) + "." + std::to_string(MPI_SUBVERSION);
#endif
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Highway's targets are bits, the best the lowest.
std::string target_names(std::int64_t targets) {
  std::string names;
  for (; targets; targets &= targets - 1)
    names += (names.empty() ? "" : " ") + std::string(hwy::TargetName(targets & -targets));
  return names;
}

void print_build() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(mpi, &length);  // allowed before MPI_Init
  const char* sanitizers = CRIMP_SANITIZERS;
  std::printf("crimp      %s (libcrimp.so %s)\n", CRIMP_VERSION, crimp_version());
  std::printf("build      %s, %s, %s%s%s\n", build_id(), CRIMP_BUILD_TYPE, CRIMP_COMPILER,
              *sanitizers ? ", sanitizers " : "", sanitizers);
  std::printf("MPI        built with %s, running with %s\n", built_with_mpi().c_str(), first_line(mpi).c_str());
  std::printf("SIMD       compiled: %s; chosen here: %s\n", target_names(HWY_TARGETS).c_str(), simd_target().c_str());
  std::printf("GPU        %s\n", cuda_summary().c_str());
  std::string names;
  for (const auto& c : codecs()) names += (names.empty() ? "" : ", ") + std::string(c.name);
  std::printf("codecs     %s\n", names.c_str());
}

std::string factor_text(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", factor);
  return text;
}

// "allgather, two_shot (error 2.4), hierarchical"
std::string algorithms_text(const Codec& codec) {
  std::string text;
  for (const auto& entry : algorithms()) {
    if (!entry.why_unsupported(codec, 2).empty()) continue;
    text += (text.empty() ? "" : ", ") + std::string(entry.name);
    if (entry.error(codec, 2) > 1) text += " (error " + factor_text(entry.error(codec, 2)) + ")";
  }
  return text;
}

std::string range_of(const Codec::Traits& traits) {
  const auto power = [](float x) { return "2^" + std::to_string(std::ilogb(x)); };
  const std::string above = "values up to " + power(traits.max_magnitude);
  return (traits.min_magnitude > 0
              ? "tensors whose largest value is " + power(traits.min_magnitude) + " or more, " + above
              : above) +
         "; others go through MPI";
}

void print_codecs() {
  bool first = true;
  for (const auto& c : codecs()) {
    std::printf("%s%s: %s\n", first ? "" : "\n", std::string(c.name).c_str(), std::string(c.summary).c_str());
    first = false;
    std::printf("  formula    %s\n", std::string(c.formula).c_str());
    std::printf("  source     %s\n", std::string(c.source).c_str());
    std::printf("  full text  %s\n", make_codec(c.name)->spec().c_str());
    std::printf(
        "  payload    %s bits a value, %s%s\n", std::string(c.bits).c_str(),
        c.traits.fixed_size ? "fixed size: depends on the element count only" : "variable size: depends on the values",
        c.traits.summable ? ", summable" : "");
    std::printf("  algorithms %s\n", algorithms_text(*make_codec(c.name)).c_str());
    std::printf("  use        %s\n", std::string(c.use).c_str());
    std::printf("  memory     %s%s\n", name_of(c.traits.memory),
                !c.traits.biased                        ? ""
                : c.traits.memory == FeedbackKind::none ? " (biased)"
                                                        : " (biased: needs one)");
    std::printf("  range      %s\n", range_of(c.traits).c_str());
    for (const auto& p : c.parameters)
      std::printf("  parameter  %s=%s, legal: %s\n             %s\n", std::string(p.key).c_str(),
                  value_text(p, p.default_value).c_str(), legal_text(p).c_str(), std::string(p.help).c_str());
  }
}

void print_algorithms() {
  for (const auto& entry : algorithms()) {
    std::string names, errors;
    for (const auto& c : codecs()) {
      const auto codec = make_codec(c.name);
      if (!entry.why_unsupported(*codec, 2).empty()) continue;
      names += (names.empty() ? "" : ", ") + std::string(c.name);
      if (entry.error(*codec, 2) > 1)
        errors += (errors.empty() ? "" : ", ") + std::string(c.name) + " " + factor_text(entry.error(*codec, 2));
    }
    std::printf("%-14s %s\n%-14s codecs: %s\n", entry.name, entry.summary, "", names.c_str());
    if (entry.algorithm == Algorithm::node_sum) std::printf("%-14s error: none\n", "");
    else if (!entry.plan)
      std::printf("%-14s error, times allgather's: that of the algorithm between the leaders\n", "");
    else
      std::printf("%-14s error, times allgather's (CRIMP_QUALITY): %s\n", "",
                  errors.empty() ? "1" : (errors + "; others 1").c_str());
  }
}

// Why an algorithm refuses codecs, each with those that it refuses as they are by default, and the memories with which
// it refuses others.
void print_refusals() {
  for (const auto& entry : algorithms()) {
    std::map<std::string, std::vector<std::string>> refused;
    for (const auto& c : codecs()) {
      const std::string own = entry.why_unsupported(*make_codec(c.name), 2);
      if (!own.empty()) refused[own].push_back(std::string(c.name));
      for (const char* memory : {"none", "residual", "momentum", "average"}) {
        std::string why;
        try {
          why = entry.why_unsupported(*make_codec(std::string(c.name) + ":memory=" + memory), 2);
        } catch (const Error&) {
          continue;  // a memory that the codec refuses
        }
        const std::string with = std::string("all with `memory=") + memory + "`";
        if (own.empty() && !why.empty() &&
            std::find(refused[why].begin(), refused[why].end(), with) == refused[why].end())
          refused[why].push_back(with);
      }
    }
    for (const auto& [why, names] : refused) {
      std::string list;
      for (const auto& name : names) list += (list.empty() ? "" : ", ") + name;
      std::printf(
          "- `%s`: %s (%s)\n", entry.name, why.c_str(),
          names.size() > codecs().size() / 2 ? (std::to_string(names.size()) + " codecs").c_str() : list.c_str());
    }
  }
}

// docs/codecs.md. A bar in a text would end a table's cell.
void print_codecs_as_markdown() {
  std::printf(
      "# Codecs\n\nMade by `crimp info --codecs --markdown`; bytes are in src/codec/WIRE_FORMAT.md. a: gradient and memory, d: what the payload "
      "decodes to.\nEvery codec also takes `memory=none|residual|momentum|average`, `decay=` and `gamma=` (a = gamma gradient + decay residual, where one is\nkept; results are gamma times the sums), `momentum=`, `nesterov=1` (of the memory momentum) and `force=1`.\nThe memory momentum forgets the momentum of elements that are sent: of codecs that send all of them (fp16, 8bit) hardly any is left.\n"
      "\n## What an algorithm does to a codec\n\n"
      "`allgather` adds the payloads of all ranks: the codec's own error, once. `low_rank`, `homomorphic` and `integer_sum` sum what stands in the payloads, and add nothing.\n"
      "`hierarchical` adds the values of a node exactly and encodes the sums of nodes: as much error as allgather where gradients are independent, up to as many times as a node\n"
      "has ranks where they agree, because fewer encodings are averaged.\n"
      "`two_shot` encodes twice, by the ranks and then, as a sum, by its owner. The error behind its name below is how many times allgather's it is, for the codec's defaults and\n"
      "ranks whose gradients are independent of each other: of the squared error, 2 and what one encoding loses of the energy (qsgd `2 + min(bucket / (6 s^2), sqrt(bucket / 2) / s)`,\n"
      "terngrad `1 + 0.75 min(clip, 6)`); or, where error feedback returns what is lost (owners keep a residual of their own), of the norm of what all residuals hold, which is the number of calls by\n"
      "which gradients come late (3lc `1.2 + 1.2 s^2`). 1: it adds nothing. Where gradients agree allgather's error falls with the ranks and the owners' does not: of N equal gradients it is up to\n"
      "`1 + N (error - 1)` times. `CRIMP_QUALITY` says what the chooser may take; [quality.md](quality.md) has measurements.\n"
      "\nWhat they refuse:\n\n");
  print_refusals();
  for (const auto& c : codecs()) {
    std::printf("\n## %s\n\n%s.\n\n", std::string(c.name).c_str(), std::string(c.summary).c_str());
    const auto line = [](const char* what, const std::string& text) { std::printf("- %s: %s\n", what, text.c_str()); };
    line("formula", "`" + std::string(c.formula) + "`");
    line("source", std::string(c.source));
    line("bits per value",
         std::string(c.bits) + (c.traits.fixed_size ? ", fixed size" : ", size depends on the values"));
    line("biased", c.traits.biased ? "yes" : "no");
    line("memory", std::string(name_of(c.traits.memory)) +
                       (c.traits.diverges_with_residual
                            ? "; `memory=residual` is known to diverge and needs `force=1`, as does `memory=momentum`"
                            : ""));
    line("summable", c.traits.summable ? "yes" : "no");
    line("algorithms", algorithms_text(*make_codec(c.name)));
    line("range", range_of(c.traits));
    line("use", std::string(c.use));
    for (const auto& p : c.parameters)
      line(("parameter `" + std::string(p.key) + "`").c_str(),
           std::string(p.help) + "; default " + value_text(p, p.default_value) + ", legal " + legal_text(p));
  }
}

}  // namespace

int info(Arguments arguments) {
  bool env = false, markdown = false, list_codecs = false, list_algorithms = false, list_profiles = false;
  CommandLine app("Shows the build, the codecs with their parameters, and the settings.", "crimp info");
  app.flag("--codecs", list_codecs, "All codecs: parameters, defaults, legal values, sources");
  app.flag("--algorithms", list_algorithms, "All algorithms, and the codecs that each can run on two ranks");
  app.flag("--env", env, "All CRIMP_* variables: defaults, legal values, meaning");
  app.flag("--profiles", list_profiles,
           "The profiles of CRIMP_PROFILE: their settings, and what they cost in accuracy");
  app.flag(
      "--markdown", markdown,
      "--env as the Markdown table of docs/settings.md, --codecs as docs/codecs.md, --profiles as the table of docs/running.md");
  if (const auto code = app.parse(arguments)) return *code;
  if (markdown && !env && !list_codecs && !list_profiles) {
    std::fprintf(stderr, "crimp: info --markdown is a form of --env, --codecs or --profiles; give one of them\n");
    return 2;
  }
  if (env) std::fputs((markdown ? options_as_markdown() : options_as_text()).c_str(), stdout);
  if (list_codecs) markdown ? print_codecs_as_markdown() : print_codecs();
  if (list_algorithms) print_algorithms();
  if (list_profiles) std::fputs((markdown ? profiles_as_markdown() : profiles_as_text()).c_str(), stdout);
  if (!env && !list_codecs && !list_algorithms && !list_profiles) print_build();
  return 0;
}

}  // namespace crimp::tools
