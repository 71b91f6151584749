// PowerSGD over real MPI: tensors of low rank come back whole on every rank with the same bits, small ones exactly, and NaN sends a call through MPI.
#include "crimp/crimp.h"

#include "check.hpp"

using check::expected, check::rank, check::size;

namespace {

struct Shape {
  const char* name;
  std::size_t rows, cols;
};

// Rank 1, equal on all ranks but for a factor.
float element(const Shape& s, std::size_t i, int of_rank) {
  const auto part = [&](std::size_t k, unsigned stream) { return check::value(k, 0, stream + static_cast<unsigned>(s.rows)); };
  return static_cast<float>(part(i / s.cols, 1) * part(i % s.cols, 1000) * (of_rank + 1));
}

void reduce(const std::vector<Shape>& shapes, bool in_place, bool poisoned) {
  std::vector<crimp_segment> segments;
  std::vector<float> in;
  std::vector<double> exact;
  for (const Shape& s : shapes) {
    segments.push_back({s.name, s.rows * s.cols});
    for (std::size_t i = 0; i < s.rows * s.cols; ++i) {
      in.push_back(element(s, i, rank));
      exact.push_back(0);
      for (int r = 0; r < size; ++r) exact.back() += static_cast<double>(element(s, i, r));
    }
  }
  if (poisoned && rank == size - 1) in[in.size() / 2] = std::nanf("");
  std::vector<float> out = in;
  const void* send = in_place ? MPI_IN_PLACE : in.data();
  CHECK(crimp_allreduce(send, out.data(), out.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, segments.data(), segments.size()) == MPI_SUCCESS);
  ++expected[size == 1 ? "passed_through.communicator" : poisoned ? "passed_through.range" : "calls"];
  CHECK(check::identical(out.data(), out.size() * sizeof(float), MPI_COMM_WORLD));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (poisoned && i == out.size() / 2) CHECK(std::isnan(out[i]));
    else CHECK(std::abs(static_cast<double>(out[i]) - exact[i]) <= 1e-4 * size * size, "element %zu is %.7g, exact %.7g", i, out[i], exact[i]);
  }
}

}  // namespace

int main() {
  check::begin();
  const Shape square{"square", 200, 200}, wide{"wide", 128, 784}, bias{"bias", 1, 333}, prime{"prime", 1, 1009}, one{"one", 1, 1};
  for (const bool in_place : {false, true}) {
    reduce({square, wide, bias}, in_place, false);
    reduce({bias, square, one}, in_place, false);
    reduce({wide, prime}, in_place, true);
    reduce({wide, prime}, in_place, false);
  }
  return check::finish();
}
