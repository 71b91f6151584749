#include "mpi/arrivals.hpp"

#include "core/report.hpp"
#include "core/trace.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/own_handles.hpp"
#include "mpi/wait_texts.hpp"

namespace crimp {
namespace {

// What ranks waited at one meeting, added up in any order.
struct Waits {
  double least_s, rank, sum_s;  // rank: whose the least is, the lowest of several
};

MPI_Datatype waits_type() {
  static OwnType waits(3, MPI_DOUBLE);
  return waits.get();
}

MPI_Op waits_sum() {
  static OwnOp sum([](void* from, void* to, int* length, MPI_Datatype*) {
    const auto* a = static_cast<const Waits*>(from);
    auto* b = static_cast<Waits*>(to);
    for (int i = 0; i < *length; ++i) {
      if (a[i].least_s < b[i].least_s || (a[i].least_s == b[i].least_s && a[i].rank < b[i].rank))
        b[i].least_s = a[i].least_s, b[i].rank = a[i].rank;
      b[i].sum_s += a[i].sum_s;
    }
  });
  return sum.get();
}

}  // namespace

Arrivals::Arrivals(MPI_Comm comm, int rank, int size, const std::vector<int>& world_ranks, Trace* trace,
                   std::uint32_t in_trace)
    : comm_(comm), rank_(rank), size_(size), world_ranks_(world_ranks), trace_(trace), in_trace_(in_trace) {}

double Arrivals::meet(const AllreduceRequest& request, std::uint32_t number) {
  const double before_s = before_ ? seconds(before_->end - before_->begin) : 0;
  const Waits mine{before_s, static_cast<double>(rank_), before_s};
  Waits all{};
  const auto begin = Clock::now();
  MPI_Request meeting;
  check_mpi(PMPI_Iallreduce(&mine, &all, 1, waits_type(), waits_sum(), comm_, &meeting), "MPI_Iallreduce");
  wait_for(meeting, rank_, size_,
           [&] { return "in " + call_text(request) + " for the others to come to it (CRIMP_SKEW=1)"; });
  const auto end = Clock::now();
  if (before_) {
    const int last = static_cast<int>(all.rank);
    if (last == rank_) {
      ++record_.last;
      record_.late_s += all.sum_s - size_ * all.least_s;
    }
    trace(world_ranks_[static_cast<std::size_t>(last)], before_s - all.least_s);
  }
  before_ = {begin, end, number};
  ++record_.calls;
  record_.waited_s += seconds(end - begin);
  return seconds(end - begin);
}

void Arrivals::trace(int last, double lost_s) const {
  if (trace_) trace_->waited(in_trace_, before_->number, last, lost_s, before_->begin, before_->end);
}

void Arrivals::note_in(Report& report) const {
  report.skew(record_);
  if (before_) trace(-1, 0);
}

}  // namespace crimp
