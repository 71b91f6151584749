// With DGC every named tensor has momentum: those that rules sum exactly, those of small calls, and those that are now
// here, now there. Expected is the paper's recursion (Lin et al., ICLR 2018, sections 3.2 and 3.3, and its appendix for
// Nesterov's), in plain loops over doubles.
//
// mpi_momentum [clip [nesterov]]: as CRIMP_CODEC says, whose momentum is 0.9; mpi_momentum warmup:
// dgc:ratio=0.001,warmup=8.
#include <functional>
#include <numeric>

#include "check.hpp"
#include "crimp/crimp.h"
#include "persistent.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr double kMomentum = 0.9;
double clip = 0;  // of a tensor's summed norm; 0: none
bool nesterov = false;

// One rank's tensor; all ranks have the same gradients here, so sums are `size` times what one sends.
struct Tensor {
  std::string name;
  std::vector<double> gradient;
  std::vector<double> u = std::vector<double>(gradient.size()), v = u, sum = u;  // sum: expected of the last call

  void accumulate() {
    const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
    const double most = clip / std::sqrt(size), gain = clip > 0 && norm > most ? most / norm : 1.0;
    for (std::size_t i = 0; i < u.size(); ++i) {
      const double g = gain * gradient[i];
      u[i] = nesterov ? kMomentum * (u[i] + g) : kMomentum * u[i] + g;
      v[i] += nesterov ? u[i] + g : u[i];
    }
  }
  void exactly() {
    accumulate();
    for (std::size_t i = 0; i < u.size(); ++i) sum[i] = size * v[i], v[i] = 0;
  }
  void largest(std::size_t k) {
    accumulate();
    std::vector<std::size_t> order(u.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return std::abs(v[a]) > std::abs(v[b]); });
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::size_t j = 0; j < k; ++j) sum[order[j]] = size * v[order[j]], u[order[j]] = v[order[j]] = 0;
  }
};

template <class T>
crimp_dtype dtype_of() {
  return sizeof(T) == 8 ? CRIMP_FLOAT64 : CRIMP_FLOAT32;
}

template <class T>
void reduce(const std::vector<Tensor*>& tensors, bool in_place, double allowed, MPI_Comm comm = MPI_COMM_WORLD) {
  std::vector<crimp_segment> segments;
  std::vector<T> in;
  for (const Tensor* t : tensors) {
    segments.push_back({t->name.c_str(), t->gradient.size()});
    for (const double g : t->gradient) in.push_back(static_cast<T>(g));
  }
  std::vector<T> out = in, before = in;
  const void* send = in_place ? MPI_IN_PLACE : static_cast<const void*>(in.data());
  CHECK(crimp_allreduce(send, out.data(), out.size(), dtype_of<T>(), comm, segments.data(), segments.size()) ==
        MPI_SUCCESS);
  CHECK(in == before, "sendbuf was changed");
  CHECK(check::identical(out.data(), out.size() * sizeof(T), MPI_COMM_WORLD));
  std::size_t at = 0;
  for (const Tensor* t : tensors)
    for (std::size_t i = 0; i < t->sum.size(); ++i, ++at)
      CHECK(std::abs(static_cast<double>(out[at]) - t->sum[i]) <= allowed * std::abs(t->sum[i]),
            "%s[%zu] is %.12g, not %.12g", t->name.c_str(), i, static_cast<double>(out[at]), t->sum[i]);
}

