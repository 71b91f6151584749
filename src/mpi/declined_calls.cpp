#include "mpi/declined_calls.hpp"

#include <algorithm>

#include "core/reserve.hpp"

namespace crimp {

DeclinedCalls::Key DeclinedCalls::key_of(const AllreduceRequest& request) {
  return {request.count, request.dtype, request.shares ? request.shares->collective : Collective::allreduce,
          request.shares ? request.shares->borders[1] : 0};
}

DeclinedCalls::Next DeclinedCalls::next(const AllreduceRequest& request, bool may_leave) {
  const Key key = key_of(request);
  const Kind* const known = kinds_.find(key);
  if (!known || known->declined < kHeadersFirst) return Next::usual;
  Kind kind = *known;
  const bool leave = may_leave && kind.declined >= (kind.summed ? kLeaveLate : kLeave) &&
                     kind.left < std::min(kind.declined / 8, kMostLeft);
  kind.left = leave ? kind.left + 1 : 0;
  insist([&] { kinds_.put(key, kind); });
  return leave ? Next::left : Next::headers_first;
}

void DeclinedCalls::ended(const AllreduceRequest& request, bool declined) {
  const Key key = key_of(request);
  const Kind* const known = kinds_.find(key);
  if (!known && !declined) return;
  Kind kind = known ? *known : Kind{};
  kind.declined = declined ? std::min(kind.declined, ~std::uint32_t{0} - 1) + 1 : 0;
  kind.summed = kind.summed || !declined;
  insist([&] { kinds_.put(key, kind); });
}

}  // namespace crimp
