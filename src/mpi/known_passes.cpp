#include "mpi/known_passes.hpp"

#include <algorithm>

#include "core/reserve.hpp"

namespace crimp {

bool KnownPasses::Pass::of(const AllreduceRequest& request) const {
  const bool same_shares = shares == request.shares || (shares && request.shares && *shares == *request.shares);
  return count == request.count && dtype == request.dtype && same_shares &&
         layout.has_value() == (request.layout != nullptr) && (!layout || *layout == request.layout->digest());
}

const KnownPasses::Pass* KnownPasses::find(const AllreduceRequest& request) const {
  for (const Pass& pass : passes_)
    if (pass.of(request)) return &pass;
  return nullptr;
}

KnownPasses::Pass& KnownPasses::add(const AllreduceRequest& request, const CallPlan& plan,
                                    const Chooser::Settled& settled) {
  auto known = std::find_if(passes_.begin(), passes_.end(), [&](const Pass& pass) { return pass.of(request); });
  if (known == passes_.end()) {
    insist([&] { passes_.reserve(most_); });
    if (passes_.size() == most_) passes_.erase(passes_.begin());
    const auto layout = request.layout ? std::optional(request.layout->digest()) : std::nullopt;
    known = passes_.insert(passes_.end(), Pass{layout, request.count, request.dtype, request.shares});
  }
  const bool again = known->settled.codec == settled.codec && known->settled.state == settled.state;
  known->seen = again && known->seen > 0 ? known->seen + 1 : 1;
  known->settled = settled;
  known->kind = plan.kind_digest;
  known->elements = plan.parts[0].query.count;
  known->plain_bytes = plan.parts[0].query.plain_bytes;
  return *known;
}

}  // namespace crimp
