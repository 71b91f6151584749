#include "mpi/declined_calls.hpp"

#include <algorithm>

#include "core/reserve.hpp"

namespace crimp {
namespace {

// No more than fits.
std::uint32_t one_more(std::uint32_t calls) { return std::min(calls, ~std::uint32_t{0} - 1) + 1; }

}  // namespace

DeclinedCalls::Key DeclinedCalls::key_of(const AllreduceRequest& request) {
  return {request.count, request.dtype, request.layout ? std::optional(request.layout->digest()) : std::nullopt,
          request.shares ? request.shares->collective : Collective::allreduce,
          request.shares ? request.shares->borders[1] : 0};
}

DeclinedCalls::Next DeclinedCalls::next(const AllreduceRequest& request, bool may_leave) {
  const Key key = key_of(request);
  const Kind* const known = kinds_.find(key);
  if (!known || known->declined < kHeadersFirst) return Next::usual;
  Kind kind = *known;
  const bool leave = may_leave && kind.no_gradients >= (kind.summed ? kLeaveLate : kLeave) &&
                     kind.left < std::min(kind.no_gradients / 8, kMostLeft);
  kind.left = leave ? kind.left + 1 : 0;
  insist([&] { kinds_.put(key, kind); });
  return leave ? Next::left : Next::headers_first;
}

void DeclinedCalls::ended(const AllreduceRequest& request, std::optional<PassReason> why) {
  const Key key = key_of(request);
  const Kind* const known = kinds_.find(key);
  if (!known && !why) return;
  Kind kind = known ? *known : Kind{};
  kind.declined = why ? one_more(kind.declined) : 0;
  kind.no_gradients = why == PassReason::no_gradient ? one_more(kind.no_gradients) : 0;
  kind.summed = kind.summed || !why;
  insist([&] { kinds_.put(key, kind); });
}

}  // namespace crimp