// Gradients of 1: after 15 steps of plain momentum on two ranks 15.88, which a sum without momentum (2) never is.
void constant() {
  Tensor excluded{"norm.bias", std::vector<double>(20000, 1.0)}, small{"small", std::vector<double>(300, 1.0)},
      one{"one", {1.0}};
  Tensor large{"large.weight", std::vector<double>(20000, 1.0)}, part{"part.bias", std::vector<double>(500, 1.0)};
  for (int step = 0; step < 15; ++step) {
    for (Tensor* t : {&excluded, &small, &one, &part}) t->exactly();
    large.largest(200);
    reduce<float>({&excluded}, step % 2, 1e-5);
    reduce<float>({&small, &one}, step % 3, 1e-5);
    // Of equal values those with the lowest index are sent, and that is all that is asked of this tensor here.
    std::vector<float> x(large.gradient.size() + 500, 1.0f);
    const crimp_segment both[] = {{large.name.c_str(), large.gradient.size()}, {part.name.c_str(), 500}};
    CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), x.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, both, 2) == MPI_SUCCESS);
    for (std::size_t i = 0; i < 500; ++i)
      CHECK(std::abs(static_cast<double>(x[20000 + i]) - part.sum[i]) <= 1e-5 * part.sum[i], "part[%zu] is %g, not %g",
            i, static_cast<double>(x[20000 + i]), part.sum[i]);
    expected["calls"] += 1;
    expected["passed_through.rules"] += 1;
    expected["passed_through.small"] += 1;
  }
  if (clip == 0 && !nesterov)
    for (const Tensor* t : {&excluded, &small, &one, &part})
      CHECK(std::abs(t->sum[0] - size * 10 * (1 - std::pow(0.9, 15))) < 1e-9, "the expectation itself");
}

// A tensor that is compressed where it is merged with a large one, and summed exactly where it comes alone, in either
// order.
void now_here_now_there() {
  Tensor mixed{"mixed", {1, -2.3, 5.1, 11.7, 0.3, 0.04}};
  Tensor other{"other", std::vector<double>(20000)};
  for (std::size_t i = 0; i < other.gradient.size(); ++i)
    other.gradient[i] = std::ldexp(1 + static_cast<double>(i) / 65536, i % 2 ? 2 : 0);
  for (int step = 0; step < 24; ++step) {
    if (step % 5 == 1 || step % 5 == 4) {
      mixed.exactly();
      reduce<float>({&mixed}, false, 1e-5);
      ++expected["passed_through.small"];
    } else {
      mixed.largest(1);  // max(1, round(0.01 * 6))
      std::vector<float> x;
      for (const double g : other.gradient) x.push_back(static_cast<float>(g));
      for (const double g : mixed.gradient) x.push_back(static_cast<float>(g));
      const crimp_segment both[] = {{"other", other.gradient.size()}, {"mixed", mixed.gradient.size()}};
      CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), x.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, both, 2) == MPI_SUCCESS);
      for (std::size_t i = 0; i < mixed.sum.size(); ++i) {
        const double got = static_cast<double>(x[other.gradient.size() + i]);
        CHECK(std::abs(got - mixed.sum[i]) <= 1e-5 * std::abs(mixed.sum[i]), "step %d: mixed[%zu] is %.9g, not %.9g",
              step, i, got, mixed.sum[i]);
      }
      ++expected["calls"];
    }
  }
}

// float64 keeps its precision but for the momentum's, which is float32's; what float16 rounds away is kept for the next
// step.
void other_types() {
  Tensor wide{"wide.bias", {1.0 + 1e-12, -3.3333333333333333, 1e-9, 2e20}};
  for (int step = 0; step < 10; ++step) {
    wide.exactly();
    reduce<double>({&wide}, step % 2, 1e-6);
    ++expected["passed_through.small"];
  }
  constexpr double kGradient = 0.0625 * (1 + 0x1p-10);
  Tensor half{"half.bias", {kGradient}};
  double exact = 0, got = 0;
  for (int step = 0; step < 40; ++step) {
    half.exactly();
    exact += half.sum[0];
    std::uint16_t x = 0x2c01;  // the gradient
    const crimp_segment one[] = {{"half.bias", 1}};
    CHECK(crimp_allreduce(MPI_IN_PLACE, &x, 1, CRIMP_FLOAT16, MPI_COMM_WORLD, one, 1) == MPI_SUCCESS);
    const int exponent = x >> 10 & 31;
    got += std::ldexp(1024 + (x & 1023), exponent - 25);
    ++expected["passed_through.small"];
  }
  // Each rank's rounding is made good; those of the sum, half of 2^-10 each at most, are not.
  CHECK(size > 2 || clip > 0 || std::abs(got - exact) < 2e-3 * size, "sums of 40 steps: %.6f, exact %.6f", got, exact);
}

