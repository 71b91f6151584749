// What a job says of itself in files: CRIMP_REPORT, CRIMP_TRACE and CRIMP_STATUS. Rank 0 writes; the ranks' parts are
// gathered, so whether there is something to gather is rank 0's to say.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/output_file.hpp"
#include "core/report.hpp"
#include "core/settings.hpp"
#include "core/trace.hpp"
#include "mpi/mpi_clock.hpp"
#include "mpi/status_line.hpp"

namespace crimp {

class JobFiles {
 public:
  // What is to be gathered. Collective over MPI_COMM_WORLD where `together` and there are several ranks.
  void agree(const Settings&, int rank, int size, bool together);
  // Compares clocks with rank 0's (collective likewise), opens the files and says what is wrong with them, while there
  // is time to stop the job. Both outlive this.
  void open(const Settings&, Report&);
  // The last of what CRIMP_STATUS says.
  void end_status() { status_.reset(); }
  // Collective likewise: whatever fails on one rank, it takes part like the others. report: rank 0's file, of the
  // ranks' parts.
  void write(const std::function<std::string(const std::vector<std::string>&)>& report);

  bool report_wanted() const { return gather_report_; }
  bool tensors_wanted() const { return gather_report_ || status_; }  // how they do
  Trace* trace() const { return trace_.get(); }                      // null: there is none

 private:
  void open_status();
  void write(const char* option, const std::optional<OutputFile>&, const std::function<std::string()>& part,
             const std::function<std::string(const std::vector<std::string>&)>& text);

  const Settings* settings_ = nullptr;
  Report* report_ = nullptr;
  int rank_ = 0, size_ = 1;
  bool together_ = false, gather_report_ = false, gather_trace_ = false;
  std::unique_ptr<Trace> trace_;
  MpiClock clock_;
  std::optional<OutputFile> report_file_, trace_file_;  // of the rank that writes
  std::unique_ptr<StatusLine> status_;                  // likewise
};

}  // namespace crimp
