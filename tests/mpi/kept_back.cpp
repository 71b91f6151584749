// What gradients that name no tensors, or layers that are not used, get:
//   kept_back votes   a gradient that turns slowly, of which no sum says anything of the next one but its signs: with
//                     codecs of votes every result is one of votes
//   kept_back waits   a named tensor that is alone in its calls, in steps in which it was not used, too: its residual
//                     comes, or waits if the program says so (crimp_set_idle_waits)
//   kept_back forgets a tensor whose residual comes, unless the ranks, one after the other, have forgotten it
//                     (crimp_forget)
//   kept_back moves A named tensors in changing orders, whose sums owners hold back, then zeros by algorithm A:
//                     all that was summed comes out
//   kept_back idle OTHER [horovod]
//                     a named tensor that was used, and then is zeros on all ranks while the tensor OTHER, which rules
//                     may sum exactly, is not: zeros. When both are, it asks for what is held back, or, where Horovod,
//                     played, names the tensors, it still waits
#include "crimp/crimp.h"

#include <optional>

#include "played_horovod.hpp"

using check::rank, check::size;

namespace {

constexpr int kCount = 40000;

std::vector<double> direction(unsigned seed) {
  std::vector<double> x(kCount);
  std::uint64_t s = 88172645463325252ull + seed * 977;
  const auto uniform = [&s] {
    s ^= s << 13, s ^= s >> 7, s ^= s << 17;
    return static_cast<double>(s >> 11) * 0x1p-53;
  };
  for (double& v : x) v = std::sqrt(-2 * std::log(uniform() + 1e-300)) * std::cos(6.283185307179586 * uniform());
  return x;
}

void votes() {
  const auto a = direction(1), b = direction(2);
  for (int step = 0; step < 30; ++step) {
    std::vector<float> x(kCount);
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(1e-3 * (std::cos(0.05 * step) * a[i] + std::sin(0.05 * step) * b[i]));
    CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
    for (const float v : x)
      if (!(std::abs(v) <= static_cast<float>(size) && v == std::floor(v)))
        return check::fail(__FILE__, __LINE__, "votes", check::text("step %d: %g", step, static_cast<double>(v)));
  }
}

void idle(const std::string& other, bool by_horovod) {
  std::optional<check::PlayedHorovod> horovod;
  if (by_horovod) horovod.emplace();
  constexpr int kIdle = 6, kSilent = 14;  // the steps from which on the tensor is zeros, and both are
  for (int step = 0; step <= kSilent; ++step) {
    std::vector<float> x(2 * kCount);
    const auto noise = direction(static_cast<unsigned>(100 + 10 * step + rank));
    for (std::size_t i = 0; i < noise.size(); ++i) {
      if (step < kSilent) x[i] = static_cast<float>(1e-3 * noise[i]);
      if (step < kIdle) x[kCount + i] = static_cast<float>(-2e-3 * noise[i]);
    }
    const crimp_segment tensors[] = {{other.c_str(), kCount}, {"at_first.weight", kCount}};
    if (by_horovod) horovod->announce({{other, kCount}, {"at_first.weight", kCount}});
    CHECK((by_horovod ? MPI_Allreduce(MPI_IN_PLACE, x.data(), 2 * kCount, MPI_FLOAT, MPI_SUM, horovod->comm)
                      : crimp_allreduce(MPI_IN_PLACE, x.data(), 2 * kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, tensors,
                                        2)) == MPI_SUCCESS);
    const auto is_zero = [](float v) { return v == 0; };
    CHECK(step == kSilent || !std::all_of(x.begin(), x.begin() + kCount, is_zero), "step %d", step);
    CHECK(std::all_of(x.begin() + kCount, x.end(), is_zero) == (step >= kIdle && (step < kSilent || by_horovod)),
          "step %d", step);
  }
  check::expected["passed_through.first"] = 1;  // under Horovod, where a report is compared
  check::expected["calls"] = check::expected["layouts.negotiated.calls"] = kSilent;
}

// A tensor alone in its calls, every second of which it was not used.
void waits() {
  const crimp_segment tensor[] = {{"alone.weight", kCount}};
  CHECK(crimp_set_idle_waits(MPI_COMM_WORLD, 2) != MPI_SUCCESS);
  for (const int waiting : {1, 0}) {
    CHECK(crimp_set_idle_waits(MPI_COMM_WORLD, waiting) == MPI_SUCCESS);
    for (int step = 0; step < 6; ++step) {
      std::vector<float> x(kCount);
      const auto noise = direction(static_cast<unsigned>(500 + 10 * step + rank));
      for (std::size_t i = 0; i < noise.size() && step % 2 == 0; ++i) x[i] = static_cast<float>(1e-3 * noise[i]);
      CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, tensor, 1) == MPI_SUCCESS);
      const bool zeros = std::all_of(x.begin(), x.end(), [](float v) { return v == 0; });
      CHECK(zeros == (waiting && step % 2), "waits %d, step %d", waiting, step);
    }
  }
}

