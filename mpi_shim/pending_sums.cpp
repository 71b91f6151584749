#include "pending_sums.hpp"

#include "half_ops.hpp"
#include "mpi/nonblocking.hpp"
#include "mpi/runtime.hpp"
#include "progress.hpp"

namespace crimp {
namespace {

class PendingSum final : public Pending {
 public:
  PendingSum(std::unique_ptr<NonblockingSum> sum, bool persistent) : sum_(std::move(sum)), persistent_(persistent) {
    finished = persistent;
  }
  int finish(int rc) override {
    if (rc != MPI_SUCCESS) return rc;
    return guard(sum_->comm(), [&] { return sum_->finish(), MPI_SUCCESS; });
  }
  int start() override {
    const int rc = guard(sum_->comm(), [&] { return sum_->start(), MPI_SUCCESS; });
    finished = rc != MPI_SUCCESS;
    return rc;
  }
  bool persistent() const override { return persistent_; }

 private:
  const std::unique_ptr<NonblockingSum> sum_;
  const bool persistent_;
};

}  // namespace

bool carry(const SumCall& call, const Eligibility& eligible, const AllreduceRequest& asked, bool persistent,
           MPI_Request* request, PassReason* why) {
  if (may_sum_halves(call.op) && !sums_halves(call.op, call.datatype)) {
    *why = PassReason::operation;
    return false;
  }
  if (!persistent && start_in_lane(call, eligible, asked.shares, asked.rank, request)) return true;
  const auto sums = Runtime::get().nonblocking(call.comm, why);
  if (!sums) return false;
  auto sum = persistent ? sums->init(asked, why) : sums->start(asked, why);
  if (!sum) return false;
  const MPI_Request made = sum->request();
  std::unique_ptr<Pending> pending = insist([&] { return std::make_unique<PendingSum>(std::move(sum), persistent); });
  insist([&] { Requests::get().add(made, std::move(pending)); });
  *request = made;
  return true;
}

}  // namespace crimp
