// crimp info: what this build is and can do.
#include <hwy/targets.h>
#include <mpi.h>

#include <cmath>
#include <cstdio>

#include "comm/algorithms.hpp"
#include "commands.hpp"
#include "crimp/codec.hpp"
#include "crimp/config.hpp"
#include "crimp/crimp.h"

namespace crimp::tools {
namespace {

std::string built_with_mpi() {
#if defined(OPEN_MPI)
  return "Open MPI " + std::to_string(OMPI_MAJOR_VERSION) + "." + std::to_string(OMPI_MINOR_VERSION) + "." + std::to_string(OMPI_RELEASE_VERSION);
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
  for (; targets; targets &= targets - 1) names += (names.empty() ? "" : " ") + std::string(hwy::TargetName(targets & -targets));
  return names;
}

void print_build() {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(mpi, &length);  // allowed before MPI_Init
  const char* sanitizers = CRIMP_SANITIZERS;
  std::printf("crimp      %s (libcrimp.so %s)\n", CRIMP_VERSION, crimp_version());
  std::printf("build      %s, %s%s%s\n", CRIMP_BUILD_TYPE, CRIMP_COMPILER, *sanitizers ? ", sanitizers " : "", sanitizers);
  std::printf("MPI        built with %s, running with %s\n", built_with_mpi().c_str(), first_line(mpi).c_str());
  std::printf("SIMD       compiled: %s; chosen here: %s\n", target_names(HWY_TARGETS).c_str(), simd_target().c_str());
  std::string names;
  for (const auto& c : codecs()) names += (names.empty() ? "" : ", ") + std::string(c.name);
  std::printf("codecs     %s\n", names.c_str());
}

std::string range_of(const Codec::Traits& traits) {
  const auto power = [](float x) { return "2^" + std::to_string(std::ilogb(x)); };
  const std::string above = "values up to " + power(traits.max_magnitude);
  return (traits.min_magnitude > 0 ? "tensors whose largest value is " + power(traits.min_magnitude) + " or more, " + above : above) + "; others go through MPI";
}

void print_codecs() {
  bool first = true;
  for (const auto& c : codecs()) {
    std::printf("%s%s: %s\n", first ? "" : "\n", std::string(c.name).c_str(), std::string(c.summary).c_str());
    first = false;
    std::printf("  formula    %s\n", std::string(c.formula).c_str());
    std::printf("  source     %s\n", std::string(c.source).c_str());
    std::printf("  full text  %s\n", make_codec(c.name)->spec().c_str());
    std::printf("  payload    %s bits a value, %s%s\n", std::string(c.bits).c_str(),
                c.traits.fixed_size ? "fixed size: depends on the element count only" : "variable size: depends on the values",
                c.traits.summable ? ", summable" : "");
    std::printf("  use        %s\n", std::string(c.use).c_str());
    std::printf("  memory     %s%s\n", name_of(c.traits.memory), !c.traits.biased ? "" : c.traits.memory == MemoryKind::none ? " (biased)" : " (biased: needs one)");
    std::printf("  range      %s\n", range_of(c.traits).c_str());
    for (const auto& p : c.parameters)
      std::printf("  parameter  %s=%s, legal: %s\n             %s\n", std::string(p.key).c_str(), std::string(p.default_value).c_str(),
                  std::string(p.legal).c_str(), std::string(p.meaning).c_str());
  }
}

void print_algorithms() {
  for (const auto& entry : algorithms()) {
    std::string names;
    for (const auto& c : codecs())
      if (entry.obstacle(*make_codec(c.name), 2).empty()) names += (names.empty() ? "" : ", ") + std::string(c.name);
    std::printf("%-14s %s\n%-14s codecs: %s\n", entry.name, entry.summary, "", names.c_str());
  }
}

// docs/codecs.md. A bar in a text would end a table's cell.
void print_codecs_as_markdown() {
  std::printf("# Codecs\n\nMade by `crimp info --codecs --markdown`; bytes are in src/codec/WIRE_FORMAT.md. a: gradient and memory, d: what the payload "
              "decodes to.\nEvery codec also takes `memory=none|residual|momentum|average`, `decay=` (of a residual), `momentum=` and `force=1`.\n");
  for (const auto& c : codecs()) {
    std::printf("\n## %s\n\n%s.\n\n", std::string(c.name).c_str(), std::string(c.summary).c_str());
    const auto line = [](const char* what, const std::string& text) { std::printf("- %s: %s\n", what, text.c_str()); };
    line("formula", "`" + std::string(c.formula) + "`");
    line("source", std::string(c.source));
    line("bits per value", std::string(c.bits) + (c.traits.fixed_size ? ", fixed size" : ", size depends on the values"));
    line("biased", c.traits.biased ? "yes" : "no");
    line("memory", std::string(name_of(c.traits.memory)) + (c.traits.diverges_with_residual ? "; `memory=residual` is known to diverge and needs `force=1`" : ""));
    line("summable", c.traits.summable ? "yes" : "no");
    line("range", range_of(c.traits));
    line("use", std::string(c.use));
    for (const auto& p : c.parameters)
      line(("parameter `" + std::string(p.key) + "`").c_str(), std::string(p.meaning) + "; default " + std::string(p.default_value) + ", legal " + std::string(p.legal));
  }
}

}  // namespace

int info(Arguments arguments) {
  bool env = false, markdown = false, list_codecs = false, list_algorithms = false;
  CLI::App app("Shows the build, the codecs with their parameters, and the settings.", "crimp info");
  app.add_flag("--codecs", list_codecs, "All codecs: parameters, defaults, legal values, sources");
  app.add_flag("--algorithms", list_algorithms, "All algorithms, and the codecs that each can run on two ranks");
  app.add_flag("--env", env, "All CRIMP_* variables: defaults, legal values, meaning");
  app.add_flag("--markdown", markdown, "--env as the Markdown table of README.md, --codecs as docs/codecs.md");
  if (const auto code = parse(app, arguments)) return *code;
  if (markdown && !env && !list_codecs) {
    std::fprintf(stderr, "crimp: info --markdown is a form of --env or of --codecs; give one of them\n");
    return 2;
  }
  if (env) std::fputs((markdown ? options_as_markdown() : options_as_text()).c_str(), stdout);
  if (list_codecs) markdown ? print_codecs_as_markdown() : print_codecs();
  if (list_algorithms) print_algorithms();
  if (!env && !list_codecs && !list_algorithms) print_build();
  return 0;
}

}  // namespace crimp::tools
