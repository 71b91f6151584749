// DGC under Horovod's negotiation: tensors of calls that are too small, and tensors that rules exclude, have momentum
// as all others. Horovod is played.
#include <optional>

#include "played_horovod.hpp"

using check::expected, check::rank, check::size;

namespace {

constexpr double kMomentum = 0.9;
MPI_Comm horovod;
const check::PlayedHorovod* played;

struct Tensor {
  const char* name;
  std::int64_t count;
  bool exactly;
};

// What the coordinator has all ranks do next.
void announce(const std::vector<Tensor>& tensors) {
  std::vector<std::pair<std::string, std::int64_t>> named;
  for (const Tensor& t : tensors) named.emplace_back(t.name, t.count);
  played->announce(named);
}

// Every rank's gradients are its number and one, in units that are no whole number: those are metrics.
constexpr double kUnit = 0.75;
std::vector<float> sum(std::size_t count, double unit = kUnit) {
  std::vector<float> x(count, static_cast<float>(unit * (rank + 1)));
  CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, horovod) == MPI_SUCCESS);
  CHECK(check::identical(x.data(), x.size() * sizeof(float), MPI_COMM_WORLD));
  return x;
}

// Momentum goes on, however small gradients become: u = 0.9 g + g / 64, and v has the first step's as well.
void falling() {
  for (const bool falls : {false, true}) {
    announce({{"allreduce.falling.weight", 20000, false}});
    const auto x = sum(20000, falls ? kUnit / 64 : kUnit);
    const auto largest = static_cast<double>(*std::max_element(x.begin(), x.end()));
    const double v = kUnit * size * (size + 1) / 2.0 * (falls ? 1 + kMomentum + 1.0 / 64 : 1);
    CHECK(std::abs(largest - v) <= 1e-5 * v, "the largest that is sent is %.7g, not %.7g", largest, v);
    ++expected["layouts.negotiated.calls"];
  }
}

}  // namespace

// CRIMP_RULES are *bias=none, the codec is dgc with a momentum of 0.9.
int main(int argc, char**) {
  check::begin();
  std::optional<check::PlayedHorovod> plays(std::in_place);
  played = &*plays;
  horovod = plays->comm;
  if (argc > 1) {
    falling();
    plays.reset();
    return check::finish();
  }
  const double gradients = kUnit * size * (size + 1) / 2.0;
  const std::vector<Tensor> calls[] = {{{"allreduce.small.weight", 300, true}},
                                       {{"allreduce.one", 1, true}, {"allreduce.tiny.bias", 5, true}},
                                       {{"allreduce.norm.bias", 20000, true}},
                                       {{"allreduce.large.weight", 20000, false}, {"allreduce.part.bias", 500, true}}};
  constexpr int kSteps = 15;
  for (int step = 1; step <= kSteps; ++step)
    for (const auto& tensors : calls) {
      announce(tensors);
      std::int64_t count = 0;
      for (const Tensor& t : tensors) count += t.count;
      const auto x = sum(static_cast<std::size_t>(count));
      // Lin et al., section 3.2: of a constant gradient u is the geometric series, and what is sent whole leaves
      // nothing in v.
      const double u = gradients * (1 - std::pow(kMomentum, step)) / (1 - kMomentum);
      std::size_t at = 0;
      for (const Tensor& t : tensors)
        for (std::int64_t i = 0; i < t.count; ++i, ++at)
          CHECK(!t.exactly || std::abs(static_cast<double>(x[at]) - u) <= 1e-5 * u, "step %d: %s[%d] is %.7g, not %.7g",
                step, t.name, static_cast<int>(i), static_cast<double>(x[at]), u);
    }
  // A metric of whole numbers, alone and beside a gradient: MPI's sum, without momentum; what is kept of the gradient
  // stays.
  for (const bool alone : {true, false}) {
    announce(alone
                 ? std::vector<Tensor>{{"allreduce.confusion", 20000, true}}
                 : std::vector<Tensor>{{"allreduce.large.weight", 20000, false}, {"allreduce.confusion", 20000, true}});
    std::vector<float> x(alone ? 20000 : 40000, static_cast<float>(kUnit * (rank + 1)));
    const auto counts = x.end() - 20000;
    for (int i = 0; i < 20000; ++i) counts[i] = static_cast<float>((rank + 1) * (i % 7 ? i % 5000 : 0));
    std::vector<float> plain(x.size());
    check::native_allreduce(x.data(), plain.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, horovod);
    CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(x.size()), MPI_FLOAT, MPI_SUM, horovod) ==
          MPI_SUCCESS);
    CHECK(x == plain, "%s", alone ? "alone" : "beside a gradient");
    ++expected["passed_through.no_gradient"];
  }
  // What nobody announced has no name, and no momentum.
  for (const float x : sum(300)) CHECK(x == static_cast<float>(gradients), "%g", static_cast<double>(x));
  expected["calls"] = kSteps;
  expected["layouts.negotiated.calls"] = kSteps;
  expected["passed_through.rules"] = kSteps;
  expected["passed_through.small"] = 2 * kSteps + 1;
  plays.reset();
  return check::finish();
}
