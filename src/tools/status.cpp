// crimp status: shows what a job writes under CRIMP_STATUS=FILE.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "commands.hpp"
#include "core/clock.hpp"
#include "core/plain_text.hpp"
#include "exit_code.hpp"

namespace crimp::tools {
namespace {

// Seconds; it is written once a second, so that something new comes within kAgain.
constexpr double kSilent = 10, kGone = 60, kAgain = 1.5;

struct Said {
  std::string line;
  timespec written{};
  bool ended() const { return line.starts_with("crimp ended"); }
  bool operator==(const Said& o) const {
    return line == o.line && written.tv_sec == o.written.tv_sec && written.tv_nsec == o.written.tv_nsec;
  }
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
  said.written = found.st_mtim;
  if (!said.line.starts_with("crimp"))
    throw Error(ErrorCode::argument_invalid,
                "status: '" + file + "' holds something else than what CRIMP_STATUS writes");
  said.line = plain_text(said.line);
  return said;
}

// What the file says, and for how long. The time of a file is its host's, whose clock may be another than this one: it
// counts only where nothing new has come for kAgain since the first look.
class Watch {
 public:
  explicit Watch(std::string file) : file_(std::move(file)), said_(read_status(file_)) {}
  void look() {
    Said now = read_status(file_);
    if (now == said_) return;
    said_ = std::move(now);
    since_ = Clock::now();
    renewed_ = true;
  }
  const Said& said() const { return said_; }
  bool seems_old() const { return waits() && age_s() >= kSilent; }
  bool gone() const { return waits() && silent_s() > kGone; }
  std::string shown() const {
    const double silent = silent_s();
    if (!waits() || silent < kSilent) return said_.line;
    return said_.line + " (nothing new for " + std::to_string(static_cast<long>(silent)) +
           " s: the job has ended without MPI_Finalize, or is stopped)";
  }

 private:
  bool waits() const { return !said_.line.empty() && !said_.ended(); }
  double age_s() const { return std::difftime(std::time(nullptr), said_.written.tv_sec); }
  double silent_s() const {
    const double here = seconds(Clock::now() - since_);
    return renewed_ || here < kAgain ? here : std::max(here, age_s());
  }
  std::string file_;
  Said said_;
  Clock::time_point since_ = Clock::now();
  bool renewed_ = false;
};

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
  Watch watch(file);
  if (once || !::isatty(STDOUT_FILENO)) {
    if (watch.seems_old()) {
      std::this_thread::sleep_for(std::chrono::duration<double>(kAgain));
      watch.look();
    }
    if (watch.said().line.empty()) {
      std::fprintf(stderr, "crimp: status: '%s' is not there (yet): rank 0 writes it from MPI_Init on\n", file.c_str());
      return kNotSo;
    }
    return std::printf("%s\n", watch.shown().c_str()), watch.gone() ? kNotSo : kDone;
  }
  for (;; watch.look()) {
    const bool gone = watch.gone();
    // Without wrapping: a line that is too wide is cut, in place of a new one each time.
    std::printf("\r\x1b[K\x1b[?7l%s\x1b[?7h",
                watch.said().line.empty() ? "crimp: not started yet" : watch.shown().c_str());
    std::fflush(stdout);
    if (watch.said().ended() || gone) return std::printf("\n"), gone ? kNotSo : kDone;
    std::this_thread::sleep_for(std::chrono::milliseconds(250));
  }
}

}  // namespace crimp::tools