// NaN reaches the result as it should, and nothing that is kept.
void not_a_number() {
  Tensor t{"nan.bias", {1.0, 2.0}};
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      float x[2] = {rank == 0 ? std::nanf("") : 1.0f, 2.0f};
      const crimp_segment one[] = {{"nan.bias", 2}};
      CHECK(crimp_allreduce(MPI_IN_PLACE, x, 2, CRIMP_FLOAT32, MPI_COMM_WORLD, one, 1) == MPI_SUCCESS);
      CHECK(std::isnan(x[0]) && !std::isnan(x[1]));
      // The other ranks' momentum has seen it; on this program's terms that is one more step for them, so all begin
      // anew under another name.
      t = {"nan2.bias", {1.0, 2.0}};
    } else {
      t.exactly();
      reduce<float>({&t}, true, 1e-5);
    }
    ++expected["passed_through.small"];
  }
  // Where every rank has one, what was kept goes on as if the call had not been.
  Tensor all{"all.bias", {1.0}};
  for (int step = 0; step < 6; ++step) {
    if (step == 2) {
      float x = std::numeric_limits<float>::infinity();
      const crimp_segment one[] = {{"all.bias", 1}};
      CHECK(crimp_allreduce(MPI_IN_PLACE, &x, 1, CRIMP_FLOAT32, MPI_COMM_WORLD, one, 1) == MPI_SUCCESS);
      CHECK(std::isinf(x));
    } else {
      all.exactly();
      reduce<float>({&all}, true, 1e-5);
    }
    ++expected["passed_through.small"];
  }
}

// A communicator's first calls, whatever few elements they have.
void first_calls() {
  for (std::size_t count = 1; count <= 40; ++count) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    Tensor t{"few.bias", std::vector<double>(count, 1.0)};
    for (int step = 0; step < 3; ++step) {
      t.exactly();
      reduce<float>({&t}, step == 1, 1e-5, comm);
      ++expected["passed_through.small"];
    }
    MPI_Comm_free(&comm);
  }
}

// What is kept of a small tensor since its first call stays where MPI has the call behind that.
void before_a_pass() {
  Tensor first{"first.bias", {1.0, 2.0}};
  first.exactly();
  reduce<float>({&first}, true, 1e-5);
  std::vector<float> x(20000, 1.5f);
  if (rank == 0) x[7] = std::nanf("");
  const crimp_segment poisoned[] = {{"poisoned.weight", x.size()}};
  CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), x.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, poisoned, 1) == MPI_SUCCESS);
  CHECK(std::isnan(x[7]) && x[8] == 1.5f * static_cast<float>(size));
  first.exactly();
  reduce<float>({&first}, true, 1e-5);
  expected["passed_through.small"] += 2;
  ++expected["passed_through.range"];
}

// CRIMP_RULES say of these that they are no parameters: MPI's sum in every call, alone and beside others.
void metrics() {
  std::vector<float> large(20000, 1.0f), merged(20003, 1.0f);
  const crimp_segment weight_first[] = {{"beside.weight", 20000}, {"beside.bias", 1}, {"beside.metric", 2}};
  const crimp_segment of_large[] = {{"large.metric", large.size()}}, one[] = {{"accuracy.metric", 1}};
  Tensor bias{"beside.bias", {1.0}};
  for (int step = 0; step < 5; ++step) {
    float accuracy = 0.75f;
    CHECK(crimp_allreduce(MPI_IN_PLACE, &accuracy, 1, CRIMP_FLOAT32, MPI_COMM_WORLD, one, 1) == MPI_SUCCESS);
    CHECK(accuracy == 0.75f * static_cast<float>(size), "step %d: a metric is %g", step, static_cast<double>(accuracy));
    std::fill(large.begin(), large.end(), 1.0f);
    CHECK(crimp_allreduce(MPI_IN_PLACE, large.data(), large.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, of_large, 1) ==
          MPI_SUCCESS);
    for (const float sum : large)
      CHECK(sum == static_cast<float>(size), "step %d: of a large metric %g", step, static_cast<double>(sum));
    std::fill(merged.begin(), merged.end(), 1.0f);
    CHECK(crimp_allreduce(MPI_IN_PLACE, merged.data(), merged.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, weight_first, 3) ==
          MPI_SUCCESS);
    bias.exactly();
    CHECK(std::abs(static_cast<double>(merged[20000]) - bias.sum[0]) <= 1e-5 * bias.sum[0]);
    for (const float sum : {merged[20001], merged[20002]})
      CHECK(sum == static_cast<float>(size), "step %d: a metric is %g beside a weight", step, static_cast<double>(sum));
    ++expected["passed_through.small"];
    ++expected["passed_through.rules"];
    ++expected["calls"];
  }
}

