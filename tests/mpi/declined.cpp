// Calls that are left to MPI for their values, time after time: what Crimp sends of its own for them does not grow with
// the calls' bytes once that is known. Gradients of the same size are compressed all the same. Each rank prints the
// digest of all results that were compressed, for tests/mpi/replay.py.
#include <limits>
#include <utility>

#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

long exchanges = 0, sent = 0;  // of this rank, by Crimp's own allgathers
std::uint64_t digest = 1469598103934665603u;
bool failing = false;  // the next wait that ends fails on this rank

}  // namespace

// In place of MPI's for whoever looks it up, as Crimp does.
extern "C" __attribute__((visibility("default"))) int PMPI_Iallgather(const void* send, int n, MPI_Datatype type,
                                                                      void* to, int each, MPI_Datatype of,
                                                                      MPI_Comm comm, MPI_Request* request) {
  static const auto next = reinterpret_cast<decltype(&PMPI_Iallgather)>(check::in_libmpi("PMPI_Iallgather"));
  int bytes = 0;
  MPI_Type_size(type, &bytes);
  ++exchanges, sent += static_cast<long>(n) * bytes;
  return next(send, n, type, to, each, of, comm, request);
}

extern "C" __attribute__((visibility("default"))) int PMPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  static const auto next = reinterpret_cast<decltype(&PMPI_Test)>(check::in_libmpi("PMPI_Test"));
  const int rc = next(request, done, status);
  return *done && std::exchange(failing, false) ? MPI_ERR_OTHER : rc;
}

namespace {

enum class Values { gradient, metrics, overflown };

// Metrics are of one sign on the last rank, which alone knows that they are none.
void call(int count, Values values, unsigned salt) {
  std::vector<float> in(static_cast<std::size_t>(count)), out(in.size()), plain(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(i, rank, salt));
  if (values == Values::metrics && rank == size - 1)
    for (float& x : in) x = std::abs(x);
  if (values == Values::overflown && rank == 0) in[7] = std::numeric_limits<float>::infinity();
  CHECK(MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  check::native_allreduce(in.data(), plain.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (values != Values::gradient) {
    CHECK(out == plain, "not MPI's bits");
    ++expected[values == Values::metrics ? "passed_through.no_gradient" : "passed_through.range"];
    return;
  }
  for (const float x : out) {
    std::uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    digest = (digest ^ bits) * 1099511628211u;
  }
  for (std::size_t i = 0; i < in.size(); ++i)
    CHECK(std::abs(out[i] - plain[i]) < 0.01f, "%g", static_cast<double>(out[i]));
}

// Of one call of that size, on the average, in bytes.
long sent_for(int calls, int count, Values values, unsigned salt) {
  exchanges = sent = 0;
  for (int i = 0; i < calls; ++i) call(count, values, salt + static_cast<unsigned>(i));
  return sent / calls;
}

constexpr int kCount = 20000, kOther = 20100, kDiverged = 20200, kFailing = 20300;
constexpr long kHeader = 512, kPayload = 2 * kCount;  // no header is as long; fp16

// MPI fails on the last rank, which alone knows of it.
void fail_once() {
  std::vector<float> in(kFailing), out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(i, rank, 5000));
  const bool here = failing = rank == size - 1;
  const int rc = MPI_Allreduce(in.data(), out.data(), kFailing, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  if (here) check::refused("", rc);
  else CHECK(rc == MPI_SUCCESS);
  expected["calls"] += !here;
}

}  // namespace

int main() {
  check::begin();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  sent_for(2, kCount, Values::metrics, 0);
  // What ranks know of calls of other sizes stays the same on all.
  fail_once();
  // Then by headers alone.
  CHECK(sent_for(30, kCount, Values::metrics, 100) <= kHeader, "%ld bytes a call", sent / 30);
  CHECK(exchanges >= 30, "%ld exchanges: each call is asked about", exchanges);
  // A gradient is found at once, and the next one is compressed as ever.
  CHECK(sent_for(20, kCount, Values::gradient, 1100) >= kPayload, "%ld bytes a call", sent / 20);
  // Where they come in turns.
  for (int i = 0; i < 150; ++i) {
    call(kOther, Values::metrics, 2000 + static_cast<unsigned>(i));
    CHECK(sent_for(1, kOther, Values::gradient, 2200 + static_cast<unsigned>(i)) >= kPayload, "%ld bytes", sent);
  }
  // A training that has diverged, and goes on.
  sent_for(2, kDiverged, Values::overflown, 3000);
  CHECK(sent_for(100, kDiverged, Values::overflown, 3100) <= kHeader, "%ld bytes a call", sent / 100);
  CHECK(exchanges >= 100, "%ld exchanges: each call is asked about", exchanges);
  CHECK(sent_for(20, kDiverged, Values::gradient, 3300) >= kPayload, "%ld bytes a call", sent / 20);
  expected["calls"] += 20 + 150 + 20;
  std::printf("digest %d %016llx\n", rank, static_cast<unsigned long long>(digest));
  return check::finish();
}
