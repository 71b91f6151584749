#include "mpi/mpi_peer_transport.hpp"

#include <cstring>
#include <string>

#include "core/error.hpp"
#include "core/progress_turns.hpp"
#include "core/reserve.hpp"
#include "core/stall.hpp"
#include "core/types.hpp"
#include "mpi/at_exit.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/payload_unit.hpp"

namespace crimp {
namespace {

const std::byte* at(const void* base, std::uint64_t offset) { return static_cast<const std::byte*>(base) + offset; }
std::byte* at(void* base, std::uint64_t offset) { return static_cast<std::byte*>(base) + offset; }

}  // namespace

// An exchange that an error has left under way must not write where nobody expects it any more.
PeerTransport::~PeerTransport() {
  for (auto& e : exchanges_)
    for (auto& request : e.requests)
      if (request != MPI_REQUEST_NULL) {
        PMPI_Cancel(&request);
        PMPI_Request_free(&request);
      }
}

// All ranks start the same exchanges in the same order, and messages between two ranks do not overtake one another, so
// one tag is enough.
template <class PartOf>
Transport::Ticket PeerTransport::start(PartOf part_of) {
  Ticket t = 0;
  while (t < kMostUnderWay && exchanges_[t].under_way) ++t;
  if (t == kMostUnderWay)
    throw Error(ErrorCode::transport_failed,
                "more exchanges under way than the pipeline has; this is a defect of Crimp");
  Exchange& e = exchanges_[t];
  const auto n = static_cast<std::size_t>(size()), mine = static_cast<std::size_t>(rank_);
  insist([&] { e.requests.assign(2 * n, MPI_REQUEST_NULL); });
  e = {true, MPI_SUCCESS, std::move(e.requests)};
  const Part own = part_of(mine);
  if (own.bytes && own.send != own.receive) std::memcpy(own.receive, own.send, own.bytes);
  for (std::size_t i = 1; i < n; ++i) {
    const std::size_t from = (mine + n - i) % n;
    if (const Part p = part_of(from); p.bytes)
      check_private(PMPI_Irecv(p.receive, payload_units(p.bytes), payload_unit(), peers_[from], tag_, comm_,
                               &e.requests[2 * from]),
                    "MPI_Irecv");
  }
  for (std::size_t i = 1; i < n; ++i) {
    const std::size_t to = (mine + i) % n;
    if (const Part p = part_of(to); p.send_bytes)
      check_private(PMPI_Isend(p.send, payload_units(p.send_bytes), payload_unit(), peers_[to], tag_, comm_,
                               &e.requests[2 * to + 1]),
                    "MPI_Isend");
  }
  return t;
}

Transport::Ticket PeerTransport::start_allgather(const void* mine, void* all, std::uint64_t bytes) {
  return start([&](std::size_t r) { return Part{mine, bytes, at(all, r * bytes), bytes}; });
}

Transport::Ticket PeerTransport::start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                                                  std::span<const std::uint64_t> offsets, void* all) {
  return start([&](std::size_t r) {
    return Part{mine, bytes[static_cast<std::size_t>(rank_)], at(all, offsets[r]), bytes[r]};
  });
}

Transport::Ticket PeerTransport::start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                                                 std::span<const std::uint64_t> send_offsets, void* all,
                                                 std::span<const std::uint64_t> bytes,
                                                 std::span<const std::uint64_t> offsets) {
  return start([&](std::size_t r) {
    return Part{at(mine, send_offsets[r]), send_bytes[r], at(all, offsets[r]), bytes[r]};
  });
}

Transport::Ticket PeerTransport::start_sum(const void*, void*, std::uint64_t, Integer) {
  throw Error(ErrorCode::transport_failed, "MPI adds over whole communicators only; this is a defect of Crimp");
}

void PeerTransport::wait(Ticket t) {
  Exchange& e = exchanges_[t];
  int rc;
  {
    const StallGuard guard(rank_, size(), [this] { return std::string(waits_); });
    rc = PMPI_Waitall(static_cast<int>(e.requests.size()), e.requests.data(), MPI_STATUSES_IGNORE);
  }
  e.under_way = false;
  stand_aside();
  check_private(e.failed, "MPI_Testall");
  check_private(rc, "MPI_Waitall");
}

bool PeerTransport::done(Ticket t) {
  Exchange& e = exchanges_[t];
  int done = 0;
  const int rc = PMPI_Testall(static_cast<int>(e.requests.size()), e.requests.data(), &done, MPI_STATUSES_IGNORE);
  if (rc != MPI_SUCCESS && e.failed == MPI_SUCCESS) e.failed = rc;
  return done || e.failed != MPI_SUCCESS;
}

void PeerTransport::progress() noexcept {
  take_turn([this] { move_on(); });
}

void PeerTransport::move_on() {
  for (auto& e : exchanges_) {
    if (!e.under_way) continue;
    int done = 0;
    const int rc = PMPI_Testall(static_cast<int>(e.requests.size()), e.requests.data(), &done, MPI_STATUSES_IGNORE);
    if (rc != MPI_SUCCESS && e.failed == MPI_SUCCESS) e.failed = rc;
    if (!done) return;
  }
}

}  // namespace crimp
