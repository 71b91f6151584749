// The datatypes whose sums Crimp may compress, with values of theirs.
#pragma once
#include "check.hpp"
#include "crimp/crimp.h"

namespace check {

struct Number {
  const char* name;
  MPI_Datatype type;
  MPI_Op sum;
  std::size_t bytes;
  double ulp;  // of a value near 1, for the rounding of the sum
  void (*fill)(void*, std::size_t, int rank);
  double (*load)(const void*, std::size_t);
};

template <class T>
void fill(void* to, std::size_t n, int of_rank) {
  for (std::size_t i = 0; i < n; ++i) static_cast<T*>(to)[i] = static_cast<T>(value(i, of_rank));
}
template <class T>
double load(const void* from, std::size_t i) {
  return static_cast<double>(static_cast<const T*>(from)[i]);
}
// Halves are made and read as bits: sign, a few exponents around 1, all mantissas.
template <int mantissa>
void fill_half(void* to, std::size_t n, int of_rank) {
  constexpr std::uint64_t kBias = (1 << (14 - mantissa)) - 1;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint64_t r = random_bits(i, static_cast<unsigned>(of_rank));
    const std::uint64_t bits =
        (r & 0x8000) | ((kBias - 1 - (r >> 16) % 4) << mantissa) | ((r >> 32) & ((1u << mantissa) - 1));
    static_cast<std::uint16_t*>(to)[i] = static_cast<std::uint16_t>(bits);
  }
}
template <int mantissa>
double load_half(const void* from, std::size_t i) {
  constexpr int kBias = (1 << (14 - mantissa)) - 1;
  const int bits = static_cast<const std::uint16_t*>(from)[i], exponent = (bits & 0x7fff) >> mantissa,
            m = bits & ((1 << mantissa) - 1);
  const double magnitude =
      exponent ? std::ldexp((1 << mantissa) + m, exponent - kBias - mantissa) : std::ldexp(m, 1 - kBias - mantissa);
  return bits & 0x8000 ? -magnitude : magnitude;
}

inline std::vector<Number> numbers() {
  std::vector<Number> all{
      {"MPI_FLOAT", MPI_FLOAT, MPI_SUM, 4, 0x1p-24, fill<float>, load<float>},
      {"MPI_DOUBLE", MPI_DOUBLE, MPI_SUM, 8, 0x1p-24, fill<double>, load<double>},
      {"MPI_REAL", MPI_REAL, MPI_SUM, 4, 0x1p-24, fill<float>, load<float>},
      {"MPI_REAL4", MPI_REAL4, MPI_SUM, 4, 0x1p-24, fill<float>, load<float>},
      {"MPI_DOUBLE_PRECISION", MPI_DOUBLE_PRECISION, MPI_SUM, 8, 0x1p-24, fill<double>, load<double>},
      {"MPI_REAL8", MPI_REAL8, MPI_SUM, 8, 0x1p-24, fill<double>, load<double>}};
  if (const auto datatype = reinterpret_cast<decltype(&crimp_datatype)>(dlsym(RTLD_DEFAULT, "crimp_datatype"))) {
    Number f16{"float16", {}, {}, 2, 0x1p-10, fill_half<10>, load_half<10>};
    Number bf16{"bfloat16", {}, {}, 2, 0x1p-7, fill_half<7>, load_half<7>};
    CHECK(datatype(CRIMP_FLOAT16, &f16.type, &f16.sum) == MPI_SUCCESS &&
          datatype(CRIMP_BFLOAT16, &bf16.type, &bf16.sum) == MPI_SUCCESS);
    all.push_back(f16);
    all.push_back(bf16);
  }
  std::erase_if(all, [](const Number& n) { return n.type == MPI_DATATYPE_NULL; });
  return all;
}

}  // namespace check
