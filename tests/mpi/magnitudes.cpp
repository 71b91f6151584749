// Values of every size in calls whose tensors are unknown: what such calls get is never worse than 1 % in norm, and
// never zeros for values.
//   magnitudes [LEAST]   with a codec of a least magnitude: buffers below go through MPI exactly
//   magnitudes votes     CRIMP_CODEC=signsgd: a sign has no magnitude, in float64 either
// No two calls have the same count, so that no sequence ever repeats.
#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

std::size_t next_count = 30011;
double least = 0;

double distance(const std::vector<double>& a, const std::vector<double>& b, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

enum class Fate { compressed, exact };

// Element i of a rank is magnitude(i, rank) times a number in [-1, 1). Each run of `section` elements is judged by
// itself.
template <class T, class Magnitude>
void call(MPI_Datatype type, Magnitude&& magnitude, std::size_t section, Fate fate, const char* what) {
  const std::size_t count = next_count += 1013;
  const auto value = [&](std::size_t i, int of) { return static_cast<T>(magnitude(i, of) * check::value(i, of)); };
  std::vector<T> in(count), out(count), plain(count);
  std::vector<double> sum(count), got(count);
  for (std::size_t i = 0; i < count; ++i) {
    in[i] = value(i, rank);
    for (int r = 0; r < size; ++r) sum[i] += static_cast<double>(value(i, r));
  }
  CHECK(MPI_Allreduce(in.data(), out.data(), static_cast<int>(count), type, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS,
        "%s", what);
  CHECK(check::identical(out.data(), count * sizeof(T), MPI_COMM_WORLD), "%s", what);
  if (fate == Fate::exact) {
    check::native_allreduce(in.data(), plain.data(), static_cast<int>(count), type, MPI_SUM, MPI_COMM_WORLD);
    CHECK(std::memcmp(out.data(), plain.data(), count * sizeof(T)) == 0, "%s: not MPI's bits", what);
  }
  ++expected[fate == Fate::exact ? "passed_through.range" : "calls"];
  for (std::size_t i = 0; i < count; ++i) got[i] = static_cast<double>(out[i]);
  const std::vector<double> zeros(count);
  for (std::size_t begin = 0; begin < count; begin += section) {
    const std::size_t end = std::min(count, begin + section);
    const double norm = distance(sum, zeros, begin, end), error = distance(got, sum, begin, end);
    CHECK(error <= 0.01 * norm, "%s: elements %zu to %zu: error %.3g of norm %.3g", what, begin, end, error, norm);
  }
}

template <class T>
void uniform(MPI_Datatype type, double magnitude, const char* name, Fate fate) {
  const std::string what = check::text("%s of %.3g", name, magnitude);
  call<T>(
      type, [=](std::size_t, int) { return magnitude; }, 1 << 30, fate, what.c_str());
}

// Every rank has a vote; where they are of one mind the result says how many ranks there are.
void votes(double magnitude, bool blocks) {
  const std::size_t count = next_count += 1013;
  std::vector<double> in(count), out(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = magnitude * check::value(i, rank);
  const auto n = static_cast<int>(count);
  if (blocks) {
    CHECK(MPI_Allreduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  } else {
    MPI_Request request;
    CHECK(MPI_Iallreduce(in.data(), out.data(), n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
  }
  ++expected["calls"];
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double sum = 0;
    for (int r = 0; r < size; ++r) sum += check::value(i, r) < 0 ? -1 : 1;
    wrong += out[i] != (sum > 0 ? size : sum < 0 ? -size : 0);
  }
  CHECK(wrong == 0, "%zu of %zu votes are wrong, of values of %.3g", wrong, count, magnitude);
}

}  // namespace

int main(int argc, char** argv) {
  check::begin();
  if (argc > 1 && argv[1] == std::string("votes")) {
    for (const double m : {1.0, 1e-29, 1e-31, 1e-38})
      for (const bool blocks : {true, false}) votes(m, blocks);
    return check::finish();
  }
  if (argc > 1) least = std::atof(argv[1]);
  const auto fate = [](double magnitude) { return magnitude < least ? Fate::exact : Fate::compressed; };
  for (const double m : {1e25, 1e5, 1.0, 1e-3, 1e-6, 1e-7, 3e-8, 1e-12, 1e-20, 1e-30, 1e-38})
    uniform<float>(MPI_FLOAT, m, "floats", fate(m));
  for (const double m : {1e25, 1.0, 1e-6, 1e-12, 1e-20, 1e-29}) uniform<double>(MPI_DOUBLE, m, "doubles", fate(m));
  // The largest that are compressed, and what is too large or, in float64, too small.
  uniform<float>(MPI_FLOAT, 1e38, "floats", Fate::exact);
  uniform<double>(MPI_DOUBLE, 1e200, "doubles", Fate::exact);
  // Up to 2^100 for each rank, or for all where sums are encoded, too.
  const bool sums = std::string(std::getenv("CRIMP_ALGORITHM")) == "two_shot";
  uniform<float>(MPI_FLOAT, 1.2e30, "floats", sums ? Fate::exact : Fate::compressed);
  for (const double m : {1e-31, 1e-40, 1e-200}) uniform<double>(MPI_DOUBLE, m, "doubles", Fate::exact);
  // Tensors of all sizes in one buffer, each a thousandth or the thousandfold of the one before; they begin anywhere in
  // a piece.
  const auto ladder = [](std::size_t i, int) { return std::pow(1e-3, std::abs(static_cast<int>(i / 5000 % 16) - 8)); };
  next_count = 60000;
  if (least == 0) {
    call<float>(MPI_FLOAT, ladder, 5000, Fate::compressed, "a ladder of floats");
    call<double>(MPI_DOUBLE, ladder, 5000, Fate::compressed, "a ladder of doubles");
  }
  // Zeros on a rank, or on all, are no small values.
  call<float>(
      MPI_FLOAT, [](std::size_t, int of) { return of == 0 ? 0.0 : 1e-7; }, 1 << 30, Fate::compressed,
      "zeros on rank 0");
  call<float>(
      MPI_FLOAT, [](std::size_t, int) { return 0.0; }, 1 << 30, Fate::compressed, "zeros");
  return check::finish();
}
