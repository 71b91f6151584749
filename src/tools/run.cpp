// crimp run: mpirun with the preload and the settings.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "codec/codec.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/settings.hpp"

extern char** environ;

namespace crimp::tools {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::argument_invalid, what); }

fs::path find_library() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  std::string tried;
  for (const char* place : {"../" CRIMP_LIBRARY_DIRECTORY, "../lib", "..", "."}) {
    const fs::path candidate = (here / place / "libcrimp.so").lexically_normal();
    if (fs::exists(candidate)) return candidate;
    tried += (tried.empty() ? "" : ", ") + candidate.string();
  }
  refuse("libcrimp.so was not found (tried " + tried + "); give its place with --library");
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

void check_settings() {
  std::vector<Complaint> complaints;
  const Settings settings = read_settings(environ, complaints);
  for (const auto& c : complaints) {
    if (c.illegal) refuse(c.text);
    std::fprintf(stderr, "crimp run: %s\n", c.text.c_str());
  }
  if (settings.codec != "auto" && settings.codec != "none") make_codec(settings.codec);
  if (settings.unknown_layout != "none") make_codec(settings.unknown_layout);
}

std::string in_shell(const std::string& word) {
  const auto plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("_@%+=:,./-", c); };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// Takes `-x LD_PRELOAD=...` out of mpirun's options, and lists the names that other -x options export.
std::string take_preload(Arguments& options, std::vector<std::string>& exported) {
  const char* inherited = std::getenv("LD_PRELOAD");
  std::string found = inherited ? inherited : "";
  for (std::size_t i = 0; i + 1 < options.size(); ++i) {
    if (options[i] != "-x") continue;
    const std::string value = options[i + 1];
    if (value.starts_with("LD_PRELOAD")) {
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

}  // namespace

int run(Arguments arguments) {
  std::string codec, report, trace, library;
  bool dry_run = false;
  CommandLine app(
      "Starts an MPI program with Crimp preloaded in every rank, by mpirun from the PATH or from $MPIRUN.\n"
      "Its exit code is mpirun's.\n\n"
      "  crimp run [OPTIONS] [MPIRUN OPTIONS] -- PROGRAM [ARGUMENTS]",
      "crimp run");
  app.help_flag("--help", "Print this help and exit");  // -h would swallow mpirun's -host
  app.allow_others();
  app.option("--codec", codec, "Sets CRIMP_CODEC: 3lc, fp16, codec:parameter=value (crimp info --codecs)");
  app.option("--report", report, "Sets CRIMP_REPORT: a JSON file, written at the end");
  app.option("--trace", trace, "Sets CRIMP_TRACE: a file for Perfetto, written at the end");
  app.option("--library", library, "The libcrimp.so to preload; without: the one beside this command");
  app.flag("--dry-run", dry_run, "Print the command, start nothing");
  app.footer(
      "Everything else in front of -- goes to mpirun as it is. All CRIMP_* variables of the environment are passed to the ranks.\n"
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

  if (!codec.empty()) setenv("CRIMP_CODEC", codec.c_str(), 1);
  if (!report.empty()) setenv("CRIMP_REPORT", fs::absolute(report).c_str(), 1);
  if (!trace.empty()) setenv("CRIMP_TRACE", fs::absolute(trace).c_str(), 1);
  check_settings();

  if (!library.empty() && !fs::exists(library)) refuse("run: --library " + library + " does not exist");
  library = fs::absolute(library.empty() ? find_library() : fs::path(library)).lexically_normal().string();
  if (library.find_first_of(": ") != library.npos)
    refuse("run: '" + library +
           "' cannot be preloaded, because LD_PRELOAD splits at spaces and colons; use a link to it (--library)");

  Arguments options = app.others();
  std::vector<std::string> exported;
  Arguments ours{"-x", "LD_PRELOAD=" + preload(library, take_preload(options, exported))};
  for (char** entry = environ; *entry; ++entry) {
    const std::string text(*entry);
    if (!text.starts_with("CRIMP_") || std::count(exported.begin(), exported.end(), text.substr(0, text.find('='))))
      continue;
    ours.insert(ours.end(), {"-x", text});
  }

  const char* mpirun = std::getenv("MPIRUN");
  Arguments command{mpirun && *mpirun ? mpirun : "mpirun"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), ours.begin(), ours.end());
  for (const auto& word : program) {
    command.push_back(word);
    // mpirun's ":" starts another program, which takes none of the first one's -x.
    if (word == ":") command.insert(command.end(), ours.begin(), ours.end());
  }

  if (dry_run) {
    for (std::size_t i = 0; i < command.size(); ++i) std::printf("%s%s", i ? " " : "", in_shell(command[i]).c_str());
    std::printf("\n");
    return 0;
  }
  std::vector<char*> words;
  for (auto& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execvp(words[0], words.data());
  std::fprintf(stderr, "crimp run: '%s' could not be started: %s; put mpirun on the PATH or its path in MPIRUN\n",
               words[0], std::strerror(errno));
  return 127;
}

}  // namespace crimp::tools