void forgets() {
  const crimp_segment tensor[] = {{"alone.weight", kCount}};
  const auto comes = [&](double scale) {
    std::vector<float> x(kCount);
    const auto noise = direction(static_cast<unsigned>(700 + rank));
    for (std::size_t i = 0; i < noise.size(); ++i) x[i] = static_cast<float>(scale * noise[i]);
    CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, tensor, 1) == MPI_SUCCESS);
    return std::any_of(x.begin(), x.end(), [](float v) { return v != 0; });
  };
  CHECK(crimp_forget(MPI_COMM_NULL) != MPI_SUCCESS);
  CHECK(crimp_forget(MPI_COMM_WORLD) == MPI_SUCCESS);  // of what nobody knows
  for (const bool forget : {false, true}) {
    CHECK(comes(1e-3));
    int token = 0;
    if (rank > 0) MPI_Recv(&token, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int times = 0; forget && times < 2; ++times) CHECK(crimp_forget(MPI_COMM_WORLD) == MPI_SUCCESS);
    if (rank + 1 < size) MPI_Send(&token, 1, MPI_INT, rank + 1, 0, MPI_COMM_WORLD);
    CHECK(comes(0) == !forget, "forgets %d", forget);
  }
}

// Tensors in another order in each call, so that places are owned by one rank and then by another; then calls of
// nothing but zeros, in one order, by the algorithm `then`. All that was summed comes out by then, whoever held it
// back.
void moves(const char* then) {
  constexpr int kTensors = 6;
  std::vector<std::vector<double>> owed(kTensors, std::vector<double>(kCount));
  std::vector<int> order(kTensors);
  for (int t = 0; t < kTensors; ++t) order[static_cast<std::size_t>(t)] = t;
  double before = 0;
  for (int step = 0; step < 200; ++step) {
    if (step < 30) std::rotate(order.begin(), order.begin() + 1 + step % 4, order.end());
    if (step == 30) CHECK(crimp_set_algorithm(MPI_COMM_WORLD, then) == MPI_SUCCESS);
    std::vector<float> x(kTensors * kCount);
    std::vector<std::string> names;
    std::vector<crimp_segment> tensors;
    for (const int t : order) names.push_back(check::text("layer%d.weight", t));
    for (const std::string& name : names) tensors.push_back({name.c_str(), kCount});
    for (int place = 0; place < kTensors && step < 30; ++place) {
      const int t = order[static_cast<std::size_t>(place)];
      for (int r = 0; r < size; ++r) {
        const auto noise = direction(static_cast<unsigned>(1000 * t + 10 * step + r));
        for (std::size_t i = 0; i < noise.size(); ++i) {
          const auto g = static_cast<float>(1e-3 * noise[i]);
          if (r == rank) x[static_cast<std::size_t>(place) * kCount + i] = g;
          owed[static_cast<std::size_t>(t)][i] += static_cast<double>(g);
        }
      }
    }
    CHECK(crimp_allreduce(MPI_IN_PLACE, x.data(), kTensors * kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, tensors.data(),
                          kTensors) == MPI_SUCCESS);
    double rest = 0;
    for (int place = 0; place < kTensors; ++place)
      for (std::size_t i = 0; i < kCount; ++i) {
        double& o = owed[static_cast<std::size_t>(order[static_cast<std::size_t>(place)])][i];
        o -= static_cast<double>(x[static_cast<std::size_t>(place) * kCount + i]);
        rest += o * o;
      }
    if (step == 29) before = rest;
    // What is kept in bytes is rounded in each call.
    const char* const kept = std::getenv("CRIMP_RESIDUAL");
    if (step == 199) CHECK(rest < (kept ? 1e-2 : 1e-6) * before, "%g of %g", std::sqrt(rest), std::sqrt(before));
  }
}

}  // namespace

int main(int argc, char** argv) {
  check::begin();
  const std::string what = argv[1];
  if (what != "votes") MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  what == "votes"     ? votes()
  : what == "idle"    ? idle(argv[2], argc > 3)
  : what == "moves"   ? moves(argv[2])
  : what == "forgets" ? forgets()
                      : waits();
  return check::finish();
}
