// crimp status: shows what a job writes under CRIMP_STATUS=FILE.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>

#include "commands.hpp"
#include "core/plain_text.hpp"
#include "exit_code.hpp"

namespace crimp::tools {
namespace {

constexpr double kSilent = 10, kGone = 60;  // seconds; it is written once a second

struct Said {
  std::string line;
  double age_s = 0;  // since it was written
  bool ended() const { return line.starts_with("crimp ended"); }
  bool gone() const { return !line.empty() && !ended() && age_s > kGone; }
};

// Nothing where there is no such file yet.
Said read_status(const std::string& file) {
  struct stat found;
  if (::stat(file.c_str(), &found) != 0) return {};
  if (!S_ISREG(found.st_mode))
    throw Error(ErrorCode::argument_invalid, "status: '" + file + "' is no regular file, and so none of CRIMP_STATUS");
  Said said;
  std::ifstream stream(file);
  char text[1024] = "";
  stream.getline(text, sizeof text);
  said.line = text;
  said.age_s = std::difftime(std::time(nullptr), found.st_mtime);
  if (!said.line.starts_with("crimp"))
    throw Error(ErrorCode::argument_invalid,
                "status: '" + file + "' holds something else than what CRIMP_STATUS writes");
  said.line = plain_text(said.line);
  return said;
}

std::string shown(const Said& said) {
  if (said.ended() || said.age_s < kSilent) return said.line;
  return said.line + " (nothing new for " + std::to_string(static_cast<long>(said.age_s)) +
         " s: the job has ended without MPI_Finalize, or is stopped)";
}

}  // namespace

int status(Arguments arguments) {
  std::string file;
  bool once = false;
  CommandLine app(
      "Shows how far a job has come that was started with CRIMP_STATUS=FILE or crimp run --status=FILE: on a terminal one line until the\n"
      "job has ended or an interrupt, elsewhere what is so now. Exit code 0: there was something to show; 1: the job has written nothing yet, or\n"
      "nothing new for a minute.",
      "crimp status");
  const auto given = app.option("file", file, "The file of CRIMP_STATUS");
  app.flag("--once", once, "Print what is so now, and end, on a terminal, too");
  if (const auto code = app.parse(std::move(arguments))) return *code;
  if (!given.given())
    throw Error(ErrorCode::argument_invalid,
                "status: the file is missing that CRIMP_STATUS names; as in: crimp status job.status");
  Said said = read_status(file);
  if (once || !::isatty(STDOUT_FILENO)) {
    if (said.line.empty()) {
      std::fprintf(stderr, "crimp: status: '%s' is not there (yet): rank 0 writes it from MPI_Init on\n", file.c_str());
      return kNotSo;
    }
    return std::printf("%s\n", shown(said).c_str()), said.gone() ? kNotSo : kDone;
  }
  for (;; said = read_status(file)) {
    // Without wrapping: a line that is too wide is cut, in place of a new one each time.
    std::printf("\r\x1b[K\x1b[?7l%s\x1b[?7h", said.line.empty() ? "crimp: not started yet" : shown(said).c_str());
    std::fflush(stdout);
    if (said.ended() || said.gone()) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
  std::printf("\n");
  return said.gone() ? kNotSo : kDone;
}

}  // namespace crimp::tools
