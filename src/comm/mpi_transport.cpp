#include "comm/mpi_transport.hpp"

#include <climits>
#include <string>

#include "crimp/error.hpp"
#include "crimp/types.hpp"

namespace crimp {
namespace {

int units(std::uint64_t bytes) {
  const std::uint64_t n = bytes / kPayloadAlign;
  if (n > INT_MAX) throw Error(ErrorCode::argument_invalid, std::to_string(bytes) + " bytes in one exchange; at most 128 GiB are possible");
  return static_cast<int>(n);
}

}  // namespace

MPI_Datatype payload_unit() {
  static const MPI_Datatype type = [] {
    MPI_Datatype t;
    check_mpi(PMPI_Type_contiguous(static_cast<int>(kPayloadAlign), MPI_BYTE, &t), "MPI_Type_contiguous");
    check_mpi(PMPI_Type_commit(&t), "MPI_Type_commit");
    return t;
  }();
  return type;
}

void check_mpi(int rc, const char* call) {
  if (rc == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  PMPI_Error_string(rc, text, &length);
  throw Error(ErrorCode::transport_failed, std::string(call) + " failed: " + text, rc);
}

Transport::Ticket MpiTransport::free_exchange() {
  for (int i = 0; i < 4; ++i)
    if (exchanges_[i].request == MPI_REQUEST_NULL) return i;
  throw Error(ErrorCode::transport_failed, "more exchanges under way than the pipeline has; this is a defect of Crimp");
}

Transport::Ticket MpiTransport::start_allgather(const void* mine, void* all, std::uint64_t bytes) {
  const Ticket t = free_exchange();
  const int n = units(bytes);
  check_mpi(PMPI_Iallgather(mine, n, payload_unit(), all, n, payload_unit(), comm_, &exchanges_[t].request), "MPI_Iallgather");
  return t;
}

Transport::Ticket MpiTransport::start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                                                 std::span<const std::uint64_t> offsets, void* all) {
  const Ticket t = free_exchange();
  Exchange& e = exchanges_[t];
  e.counts.clear();
  e.places.clear();
  for (const auto b : bytes) e.counts.push_back(units(b));
  for (const auto o : offsets) e.places.push_back(units(o));
  check_mpi(PMPI_Iallgatherv(mine, e.counts[static_cast<std::size_t>(rank_)], payload_unit(), all, e.counts.data(), e.places.data(), payload_unit(),
                             comm_, &e.request),
            "MPI_Iallgatherv");
  return t;
}

void MpiTransport::wait(Ticket t) { check_mpi(PMPI_Wait(&exchanges_[t].request, MPI_STATUS_IGNORE), "MPI_Wait"); }

void MpiTransport::progress() noexcept {
  // Testing one request moves all of them; a request that completes becomes MPI_REQUEST_NULL and its wait() returns at once, so its
  // exchange must not be handed out again before: PMPI_Request_get_status leaves it in place.
  for (auto& e : exchanges_)
    if (e.request != MPI_REQUEST_NULL) {
      int done = 0;
      PMPI_Request_get_status(e.request, &done, MPI_STATUS_IGNORE);
      return;
    }
}

}  // namespace crimp
