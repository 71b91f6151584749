// PowerSGD over real MPI: tensors of low rank come back whole on every rank with the same bits, small ones exactly, and
// NaN sends a call through MPI.
//   low_rank              that
//   low_rank found        of matrices that have rank 4 but for noise as much is kept as their true extents give, which
//   Crimp finds low_rank rule | set   ... which a rule or crimp_set_extents says low_rank names        ... which
//   crimp_set_extents says of two tensors of one name low_rank start        ... behind two exact calls
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
  const auto part = [&](std::size_t k, unsigned stream) {
    return check::value(k, 0, stream + static_cast<unsigned>(s.rows));
  };
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
  CHECK(crimp_allreduce(send, out.data(), out.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, segments.data(),
                        segments.size()) == MPI_SUCCESS);
  ++expected[size == 1 ? "passed_through.communicator" : poisoned ? "passed_through.range" : "calls"];
  CHECK(check::identical(out.data(), out.size() * sizeof(float), MPI_COMM_WORLD));
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (poisoned && i == out.size() / 2) CHECK(std::isnan(out[i]));
    else
      CHECK(std::abs(static_cast<double>(out[i]) - exact[i]) <= 1e-4 * size * size, "element %zu is %.7g, exact %.7g",
            i, out[i], exact[i]);
  }
}

// Values whose squares are for kSignal of rank 4, and noise of every rank.
constexpr double kSignal = .61;
std::vector<float> signal_and_noise(const Shape& s) {
  std::vector<float> values(s.rows * s.cols);
  const auto part = [&](std::size_t i, unsigned stream) {
    return std::sqrt(3.0) * check::value(i, 0, stream);
  };  // of variance 1
  std::vector<double> left(4 * s.rows), right(4 * s.cols);
  for (unsigned k = 0; k < 4; ++k) {
    for (std::size_t i = 0; i < s.rows; ++i) left[4 * i + k] = part(i, 10 + k);
    for (std::size_t j = 0; j < s.cols; ++j) right[4 * j + k] = part(j, 20 + k);
  }
  for (std::size_t i = 0; i < s.rows; ++i)
    for (std::size_t j = 0; j < s.cols; ++j) {
      double signal = 0;
      for (std::size_t k = 0; k < 4; ++k) signal += left[4 * i + k] * right[4 * j + k];
      const double noise = std::sqrt(3.0) * check::value(i * s.cols + j, rank, 30);
      values[i * s.cols + j] = static_cast<float>(std::sqrt(kSignal / 4) * signal + std::sqrt(1 - kSignal) * noise);
    }
  return values;
}

void extents(const std::string& how) {
  const Shape shapes[] = {{how == "names" ? "lm.weight" : "fc.weight", 1000, 2048}, {"lm.weight", 5087, 768}};
  if (how == "set" || how == "names")
    for (const Shape& s : shapes) CHECK(crimp_set_extents(MPI_COMM_WORLD, s.name, s.rows, s.cols) == MPI_SUCCESS);
  for (const Shape& s : shapes) {
    const auto in = signal_and_noise(s);
    std::vector<float> out(in.size()), sum(in.size());
    check::native_allreduce(in.data(), sum.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int call = 0; call < 4; ++call) {
      const crimp_segment segment{s.name, in.size()};
      CHECK(crimp_allreduce(in.data(), out.data(), out.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, &segment, 1) ==
            MPI_SUCCESS);
      CHECK(check::identical(out.data(), out.size() * sizeof(float), MPI_COMM_WORLD));
      double all = 0, lost = 0;
      for (std::size_t i = 0; i < in.size(); ++i) {
        all += static_cast<double>(sum[i]) * static_cast<double>(sum[i]);
        lost += std::pow(static_cast<double>(out[i]) - static_cast<double>(sum[i]), 2);
      }
      const double kept = 1 - lost / all;
      if (rank == 0) std::printf("%s, call %d: %.3f of the energy is kept\n", s.name, call, kept);
      // One power iteration with twice the columns keeps half and more of what is there. What is found counts from the
      // next call on.
      if (how == "start" && call < 2) CHECK(kept > 1 - 1e-9, "kept %g", kept);
      else if (how != "found" || call > 0)
        CHECK(kept > .45 && kept < .9, "call %d of %s keeps %.3f", call, s.name, kept);
      ++expected["calls"];
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    const std::string how = argv[1];
    if (how == "rule")
      setenv("CRIMP_RULES", "fc*=powersgd:r=8,memory=none,cols=2048;lm*=powersgd:r=8,memory=none,cols=768", 1);
    check::begin();
    extents(how);
    return check::finish();
  }
  check::begin();
  const Shape square{"square", 200, 200}, wide{"wide", 128, 784}, bias{"bias", 1, 333}, prime{"prime", 1, 1009},
      one{"one", 1, 1};
  for (const bool in_place : {false, true}) {
    reduce({square, wide, bias}, in_place, false);
    reduce({bias, square, one}, in_place, false);
    reduce({wide, prime}, in_place, true);
    reduce({wide, prime}, in_place, false);
  }
  return check::finish();
}
