// Sums that Crimp may compress: every datatype, in and out of place, counts around CRIMP_MIN_COUNT and over several
// chunks.
//   sums lossy [COUNT...]   near the exact sum, bit-identical on all ranks, compressed as often as the report says
//   sums exact [COUNT...]   the MPI library's own result, bit for bit, and nothing compressed
#include "numbers.hpp"

using check::Number, check::numbers;

namespace {

constexpr std::size_t kGuard = 64;

void sum(const Number& number, std::size_t count, bool in_place, bool exactly) {
  const std::size_t bytes = count * number.bytes;
  std::vector<unsigned char> in(bytes + 8), out(bytes + 2 * kGuard, 0xa5), plain(bytes + 8);
  number.fill(in.data(), count, check::rank);
  const std::vector<unsigned char> before = in;
  unsigned char* const result = out.data() + kGuard;
  if (in_place) std::memcpy(result, in.data(), bytes);
  const void* send = in_place ? MPI_IN_PLACE : in.data();
  const int rc = MPI_Allreduce(send, result, static_cast<int>(count), number.type, number.sum, MPI_COMM_WORLD);

  const std::string what = std::string(number.name) + " x " + std::to_string(count) + (in_place ? " in place" : "");
  CHECK(rc == MPI_SUCCESS, "%s", what.c_str());
  CHECK(in == before, "%s: sendbuf was changed", what.c_str());
  for (std::size_t i = 0; i < kGuard; ++i)
    CHECK(out[i] == 0xa5 && out[kGuard + bytes + i] == 0xa5, "%s: written outside recvbuf", what.c_str());
  CHECK(check::identical(result, bytes, MPI_COMM_WORLD), "%s: not identical on all ranks", what.c_str());
  if (exactly) {
    check::native_allreduce(in.data(), plain.data(), static_cast<int>(count), number.type, number.sum, MPI_COMM_WORLD);
    CHECK(std::memcmp(plain.data(), result, bytes) == 0, "%s: not MPI's bits", what.c_str());
    return;
  }
  std::vector<double> sums(count), magnitudes(count);
  std::vector<unsigned char> other(bytes + 8);
  for (int r = 0; r < check::size; ++r) {
    number.fill(other.data(), count, r);
    for (std::size_t i = 0; i < count; ++i) {
      const double x = number.load(other.data(), i);
      sums[i] += x;
      magnitudes[i] += std::abs(x);
    }
  }
  // Both look through the environment.
  const double relative = check::codec_error() + check::size * 0x1p-23 + number.ulp;
  const double absolute = check::size * (check::codec_noise() + 0x1p-25);
  for (std::size_t i = 0; i < count; ++i) {
    const double got = number.load(result, i);
    const double allowed = magnitudes[i] * relative + absolute;
    CHECK(std::abs(got - sums[i]) <= allowed, "%s: element %zu is %.9g, not %.9g +- %.2g", what.c_str(), i, got,
          sums[i], allowed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const bool lossy = argc > 1 && !std::strcmp(argv[1], "lossy");
  const char* setting = std::getenv("CRIMP_MIN_COUNT");
  const auto min_count = static_cast<std::size_t>(setting ? std::atol(setting) : 16384);
  std::vector<std::size_t> counts{0, 1, 7, 16383, 16384, 40961, 700001};
  if (argc > 2) counts.clear();
  for (int i = 2; i < argc; ++i) counts.push_back(static_cast<std::size_t>(std::atol(argv[i])));

  check::begin();
  for (const Number& number : numbers())
    for (const std::size_t count : counts)
      for (const bool in_place : {false, true}) {
        const bool eligible = lossy && check::size > 1 && count >= min_count;
        sum(number, count, in_place, !eligible);
        check::expected["calls"] += eligible;
        check::expected["passed_through.small"] += lossy && count < min_count;
        check::expected["passed_through.communicator"] += lossy && count >= min_count && check::size == 1;
      }
  return check::finish();
}
