// MPI_Reduce_scatter_block, MPI_Reduce_scatter and MPI_Reduce.
//   scattered lossy [COUNT...]  near the exact sum, nothing else written, compressed as often as the report says
//   scattered floats [COUNT...] likewise, of one type
//   scattered exact [COUNT...]  the MPI library's own results, bit for bit, and nothing compressed
//   scattered feedback          the mean of many calls comes to the exact sum, and what waits stays bounded
//   scattered training          a model trained by reduce-scatter and allgather, beside plain MPI
//   scattered aliased           receive buffers inside of send buffers
//   scattered odd               what MPI judges, it judges; specials: NaN, Inf; between two groups; users' operations
//   scattered reducing          MPI_Reduce to each root: bytes that ranks send
//   scattered nonblocking ...   lossy, floats and exact by the forms that do not block, each waited for at once
//   scattered large ...         the same by the forms for MPI_Count, and `errors` or, where crimp_faults
//                               hides MPI's (older_mpi), `older`: what MPI says of counts that no int holds
#include <functional>

#include "numbers.hpp"
#include "shares.hpp"

using check::expected, check::Number, check::rank, check::size;
using shares::Call, shares::calls_of, shares::native, shares::large, shares::nonblocking;

namespace {

constexpr std::size_t kGuard = 64;

void sum(const Number& number, const Call& call, bool in_place, bool exactly) {
  const std::size_t total = call.total() * number.bytes, bytes = call.own() * number.bytes;
  // MPI_Reduce has it in place at its root alone.
  const bool here = in_place && (call.root < 0 || call.root == rank);
  const std::size_t room = here ? total : bytes;
  std::vector<unsigned char> in(total + 8), out(room + 2 * kGuard, 0xa5), plain(room + 8);
  number.fill(in.data(), call.total(), rank);
  const auto before = in;
  unsigned char* const result = out.data() + kGuard;
  if (here) std::memcpy(result, in.data(), total), std::memcpy(plain.data(), in.data(), total);
  const std::string what =
      std::string(number.name) + " x " + std::to_string(call.total()) + " " + call.what + (in_place ? " in place" : "");
  const bool nothing = bytes == 0 && !here;  // any receive buffer will do
  const int rc = call.run(here ? MPI_IN_PLACE : in.data(), nothing ? nullptr : result, number.type, number.sum, false);
  CHECK(rc == MPI_SUCCESS, "%s", what.c_str());
  CHECK(in == before, "%s: sendbuf was changed", what.c_str());
  for (std::size_t i = 0; i < kGuard; ++i)
    CHECK(out[i] == 0xa5 && out[kGuard + room + i] == 0xa5, "%s: written outside recvbuf", what.c_str());
  if (exactly) {
    call.run(here ? MPI_IN_PLACE : in.data(), nothing ? nullptr : plain.data(), number.type, number.sum, true);
    CHECK(std::memcmp(plain.data(), result, bytes) == 0, "%s: not MPI's bits", what.c_str());
    return;
  }
  std::vector<double> sums(call.own()), magnitudes(call.own());
  std::vector<unsigned char> other(total + 8);
  for (int r = 0; r < size; ++r) {
    number.fill(other.data(), call.total(), r);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double x = number.load(other.data(), call.begin() + i);
      sums[i] += x;
      magnitudes[i] += std::abs(x);
    }
  }
  const double relative = check::codec_error() + size * 0x1p-23 + number.ulp;  // looks through the environment
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double got = number.load(result, i);
    const double allowed = magnitudes[i] * relative + size * 0x1p-25;
    CHECK(std::abs(got - sums[i]) <= allowed, "%s: element %zu is %.9g, not %.9g +- %.2g", what.c_str(), i, got,
          sums[i], allowed);
  }
}

void sums(bool lossy, const std::vector<int>& counts, bool floats) {
  auto numbers = check::numbers();
  if (floats) numbers.resize(1);
#if defined(MPICH)
  const bool chosen = !std::strcmp(std::getenv("CRIMP_ALGORITHM"), "auto");
#endif
  for (const Number& number : numbers)
    for (const int count : counts)
      for (const Call& call : calls_of(count))
        for (const bool in_place : {false, true}) {
          const bool eligible = lossy && size > 1 && call.total() >= 16384;
#if defined(MPICH)
          // MPICH 4.0's own end with a segmentation fault or a failed assertion in some of these, and `auto` leaves
          // what it likes to them.
          if (in_place && (!eligible || call.root > 0 || chosen)) continue;
#endif
          sum(number, call, in_place, !eligible);
          expected["calls"] += eligible;
          expected["passed_through.communicator"] += lossy && size == 1 && call.total() >= 16384;
        }
}

