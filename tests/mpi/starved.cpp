// A rank that runs out of memory anywhere inside a call: the n-th operator new of that call fails on one rank, for n =
// 1, 2, ... until a call has fewer. No rank may wait for it (run.py ends what hangs), fail, or get another sum than the
// others.
//   starved HOW [named-|nonblocking-|persistent-]WHAT TOLERANCE [COUNT]
// HOW: once, the n-th alone fails; full, from the n-th on the heap grows no more until the call has ended. WHAT: new,
// every call is of other tensors than those before, so that it must be planned; again, of the same; renamed, of others
// that are as long, so that every call has as many allocations; first, every call is the first one on its communicator;
// scatter-..., of MPI_Reduce_scatter with shares of different sizes,
// nonblocking-scatter-... of MPI_Ireduce_scatter. TOLERANCE: how far a sum of COUNT or more values within [-1, 1) may
// be from the exact one.
#include <dlfcn.h>
#include <malloc.h>

#include <new>

#include "crimp/crimp.h"
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include "check.hpp"

using check::rank, check::size;

namespace {

// Of the thread that is inside a call, on the rank that starves.
thread_local bool counting = false;
long allocations = 0, fails_at = 0;
bool frozen = false, forever = false;
std::atomic<long> in_use{0}, most{0};  // bytes; while frozen no more than `most`

bool refuses(std::size_t bytes) {
  if (!counting) return false;
  if (++allocations == fails_at) {
    if (!forever) return true;
    frozen = true;
    most = in_use.load();
  }
  return frozen && in_use + static_cast<long>(bytes) > most;
}

void* allocate(std::size_t bytes, std::size_t align) {
  if (refuses(bytes)) return nullptr;
  void* const p =
      align ? std::aligned_alloc(align, (bytes + align - 1) / align * align) : std::malloc(bytes ? bytes : 1);
  if (p) in_use += static_cast<long>(malloc_usable_size(p));
  return p;
}
void* allocate_or_throw(std::size_t bytes, std::size_t align = 0) {
  void* const p = allocate(bytes, align);
  if (!p) throw std::bad_alloc();
  return p;
}
void release(void* p) {
  if (p) in_use -= static_cast<long>(malloc_usable_size(p));
  std::free(p);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes); }
void* operator new(std::size_t bytes, std::align_val_t align) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(align));
}
void* operator new[](std::size_t bytes, std::align_val_t align) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(align));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { release(p); }

