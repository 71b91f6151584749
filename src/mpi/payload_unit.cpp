#include "mpi/payload_unit.hpp"

#include <climits>
#include <string>

#include "core/error.hpp"
#include "core/reserve.hpp"
#include "core/types.hpp"
#include "mpi/own_handles.hpp"

namespace crimp {

MPI_Datatype payload_unit() {
  static OwnType unit(static_cast<int>(kPayloadAlign), MPI_BYTE);
  return unit.get();
}

int payload_units(std::uint64_t bytes) {
  const std::uint64_t n = bytes / kPayloadAlign;
  if (n > INT_MAX)
    throw Error(ErrorCode::argument_invalid,
                std::to_string(bytes) + " bytes in one exchange; at most 128 GiB are possible");
  return static_cast<int>(n);
}

void payload_units(std::span<const std::uint64_t> bytes, std::vector<int>& to) {
  to.clear();
  insist([&] { to.reserve(bytes.size()); });
  for (const auto b : bytes) to.push_back(payload_units(b));
}

}  // namespace crimp
