#include "mpi/declined_calls.hpp"

#include <algorithm>

#include "core/reserve.hpp"

namespace crimp {

DeclinedCalls::Key DeclinedCalls::key_of(const AllreduceRequest& request) {
  return {request.count, request.dtype, request.layout ? std::optional(request.layout->digest()) : std::nullopt,
          request.shares ? request.shares->collective : Collective::allreduce,
          request.shares ? request.shares->borders[1] : 0};
}

bool DeclinedCalls::expected(const AllreduceRequest& request) {
  const Key key = key_of(request);
  if (const std::uint8_t* const calls = in_a_row_.find(key)) return *calls >= kInARow;
  insist([&] { in_a_row_.put(key, 0); });
  return false;
}

void DeclinedCalls::ended(const AllreduceRequest& request, bool declined) noexcept {
  const Key key = key_of(request);
  const std::uint8_t* const calls = in_a_row_.find(key);
  if (!calls) return;
  in_a_row_.put(key, declined ? std::min<std::uint8_t>(*calls, kInARow - 1) + 1 : 0);
}

}  // namespace crimp
