#include "mpi/job_files.hpp"

#include <mpi.h>

#include <utility>

#include "core/environment.hpp"
#include "core/log.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_gather.hpp"

namespace crimp {

void JobFiles::agree(const Settings& settings, int rank, int size, bool together) {
  rank_ = rank, size_ = size, together_ = together && size > 1;
  int files[2] = {!settings.report.empty(), !settings.trace.empty()};
  if (together_) check_mpi(PMPI_Bcast(files, 2, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast");
  gather_report_ = files[0];
  gather_trace_ = files[1];
}

void JobFiles::open(const Settings& settings, Report& report) {
  settings_ = &settings;
  report_ = &report;
  if (gather_trace_) {
    trace_ = std::make_unique<Trace>(together_ ? size_ : 1);
    clock_.open(rank_, together_ ? size_ : 1);
  }
  if (rank_ != 0) return;
  const auto open = [](std::optional<OutputFile>& file, const char* option, const std::string& name) {
    if (name.empty()) return;
    logged(option, [&] {
      file.emplace(name);
      if (const std::string why = file->obstacle(); !why.empty())
        log(LogLevel::error, std::string(option) + ": " + why + "; it is tried again at MPI_Finalize");
    });
  };
  open(report_file_, "CRIMP_REPORT", settings.report);
  open(trace_file_, "CRIMP_TRACE", settings.trace);
  logged("CRIMP_TRACE", [&] {
    if (!report_file_ || !trace_file_ || !trace_file_->is(*report_file_)) return;
    trace_file_.reset();
    log(LogLevel::error, "CRIMP_TRACE: '" + settings.trace +
                             "' is the file of CRIMP_REPORT, too: no trace is written. Give it another name");
  });
  if (settings.status != "off") logged("CRIMP_STATUS", [&] { open_status(); });
}

void JobFiles::open_status() {
  status_ = std::make_unique<StatusLine>(settings_->status, *report_);
  const OutputFile* const file = status_->file();
  if (!file || !((report_file_ && file->is(*report_file_)) || (trace_file_ && file->is(*trace_file_)))) return;
  status_.reset();
  log(LogLevel::error, "CRIMP_STATUS: '" + settings_->status +
                           "' is the file of CRIMP_REPORT or CRIMP_TRACE, too: no status is written. Give it another "
                           "name");
}

void JobFiles::write(const char* option, const std::optional<OutputFile>& file,
                     const std::function<std::string()>& part,
                     const std::function<std::string(const std::vector<std::string>&)>& text) {
  logged(option, [&] {
    std::string mine;
    logged(option, [&] { mine = part(); });
    std::optional<std::vector<std::string>> all;
    if (together_) all = gather_texts(std::move(mine), rank_, size_);
    else all.emplace(1, std::move(mine));
    if (!file || !all) return;
    if (const std::string why = file->write(text(*all)); !why.empty())
      log(LogLevel::error, std::string(option) + ": " + why);
  });
}

void JobFiles::write(const std::function<std::string(const std::vector<std::string>&)>& report) {
  if (gather_report_)
    write(
        "CRIMP_REPORT", report_file_, [&] { return report_->json(); }, report);
  if (!gather_trace_) return;
  logged("CRIMP_TRACE", [&] { clock_.compare_again(); });
  logged("CRIMP_TRACE", [&] { clock_.close(); });
  write(
      "CRIMP_TRACE", trace_file_,
      [&] {
        return trace_->events({rank_, host_name(), clock_.line()});
      },
      [&](const auto& texts) { return trace_file(*settings_, texts); });
}

}  // namespace crimp
