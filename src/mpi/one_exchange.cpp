#include "mpi/one_exchange.hpp"

#include "core/error.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/payload_unit.hpp"

#if defined(OPEN_MPI)
#include <mpi-ext.h>
#if defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
// Open MPI 5, under which a library built for 4 runs, has it without the X. Opened with RTLD_NOW the library must load
// under both.
#pragma weak PMPIX_Allgather_init
extern "C" int PMPI_Allgather_init(const void*, int, MPI_Datatype, void*, int, MPI_Datatype, MPI_Comm, MPI_Info,
                                   MPI_Request*) __attribute__((weak));
#endif
#endif

#if MPI_VERSION >= 4
// What is built for MPICH 4 runs over what shares its interface, MPI 3.1 of it as well.
#pragma weak PMPI_Allgatherv_init
#endif

namespace crimp {
namespace {

[[noreturn]] void no_other() {
  throw Error(ErrorCode::transport_failed, "a sum that does not block has one exchange; this is a defect of Crimp");
}

}  // namespace

Transport::Ticket OneExchange::start_allgather(const void* mine, void* all, std::uint64_t bytes) {
  if (persistent_) return 0;  // the caller starts it
  const int n = payload_units(bytes);
  check_mpi(PMPI_Iallgather(mine, n, payload_unit(), all, n, payload_unit(), comm_, &request_), "MPI_Iallgather");
  return 0;
}

Transport::Ticket OneExchange::start_allgatherv(const void*, std::span<const std::uint64_t>,
                                                std::span<const std::uint64_t>, void*) {
  no_other();
}

Transport::Ticket OneExchange::start_alltoallv(const void* mine, std::span<const std::uint64_t> send_bytes,
                                               std::span<const std::uint64_t> send_offsets, void* all,
                                               std::span<const std::uint64_t> bytes,
                                               std::span<const std::uint64_t> offsets) {
  payload_units(send_bytes, send_counts_);
  payload_units(send_offsets, send_places_);
  payload_units(bytes, counts_);
  payload_units(offsets, places_);
  check_mpi(PMPI_Ialltoallv(mine, send_counts_.data(), send_places_.data(), payload_unit(), all, counts_.data(),
                            places_.data(), payload_unit(), comm_, &request_),
            "MPI_Ialltoallv");
  return 0;
}

Transport::Ticket OneExchange::start_sum(const void*, void*, std::uint64_t, Integer) { no_other(); }

bool OneExchange::init(const void* mine, void* all, std::uint64_t bytes) {
  persistent_ = true;
  const int n = payload_units(bytes);
#if MPI_VERSION >= 4
  if (!&PMPI_Allgatherv_init) return false;
  // MPICH 4.0's MPI_Allgather_init among 2^k ranks has the values of its first start for ever.
  counts_.assign(static_cast<std::size_t>(size_), n);
  for (int r = 0; r < size_; ++r) places_.push_back(r * n);
  check_mpi(PMPI_Allgatherv_init(mine, n, payload_unit(), all, counts_.data(), places_.data(), payload_unit(), comm_,
                                 MPI_INFO_NULL, &request_),
            "MPI_Allgatherv_init");
  return true;
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
  const auto init = PMPIX_Allgather_init ? &PMPIX_Allgather_init : &PMPI_Allgather_init;
  if (!init) return false;
  check_mpi(init(mine, n, payload_unit(), all, n, payload_unit(), comm_, MPI_INFO_NULL, &request_),
            "MPIX_Allgather_init");
  return true;
#else
  static_cast<void>(mine), static_cast<void>(all), static_cast<void>(n);
  return false;
#endif
}

}  // namespace crimp
