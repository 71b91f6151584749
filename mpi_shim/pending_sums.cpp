#include "pending_sums.hpp"

#include "half_ops.hpp"
#include "mpi/nonblocking.hpp"
#include "mpi/runtime.hpp"
#include "progress.hpp"

namespace crimp {
namespace {

class PendingSum final : public Pending {
 public:
  explicit PendingSum(bool persistent) : persistent_(persistent) { finished = persistent; }
  void set(std::unique_ptr<NonblockingSum> sum) noexcept { sum_ = std::move(sum); }
  int finish(int rc) override {
    if (rc != MPI_SUCCESS) return rc;
    return attempt(sum_->comm(), failure, [&] { return sum_->finish(), MPI_SUCCESS; });
  }
  int start() override {
    return attempt(sum_->comm(), failure, [&] { return sum_->start(), MPI_SUCCESS; });
  }
  bool look(StallWatch& watch, const char* function) const noexcept override {
    sum_->look(watch, function);
    return true;
  }
  void started() noexcept override { sum_->started(); }
  bool persistent() const override { return persistent_; }
  MPI_Comm comm() const override { return sum_->comm(); }

 private:
  std::unique_ptr<NonblockingSum> sum_;
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
  auto sum = persistent ? sums->init(asked, why) : sums->make_sum(asked, why);
  if (!sum) return false;
  // Behind its start nothing may fail: MPI writes into it.
  Requests::Room room = insist([] { return Requests::Room(); });
  auto pending = insist([&] { return std::make_unique<PendingSum>(persistent); });
  if (!persistent) sum->start();
  *request = sum->request();
  pending->set(std::move(sum));
  room.fill(*request, std::move(pending));
  return true;
}

}  // namespace crimp