// Constant gradients: with error feedback all that is ever lost of a tensor waits on some rank, so that the mean of T
// calls is wrong by 1 / T of what waits.
void feedback() {
  constexpr int kSteps = 120;
  constexpr std::size_t kCount = 24000;
  const auto n = static_cast<std::size_t>(size);
  std::vector<int> counts(n, static_cast<int>(kCount / n));
  counts[0] += static_cast<int>(kCount % n) + 100 * (size - 1);
  for (std::size_t r = 1; r < n; ++r) counts[r] -= 100;
  for (const Call& call : {Call{"scattered", counts, -1}, Call{"to the last",
                                                               [&] {
                                                                 std::vector<int> all(n, 0);
                                                                 all.back() = static_cast<int>(kCount);
                                                                 return all;
                                                               }(),
                                                               size - 1}}) {
    std::vector<float> in(kCount), out(call.own());
    const unsigned salt = call.root < 0 ? 0 : 7;
    for (std::size_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(check::value(i, rank, salt));
    std::vector<double> sums(out.size()), exact(out.size());
    for (std::size_t i = 0; i < exact.size(); ++i)
      for (int r = 0; r < size; ++r) exact[i] += static_cast<float>(check::value(call.begin() + i, r, salt));
    double early = 0, late = 0, wanted = 0;
    for (int step = 1; step <= kSteps; ++step) {
      CHECK(call.run(in.data(), out.data(), MPI_FLOAT, MPI_SUM, false) == MPI_SUCCESS);
      double missing = 0;
      wanted = 0;
      for (std::size_t i = 0; i < out.size(); ++i) {
        sums[i] += static_cast<double>(out[i]);
        const double e = sums[i] - step * exact[i];
        missing += e * e;
        wanted += exact[i] * exact[i];
      }
      if (step == kSteps / 2) early = std::sqrt(missing);
      late = std::sqrt(missing);
    }
    if (out.empty()) continue;
    std::printf("rank %d, %s: %.4f of the norm is missing after half, %.4f after all\n", rank, call.what.c_str(),
                early / std::sqrt(wanted), late / std::sqrt(wanted));
    // What waits does not grow: twice the calls, the same missing; so the mean's error halves.
    CHECK(late < 1.5 * early + 0.5 * std::sqrt(wanted), "%s: %.3g missing after half, %.3g after all",
          call.what.c_str(), early, late);
    CHECK(late / kSteps < 0.05 * std::sqrt(wanted), "%s: the mean is wrong by %.4f", call.what.c_str(),
          late / kSteps / std::sqrt(wanted));
  }
  expected["layouts.periodic.calls>"] = kSteps;
}

// Linear regression of noisy data by gradient descent; every rank owns a share of the weights, as ZeRO has it.
double train(bool by_library) {
  constexpr std::size_t kWeights = 20480, kExamples = 24, kSteps = 60;
  const std::size_t own = kWeights / static_cast<std::size_t>(size), all = own * static_cast<std::size_t>(size);
  const auto scatter =
      by_library ? native(&MPI_Reduce_scatter_block, "PMPI_Reduce_scatter_block") : &MPI_Reduce_scatter_block;
  std::vector<float> weights(all), gradient(all), mine(own);
  double loss = 0;
  const auto feature = [](std::size_t e, std::size_t w) {
    return check::value(e * kWeights + w, rank, 3) / std::sqrt(static_cast<double>(kWeights));
  };
  std::vector<double> features(kExamples * all), targets(kExamples);
  for (std::size_t e = 0; e < kExamples; ++e) {
    for (std::size_t w = 0; w < all; ++w) {
      features[e * all + w] = feature(e, w);
      targets[e] += features[e * all + w] * check::value(w, 0, 5);
    }
    targets[e] += 0.3 * check::value(e, rank, 4);
  }
  for (std::size_t step = 0; step < kSteps; ++step) {
    loss = 0;
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (std::size_t e = 0; e < kExamples; ++e) {
      double off = -targets[e];
      for (std::size_t w = 0; w < all; ++w) off += features[e * all + w] * static_cast<double>(weights[w]);
      loss += off * off;
      for (std::size_t w = 0; w < all; ++w) gradient[w] += static_cast<float>(2 * off * features[e * all + w]);
    }
    scatter(gradient.data(), mine.data(), static_cast<int>(own), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    float* const share = weights.data() + own * static_cast<std::size_t>(rank);
    for (std::size_t i = 0; i < own; ++i) share[i] -= 0.02f * mine[i];
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, weights.data(), static_cast<int>(own), MPI_FLOAT, MPI_COMM_WORLD);
  }
  double sum = 0;
  check::native_allreduce(&loss, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  return sum;
}

void training() {
  const double plain = train(true), compressed = train(false);
  if (rank == 0) std::printf("loss %.6f, plain %.6f\n", compressed, plain);
  CHECK(std::abs(compressed - plain) <= 0.01 * plain, "loss %.6f, plain %.6f", compressed, plain);
  expected["calls>"] = 60;
}

// The class of the error that a call ends with.
int class_of(int code) {
  int of = MPI_SUCCESS;
  MPI_Error_class(code, &of);
  return of;
}

void doubling(void* in, void* inout, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) static_cast<float*>(inout)[i] += 2 * static_cast<float*>(in)[i];
}

// A share that lies in the rank's own values, as sharded optimizers have it, though MPI forbids it: on rank 0 alone it
// begins where they begin, and all ranks must take one way.
void aliased() {
  constexpr int kCount = 40000;
  for (int call = 0; call < 3; ++call) {
    std::vector<float> values(static_cast<std::size_t>(kCount * size), static_cast<float>(rank + 1));
    float* const share = values.data() + rank * kCount;
    CHECK(MPI_Reduce_scatter_block(values.data(), share, kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    const auto sum = static_cast<float>(size * (size + 1) / 2);
    CHECK((share[0] == sum && share[kCount - 1] == sum), "%g, not %g", static_cast<double>(share[0]),
          static_cast<double>(sum));
  }
  expected["calls"] = 3;
}

void odd() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  constexpr int kCount = 40000;
  const auto n = static_cast<std::size_t>(size);
  std::vector<float> in(kCount * n, 1.0f), out(kCount * n), other(kCount * n);
  std::vector<int> counts(n, kCount), negative(n, -1);
  const auto reduce = native(&MPI_Reduce, "PMPI_Reduce");
  const auto scatter = native(&MPI_Reduce_scatter, "PMPI_Reduce_scatter");
  const auto block = native(&MPI_Reduce_scatter_block, "PMPI_Reduce_scatter_block");
  const auto same = [](const char* what, const auto& mine, const auto& library) {
    const int got = class_of(mine()), wanted = class_of(library());
    CHECK(wanted != MPI_SUCCESS, "%s is no error of MPI's", what);
    CHECK(got == wanted, "%s: class %d, MPI says %d", what, got, wanted);
  };
#define SAME(what, name, library, ...) \
  same(                                \
      what, [&] { return name(__VA_ARGS__); }, [&] { return library(__VA_ARGS__); })
  const auto world = MPI_COMM_WORLD;
  float *send = in.data(), *receive = out.data();
  SAME("no such root", MPI_Reduce, reduce, send, receive, kCount, MPI_FLOAT, MPI_SUM, size, world);
  SAME("a negative root", MPI_Reduce, reduce, send, receive, kCount, MPI_FLOAT, MPI_SUM, -77, world);
#if defined(OPEN_MPI)  // MPICH 4.0 does not look at one count: it copies -5 elements, and ends by a signal
  SAME("a negative count", MPI_Reduce, reduce, send, receive, -5, MPI_FLOAT, MPI_SUM, 0, world);
#endif
  SAME("no datatype", MPI_Reduce, reduce, send, receive, kCount, MPI_DATATYPE_NULL, MPI_SUM, 0, world);
  SAME("no operation", MPI_Reduce, reduce, send, receive, kCount, MPI_FLOAT, MPI_OP_NULL, 0, world);
  SAME("no communicator", MPI_Reduce, reduce, send, receive, kCount, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_NULL);
  SAME("negative counts", MPI_Reduce_scatter, scatter, send, receive, negative.data(), MPI_FLOAT, MPI_SUM, world);
  SAME("no operation, scattered", MPI_Reduce_scatter, scatter, send, receive, counts.data(), MPI_FLOAT, MPI_OP_NULL,
       world);
  SAME("no communicator, scattered", MPI_Reduce_scatter, scatter, send, receive, counts.data(), MPI_FLOAT, MPI_SUM,
       MPI_COMM_NULL);
  SAME("in-place receive", MPI_Reduce_scatter, scatter, send, MPI_IN_PLACE, counts.data(), MPI_FLOAT, MPI_SUM, world);
#if defined(OPEN_MPI)
  SAME("a negative block", MPI_Reduce_scatter_block, block, send, receive, -1, MPI_FLOAT, MPI_SUM, world);
#endif
  SAME("no datatype, block", MPI_Reduce_scatter_block, block, send, receive, kCount, MPI_DATATYPE_NULL, MPI_SUM, world);
  SAME("no communicator, block", MPI_Reduce_scatter_block, block, send, receive, kCount, MPI_FLOAT, MPI_SUM,
       MPI_COMM_NULL);
#undef SAME
  // Nothing to do, and nothing is done.
  std::vector<int> none(n, 0);
  CHECK(MPI_Reduce(send, receive, 0, MPI_FLOAT, MPI_SUM, 0, world) == MPI_SUCCESS);
  CHECK(MPI_Reduce_scatter(send, receive, none.data(), MPI_FLOAT, MPI_SUM, world) == MPI_SUCCESS);
  CHECK(MPI_Reduce_scatter_block(send, receive, 0, MPI_FLOAT, MPI_SUM, world) == MPI_SUCCESS);
  CHECK(std::count(out.begin(), out.end(), 0.0f) == static_cast<long>(out.size()));

  // What no codec takes is MPI's, on all ranks.
  const auto compare = [&](const char* what, MPI_Datatype type, MPI_Op op) {
    CHECK(MPI_Reduce_scatter(send, out.data(), counts.data(), type, op, world) == MPI_SUCCESS);
    scatter(send, other.data(), counts.data(), type, op, world);
    CHECK(std::memcmp(out.data(), other.data(), kCount * sizeof(float)) == 0, "%s", what);
    CHECK(MPI_Reduce(send, out.data(), kCount, type, op, size - 1, world) == MPI_SUCCESS);
    reduce(send, other.data(), kCount, type, op, size - 1, world);
    CHECK(rank != size - 1 || std::memcmp(out.data(), other.data(), kCount * sizeof(float)) == 0, "%s", what);
  };
  if (rank == size - 1) in[5] = std::nanf(""), in[in.size() - 1] = INFINITY;
  compare("NaN and Inf", MPI_FLOAT, MPI_SUM);
  expected["passed_through.range"] = size > 1 ? 2 : 0;
  std::fill(in.begin(), in.end(), static_cast<float>(rank + 1) / 3);
  compare("maxima", MPI_FLOAT, MPI_MAX);
  compare("integers", MPI_INT, MPI_SUM);
  MPI_Op own;
  MPI_Op_create(&doubling, 1, &own);
  compare("a user's operation", MPI_FLOAT, own);
  MPI_Op_free(&own);

  // Between two groups MPI has another meaning.
  if (size >= 2) {
    MPI_Comm half, between;
    MPI_Comm_split(world, rank % 2, rank, &half);
    MPI_Intercomm_create(half, 0, world, 1 - rank % 2, 3, &between);
    const int root = rank % 2 ? 0 : rank == 0 ? MPI_ROOT : MPI_PROC_NULL;
    CHECK(MPI_Reduce(send, out.data(), kCount, MPI_FLOAT, MPI_SUM, root, between) == MPI_SUCCESS);
    if (rank == 0) {
      float sum = 0;
      for (int r = 1; r < size; r += 2) sum += static_cast<float>(r + 1) / 3;
      CHECK(std::abs(out[7] - sum) < 1e-5f * sum, "%g, not %g", static_cast<double>(out[7]), static_cast<double>(sum));
    }
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
  }
  expected["calls"] = 0;
}

#if MPI_VERSION >= 4
// A count that no int holds comes to MPI whole, which names it, or not at all.
void large_errors(bool older) {
  constexpr MPI_Count kMost = MPI_Count{1} << 33;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::vector<float> in(100, 1.0f), out(100);
  const std::vector<MPI_Count> counts(static_cast<std::size_t>(size), kMost);
  const auto told = [&](int code, const char* name, bool named) {
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    if (older) CHECK(class_of(code) == MPI_ERR_COUNT, "class %d for %s: '%s'", class_of(code), name, text);
    else CHECK(code != MPI_SUCCESS && std::strstr(text, name), "'%s' for %s", text, name);
    if (!older && named) CHECK(std::strstr(text, std::to_string(kMost).c_str()), "'%s' for %s", text, name);
  };
  float *send = in.data(), *receive = out.data();
  const auto world = MPI_COMM_WORLD;
  const MPI_Op op = older ? MPI_SUM : MPI_OP_NULL;
  told(MPI_Reduce_c(send, receive, kMost, MPI_FLOAT, op, 0, world), "MPI_Reduce_c", true);
  told(MPI_Reduce_scatter_block_c(send, receive, kMost, MPI_FLOAT, op, world), "MPI_Reduce_scatter_block_c", true);
  told(MPI_Reduce_scatter_c(send, receive, counts.data(), MPI_FLOAT, op, world), "MPI_Reduce_scatter_c", false);
  MPI_Request request = MPI_REQUEST_NULL;
  told(MPI_Ireduce_c(send, receive, kMost, MPI_FLOAT, op, 0, world, &request), "MPI_Ireduce_c", true);
  told(MPI_Ireduce_scatter_block_c(send, receive, kMost, MPI_FLOAT, op, world, &request), "MPI_Ireduce_scatter_block_c",
       true);
  told(MPI_Ireduce_scatter_c(send, receive, counts.data(), MPI_FLOAT, op, world, &request), "MPI_Ireduce_scatter_c",
       false);
  told(MPI_Iallreduce_c(send, receive, kMost, MPI_FLOAT, op, world, &request), "MPI_Iallreduce_c", true);
  told(MPI_Allreduce_init_c(send, receive, kMost, MPI_FLOAT, op, world, MPI_INFO_NULL, &request),
       "MPI_Allreduce_init_c", true);
  CHECK(MPI_Reduce_scatter_c(send, receive, counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_NULL) != MPI_SUCCESS);
  CHECK(out == std::vector<float>(100));
  expected["calls"] = 0;
}
#endif

// fp16 has 8 bytes for each 10240 values, two for each value, and zeros up to a multiple of 64; and every rank has a
// header of 64 for every other and chunk.
void reducing() {
  constexpr long kCount = 131072, kBody = (8 * 13 + 2 * kCount + 63) / 64 * 64;
  std::vector<float> in(kCount), out(kCount);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(check::value(i, rank));
  long sent = 0;
  for (int root = 0; root < size; ++root) {
    MPI_Reduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, root, MPI_COMM_WORLD);
    sent += 64 * (size - 1) + (rank == root ? 0 : kBody);
  }
  expected["calls"] = size;
  expected["sent_bytes"] = sent;
  expected["bytes_in"] = 4 * kCount * (size - 1);  // a root has nothing for others
}

// With a codec that compresses nothing, nothing is less.
void rooted() {
  std::vector<float> in(1 << 20, 1.5f), out(in.size());
  for (int i = 0; i < 4; ++i)
    MPI_Reduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
  expected["calls"] = 4;
  expected["bytes_in"] = rank == 0 ? 0 : 4L * 4 * (1 << 20);
}
// Ranks that compress without rank 0.
void others() {
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank == 0 ? MPI_UNDEFINED : 0, rank, &comm);
  if (comm == MPI_COMM_NULL) return;
  std::vector<float> in(1 << 16, 1.5f), out(in.size());
  MPI_Allreduce(in.data(), out.data(), 1 << 16, MPI_FLOAT, MPI_SUM, comm);
  MPI_Comm_free(&comm);
  expected["calls"] = 1;
}
void halved() {
  std::vector<float> in(1 << 20, 1.5f), out(in.size());
  MPI_Reduce_scatter_block(in.data(), out.data(), static_cast<int>(in.size()) / size, MPI_FLOAT, MPI_SUM,
                           MPI_COMM_WORLD);
  expected["calls"] = 1;
  expected["bytes_in"] = 4L * (1 << 20) / size * (size - 1);
}

}  // namespace

