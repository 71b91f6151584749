#include "mpi/status_line.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "core/blocked_signals.hpp"
#include "core/held_signals.hpp"
#include "core/log.hpp"
#include "core/report.hpp"

namespace crimp {
namespace {

using namespace std::chrono_literals;

// A pipe that can be written to takes so much at once.
constexpr std::size_t kMost = 512;

// Left out where the other end does not read: the job does not wait for it.
void write_now(const std::string& text) {
  const HeldSignals held;
  pollfd ready{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return;
  if (::write(STDERR_FILENO, text.data(), std::min(text.size(), kMost)) < 0) return;
}

}  // namespace

StatusLine::StatusLine(std::string where, Report& report) : report_(report), process_(::getpid()) {
  if (where == "live" || where == "stderr") live_ = where == "live" || ::isatty(STDERR_FILENO) == 1;
  else file_.emplace(where);
  if (file_)
    if (const std::string why = file_->obstacle(); !why.empty())
      log(LogLevel::error, "CRIMP_STATUS: " + why + "; it is tried again while the job runs");
  const BlockedSignals blocked;
  thread_ = std::thread([this] { logged("CRIMP_STATUS", [this] { loop(); }); });
}

StatusLine::~StatusLine() {
  if (process_ != ::getpid()) {
    thread_.detach();
    return;
  }
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  logged("CRIMP_STATUS", [this] { say(true); });
}

// Lines: the first one soon, so that who waits for it sees that it works.
void StatusLine::loop() {
  std::unique_lock lock(mutex_);
  auto next = Clock::now() + (file_ || live_ ? 250ms : 2000ms);
  while (!wake_.wait_until(lock, next, [this] { return stop_; })) {
    lock.unlock();
    say(false);
    lock.lock();
    next = Clock::now() + (live_ ? 250ms : file_ ? 1000ms : 10000ms);
  }
}

void StatusLine::say(bool last) {
  report_.want_times();
  const JobProgress now = report_.progress();
  const std::string text = progress_text(now, before_, seconds(Clock::now() - begun_));
  before_ = now;
  if (file_) {
    const std::string why = file_->write((last ? "crimp ended: " : "crimp: ") + text + "\n");
    if (!why.empty() && !failed_) log(LogLevel::error, "CRIMP_STATUS: " + why);
    failed_ = !why.empty();
  } else if (live_) {
    // The last one goes: what comes behind it is the summary.
    if (last) {
      if (shown_) write_now("\r\x1b[K");
    } else if (text != said_) {
      write_now("\r\x1b[K\x1b[?7lcrimp: " + text + "\x1b[?7h");  // a line that is too wide is cut
      shown_ = true;
    }
  } else if (!last) {
    write_now("crimp: " + text + "\n");
  }
  said_ = text;
}

}  // namespace crimp
