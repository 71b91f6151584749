#include "mpi/mpi_transport.hpp"

#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/progress_turns.hpp"
#include "core/types.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/own_handles.hpp"
#include "mpi/payload_unit.hpp"

namespace crimp {

namespace {

// An operation of our own: MPI_SUM knows no unit of 64 bytes, and Open MPI's AVX version of it saturates small integers
// (ompi issue 8045).
template <class T>
MPI_Op sum_of() {
  static OwnOp op([](void* from, void* to, int* length, MPI_Datatype*) {
    const auto n = static_cast<std::size_t>(*length) * (kPayloadAlign / sizeof(T));
    const auto* a = static_cast<const T*>(from);
    auto* b = static_cast<T*>(to);
    for (std::size_t i = 0; i < n; ++i) b[i] = static_cast<T>(b[i] + a[i]);
  });
  return op.get();
}

}  // namespace

Transport::Ticket MpiTransport::free_exchange() {
  for (int i = 0; i < kMostUnderWay; ++i)
    if (exchanges_[i].request == MPI_REQUEST_NULL) return i;
  throw Error(ErrorCode::transport_failed, "more exchanges under way than the pipeline has; this is a defect of Crimp");
}

Transport::Ticket MpiTransport::start_allgather(const void* mine, void* all, std::uint64_t bytes) {
  const Ticket t = free_exchange();
  const int n = payload_units(bytes);
  check_mpi(PMPI_Iallgather(mine, n, payload_unit(), all, n, payload_unit(), comm_, &exchanges_[t].request),
            "MPI_Iallgather");
  exchanges_[t].of_some = false;
  return t;
}

Transport::Ticket MpiTransport::start_allgatherv(const void* mine, std::span<const std::uint64_t> bytes,
                                                 std::span<const std::uint64_t> offsets, void* all) {
  const Ticket t = free_exchange();
  Exchange& e = exchanges_[t];
  payload_units(bytes, e.counts);
  payload_units(offsets, e.places);
  check_mpi(PMPI_Iallgatherv(mine, e.counts[static_cast<std::size_t>(rank_)], payload_unit(), all, e.counts.data(),
                             e.places.data(), payload_unit(), comm_, &e.request),
            "MPI_Iallgatherv");
  e.of_some = false;
  return t;
}

Transport::Ticket MpiTransport::start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                                                std::span<const std::uint64_t> send_offsets, void* all,
                                                std::span<const std::uint64_t> bytes,
                                                std::span<const std::uint64_t> offsets) {
  const Ticket t = free_exchange();
  Exchange& e = exchanges_[t];
  payload_units(send_bytes, e.send_counts);
  payload_units(send_offsets, e.send_places);
  payload_units(bytes, e.counts);
  payload_units(offsets, e.places);
  check_mpi(PMPI_Ialltoallv(mine, e.send_counts.data(), e.send_places.data(), payload_unit(), all, e.counts.data(),
                            e.places.data(), payload_unit(), comm_, &e.request),
            "MPI_Ialltoallv");
  int some = 0;
  for (int r = 0; r < size_; ++r) some += r != rank_ && e.counts[static_cast<std::size_t>(r)] != 0;
  e.of_some = some < size_ - 1;
  return t;
}

Transport::Ticket MpiTransport::start_sum(const void* mine, void* sums, std::uint64_t bytes, Integer type) {
  const Ticket t = free_exchange();
  const MPI_Op op = type == Integer::u8 ? sum_of<std::uint8_t>() : sum_of<std::uint16_t>();
  check_mpi(PMPI_Iallreduce(mine, sums, payload_units(bytes), payload_unit(), op, comm_, &exchanges_[t].request),
            "MPI_Iallreduce");
  exchanges_[t].of_some = false;
  return t;
}

void MpiTransport::begin_call(std::function<std::string()> where, std::function<std::string()> absent) {
  where_ = std::move(where);
  absent_ = std::move(absent);
  exchanged_ = 0;
}

// Behind an exchange that has something of every rank all are known to be in the call: the first one, but for calls
// that are relayed.
std::string MpiTransport::waiting(const Exchange& e) const {
  const std::string where = where_ ? where_() : "in an exchange";
  if (exchanged_ == 0 && e.of_some) {
    std::string from;
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && e.counts[static_cast<std::size_t>(r)]) from += (from.empty() ? "" : ", ") + std::to_string(r);
    if (!from.empty())
      return where + " for what rank " + from + " is to pass on, which may itself wait for another" +
             (absent_ ? ". " + absent_() : "");
  }
  if (exchanged_ == 0) return where + " for the others to come to it" + (absent_ ? ". " + absent_() : "");
  return where + " for the rest of what the others send, which all took part in the first " +
         std::to_string(exchanged_) + " exchanges of it. Likely a rank or its network is slow, stopped or dead";
}

void MpiTransport::wait(Ticket t) {
  const Exchange& e = exchanges_[t];
  wait_for(exchanges_[t].request, rank_, size_, [&] { return waiting(e); });
  exchanged_ += exchanged_ > 0 || !e.of_some;
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

// The request stays for wait().
bool MpiTransport::done(Ticket t) {
  int done = 0;
  check_mpi(PMPI_Request_get_status(exchanges_[t].request, &done, MPI_STATUS_IGNORE), "MPI_Request_get_status");
  return done;
}

void MpiTransport::progress() noexcept try {
  // Testing one request moves all of them; a request that completes becomes MPI_REQUEST_NULL and its wait() returns at
  // once, so its exchange must not be handed out again before: PMPI_Request_get_status leaves it in place.
  for (auto& e : exchanges_)
    if (e.request != MPI_REQUEST_NULL) {
      take_turn([&e] {
        int done = 0;
        PMPI_Request_get_status(e.request, &done, MPI_STATUS_IGNORE);
      });
      return;
    }
} catch (...) {  // out of the user's error handler: no business of the codec that is running, so wait() goes on with it
  thrown_ = std::current_exception();
}

}  // namespace crimp