int main(int argc, char** argv) {
  std::string what = argc > 1 ? argv[1] : "";
  check::begin();
  for (bool* const form : {&large, &nonblocking})
    if (what == (form == &large ? "large" : "nonblocking")) *form = true, what = argv[2], --argc, ++argv;
#if MPI_VERSION >= 4
  if (what == "errors" || what == "older") return large_errors(what == "older"), check::finish();
#else
  if (large) {
    if (rank == 0) std::puts("skipped: this MPI has no MPI_Reduce_c");
    for (const char* name : {"MPI_Reduce_c", "MPI_Reduce_scatter_c", "PMPI_Reduce_scatter_block_c"})
      CHECK(!dlsym(RTLD_DEFAULT, name), "%s is exported all the same", name);
    const int status = check::failures ? 1 : 77;
    MPI_Finalize();
    return status;
  }
#endif
  if (what == "feedback") feedback();
  else if (what == "training") training();
  else if (what == "odd") odd();
  else if (what == "aliased") aliased();
  else if (what == "reducing") reducing();
  else if (what == "rooted") rooted();
  else if (what == "others") others();
  else if (what == "halved") halved();
  else {
    std::vector<int> counts{0, 1000, 16400, 100001};
    if (argc > 2) counts.clear();
    for (int i = 2; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
    sums(what != "exact", counts, what == "floats");
  }
  return check::finish();
}
