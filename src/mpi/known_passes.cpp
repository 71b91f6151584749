#include "mpi/known_passes.hpp"

#include "core/reserve.hpp"

namespace crimp {

bool KnownPasses::Pass::of(const AllreduceRequest& request) const {
  const bool same_shares = shares == request.shares || (shares && request.shares && *shares == *request.shares);
  return count == request.count && dtype == request.dtype && same_shares &&
         layout.has_value() == (request.layout != nullptr) && (!layout || *layout == request.layout->digest());
}

const KnownPasses::Pass* KnownPasses::find(const AllreduceRequest& request) const {
  const Pass* const known = passes_.find(key_of(request));
  return known && known->of(request) ? known : nullptr;
}

KnownPasses::Key KnownPasses::key_of(const AllreduceRequest& request) {
  return {request.count, request.dtype, request.layout ? std::optional(request.layout->digest()) : std::nullopt,
          request.shares ? request.shares->collective : Collective::allreduce,
          request.shares ? request.shares->borders[1] : 0};
}

KnownPasses::Pass& KnownPasses::add(const AllreduceRequest& request, const CallPlan& plan,
                                    const Chooser::Settled& settled) {
  const Key key = key_of(request);
  const Pass* const before = find(request);
  Pass pass = before ? *before : Pass{std::get<2>(key), request.count, request.dtype, request.shares};
  const bool again = pass.settled.codec == settled.codec && pass.settled.state == settled.state;
  pass.seen = again && pass.seen > 0 ? pass.seen + 1 : 1;
  pass.settled = settled;
  pass.kind = plan.kind_digest;
  pass.elements = plan.parts[0].query.count;
  pass.plain_bytes = plan.parts[0].query.plain_bytes;
  Pass* kept = nullptr;
  insist([&] { kept = &passes_.put(key, pass); });
  return *kept;
}

}  // namespace crimp
