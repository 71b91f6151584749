// CRIMP_STATUS: a thread of rank 0's that looks at the report now and then and says how far the job has come. Calls
// know nothing of it; where it is not asked for it does not exist. It calls no MPI, holds back nobody's signals, and
// writes only where that does not block.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/clock.hpp"
#include "core/output_file.hpp"
#include "core/progress.hpp"

namespace crimp {

class Report;

class StatusLine {
 public:
  // where: of CRIMP_STATUS, not "off". Throws where no thread can be started. The report outlives this.
  StatusLine(std::string where, Report&);
  // Says the last time what there is to say, and ends the thread.
  ~StatusLine();
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;

  // Of another file of the job's; null: this is none.
  const OutputFile* file() const { return file_ ? &*file_ : nullptr; }

 private:
  void loop();
  void say(bool last);

  Report& report_;
  std::optional<OutputFile> file_;
  bool live_ = false, shown_ = false, failed_ = false;
  long process_;  // a child of it does not have the thread
  Clock::time_point begun_ = Clock::now();
  JobProgress before_;
  std::string said_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace crimp