// Without a name there is no momentum, and Crimp says so (run.py looks for it).
void unnamed() {
  std::vector<float> x(20000, 1.5f);
  for (std::size_t i = 1; i < x.size(); i += 2) x[i] = -1.5f;
  CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), x.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, nullptr, 0) == MPI_SUCCESS);
  CHECK(x[0] == 1.5f * static_cast<float>(size));
  // It may be predicted to be faster by plain MPI, which gives the same; the others have momentum and may not.
  const char* algorithm = std::getenv("CRIMP_ALGORITHM");
  if (algorithm && !std::strcmp(algorithm, "auto")) expected["calls>"] = expected["calls"], expected.erase("calls");
  else ++expected["calls"];
}

// A persistent sum of so many steps of the same values, positive and all different; seen(step, result).
void persistent(int steps, const std::function<void(int, const std::vector<float>&)>& seen) {
  if (!check::kPersistent) return;
  std::vector<float> x(20000), out(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0f + static_cast<float>(i) / 32768.0f;
  MPI_Request request;
  CHECK(check::allreduce_init(x.data(), out.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD,
                              MPI_INFO_NULL, &request) == MPI_SUCCESS);
  for (int step = 0; step < steps; ++step) {
    CHECK(MPI_Start(&request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    seen(step, out);
  }
  MPI_Request_free(&request);
}

// Nobody can clip a norm before all ranks' values are there, so a sum that does not block is MPI's own.
void not_clipped() {
  persistent(2, [](int step, const std::vector<float>& out) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const float sum = static_cast<float>(size) * (1.0f + static_cast<float>(i) / 32768.0f);
      CHECK(out[i] == sum, "step %d: element %zu is %.9g, not %.9g", step, i, static_cast<double>(out[i]),
            static_cast<double>(sum));
    }
  });
  if (check::kPersistent) expected["passed_through.nonblocking"] = 1;
}

// The paper's 25, 6.25, 1.5625 and 0.390625 %, a quarter of the warm-up each, then ratio; by each tensor's own calls,
// however it is merged.
void warmup() {
  constexpr std::size_t kCount = 20000;
  int calls[2] = {};
  const auto sent_in = [](auto begin, auto end) {
    return std::count_if(begin, end, [](float f) { return f != 0.0f; });
  };
  const double shares[] = {0.25, 0.25, 0.0625, 0.0625, 0.015625, 0.015625, 0.00390625, 0.00390625, 0.001, 0.001, 0.001};
  for (int step = 0; step < 11; ++step) {
    const bool both = step % 3 == 1;
    std::vector<float> x((both ? 2 : 1) * kCount);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1.0f + static_cast<float>(i % kCount) / 32768.0f;
    const crimp_segment segments[] = {{both ? "second" : "first", kCount}, {"first", kCount}};
    CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), x.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, segments, both ? 2 : 1) ==
          MPI_SUCCESS);
    for (std::size_t s = 0; s < x.size() / kCount; ++s) {
      const auto begin = x.begin() + static_cast<long>(s * kCount);
      const auto sent = sent_in(begin, begin + kCount);
      const int call = calls[both && s == 0]++;
      CHECK(sent == std::lround(shares[call] * kCount), "call %d of the tensor sent %ld", call, sent);
    }
    ++expected["calls"];
  }
  persistent(11, [&](int step, const std::vector<float>& out) {
    const auto sent = sent_in(out.begin(), out.end());
    CHECK(sent == std::lround(shares[step] * kCount), "start %d of the persistent sum sent %ld", step, sent);
    ++expected["calls"];
  });
}

}  // namespace

int main(int argc, char** argv) {
  check::begin();
  if (argc > 1 && !std::strcmp(argv[1], "warmup")) {
    warmup();
    return check::finish();
  }
  if (argc > 1) clip = std::atof(argv[1]);
  nesterov = argc > 2;
  constant();
  now_here_now_there();
  other_types();
  not_a_number();
  before_a_pass();
  first_calls();
  metrics();
  unnamed();
  if (clip > 0) not_clipped();
  return check::finish();
}