namespace {

bool named = false, renamed = false, nonblocking = false, persistent = false, scattered = false, first = false;
double tolerance = 0;

#if MPI_VERSION >= 4
const auto allreduce_init = MPI_Allreduce_init;
#elif defined(OMPI_HAVE_MPI_EXT_PCOLLREQ)
const auto allreduce_init = MPIX_Allreduce_init;
#else
int allreduce_init(const void*, void*, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request*) {
  std::puts("skipped: this MPI has no persistent collectives");
  MPI_Finalize();
  std::exit(check::kSkipped);
}
#endif

struct Buffers {
  std::vector<float> in, out;
  std::vector<int> shares;
  std::string names[3] = {"first.weight", "first.bias", "second.weight"};
};

// By a request, whose sum is decoded here where MPI says that it is complete.
int sum_by_request(Buffers& b, MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  const auto count = static_cast<int>(b.in.size());
  const int failed =
      persistent  ? allreduce_init(b.in.data(), b.out.data(), count, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL, &request)
      : scattered ? MPI_Ireduce_scatter(b.in.data(), b.out.data(), b.shares.data(), MPI_FLOAT, MPI_SUM, comm, &request)
                  : MPI_Iallreduce(b.in.data(), b.out.data(), count, MPI_FLOAT, MPI_SUM, comm, &request);
  if (failed) return failed;
  if (persistent) {
    const int started = MPI_Start(&request);
    const int ended = started ? started : MPI_Wait(&request, MPI_STATUS_IGNORE);
    counting = false;
    MPI_Request_free(&request);
    return ended;
  }
  int complete = 0;
  const int looked = MPI_Request_get_status(request, &complete, MPI_STATUS_IGNORE);
  const int ended = MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
  return ended ? ended : looked;
}

int sum(Buffers& b, MPI_Comm comm) {
  const std::uint64_t count = b.in.size();
  if (nonblocking) return sum_by_request(b, comm);
  if (scattered) return MPI_Reduce_scatter(b.in.data(), b.out.data(), b.shares.data(), MPI_FLOAT, MPI_SUM, comm);
  if (!named) return MPI_Allreduce(b.in.data(), b.out.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, comm);
  const crimp_segment tensors[] = {
      {b.names[0].c_str(), count / 2}, {b.names[1].c_str(), 100}, {b.names[2].c_str(), count - count / 2 - 100}};
  return crimp_allreduce(b.in.data(), b.out.data(), count, CRIMP_FLOAT32, comm, tensors, 3);
}

// One call whose allocation `n` fails on `victim`. Whether it had so many.
bool call(std::uint64_t count, int victim, long n) {
  Buffers b{std::vector<float>(count), std::vector<float>(count),
            std::vector<int>(static_cast<std::size_t>(size), 100)};
  for (std::size_t i = 0; i < count; ++i) b.in[i] = static_cast<float>(check::value(i, rank));
  b.shares[0] = static_cast<int>(count) - 100 * (size - 1);
  if (renamed) {
    static int calls = 10000;
    ++calls;
    for (std::string& name : b.names) name += std::to_string(calls);
  }
  const std::vector<float>& out = b.out;
  MPI_Comm comm = MPI_COMM_WORLD;
  if (first) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  allocations = 0;
  fails_at = rank == victim ? n : 0;
  counting = true;
  const int rc = sum(b, comm);
  counting = frozen = false;
  if (first) MPI_Comm_free(&comm);
  // One that does not block has no second way: it may fail, on all ranks or on the one that could not decode it.
  int failed = nonblocking && rc != MPI_SUCCESS && n > 0, failures = failed;
  if (nonblocking) MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK((failures == 0 || failures == size || (failures == 1 && failed == (rank == victim))), "%d ranks failed",
        failures);
  if (failures) {
    int more = allocations >= n;
    MPI_Bcast(&more, 1, MPI_INT, std::max(victim, 0), MPI_COMM_WORLD);
    return more;
  }
  CHECK(rc == MPI_SUCCESS, "code %d with allocation %ld failing on rank %d", rc, n, victim);
  const std::size_t begin = !scattered || rank == 0 ? 0 : count - 100 * static_cast<std::size_t>(size - rank);
  const std::size_t own = scattered ? static_cast<std::size_t>(b.shares[static_cast<std::size_t>(rank)]) : count;
  CHECK(scattered || check::identical(out.data(), count * sizeof(float), MPI_COMM_WORLD), "allocation %ld of rank %d",
        n, victim);
  for (std::size_t i = 0; i < own; ++i) {
    double sum = 0;
    for (int r = 0; r < size; ++r) sum += static_cast<float>(check::value(begin + i, r));
    if (!(std::abs(out[i] - sum) <= tolerance)) {
      CHECK(false, "element %zu is %.9g, not %.9g, with allocation %ld failing on rank %d", i,
            static_cast<double>(out[i]), sum, n, victim);
      break;
    }
  }
  int had = allocations >= n;
  MPI_Bcast(&had, 1, MPI_INT, std::max(victim, 0), MPI_COMM_WORLD);
  return had;
}

}  // namespace

int main(int, char** argv) {
  const std::string how = argv[1], what = argv[2];
  forever = how == "full";
  named = what.find("named") == 0;
  renamed = what == "named-renamed";
  persistent = what.find("persistent") == 0;
  nonblocking = persistent || what.find("nonblocking") == 0;
  scattered = what.find("scatter") != std::string::npos;
  first = what.find("first") != std::string::npos;
  const bool anew = what.find("new") != std::string::npos;
  tolerance = std::atof(argv[3]);
  const std::uint64_t count = argv[4] ? std::strtoull(argv[4], nullptr, 10) : 40000;
  check::begin();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::uint64_t more = 0;
  for (int i = 0; i < 3; ++i) call(count, -1, 0);
  for (const int victim : {0, size - 1}) {
    long n = 0;
    // Said before, so that a test that hangs tells where.
    do {
      if (rank == victim) std::fprintf(stderr, "rank %d: allocation %ld\n", rank, ++n);
      else ++n;
    } while (call(count + (anew ? ++more : 0), victim, n));
    CHECK(n > 1, "no allocation was seen: nothing was tested");
    if (rank == victim) std::printf("rank %d: %ld allocations of a call have failed, one after another\n", rank, n - 1);
  }
  for (int i = 0; i < 3; ++i) call(count, -1, 0);
  check::expected["calls>"] = 6;
  return check::finish();
}
