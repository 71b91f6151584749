// A trainer gives one name to tensors of several sizes: what is held back of one stays, whatever comes of the others.
// Horovod is played.
//   named_sizes     CRIMP_CODEC=topk:ratio=0.5, CRIMP_ALGORITHM=allgather, CRIMP_MIN_COUNT=1024
#include <crimp/crimp.h>
#include <dlfcn.h>

#include <optional>

#include "played_horovod.hpp"

using check::expected, check::rank, check::size;

namespace {

std::optional<check::PlayedHorovod> horovod;

// The same gradient on all ranks: no whole numbers, both signs, and the second half is the larger one. Element 0 of the
// sum of all, in gradients: the smallest one, which waits for another call.
double smallest(const std::string& name, std::size_t count, bool announced = true) {
  std::vector<float> x(count);
  const auto gradient = [&](std::size_t i) {
    return (i % 2 ? -1.0f : 1.0f) * (0.75f + 0.25f * static_cast<float>(i) / static_cast<float>(count));
  };
  for (std::size_t i = 0; i < count; ++i) x[i] = gradient(i);
  if (!announced) {  // by the program itself
    static const auto allreduce = reinterpret_cast<decltype(&crimp_allreduce)>(dlsym(RTLD_DEFAULT, "crimp_allreduce"));
    const crimp_segment segment[] = {{name.c_str(), count}};
    CHECK(allreduce(MPI_IN_PLACE, x.data(), count, CRIMP_FLOAT32, MPI_COMM_WORLD, segment, 1) == MPI_SUCCESS);
    CHECK(check::identical(x.data(), x.size() * sizeof(float), MPI_COMM_WORLD));
    return static_cast<double>(x[0]) / (static_cast<double>(gradient(0)) * size);
  }
  horovod->announce({{name, static_cast<std::int64_t>(count)}});
  CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(count), MPI_FLOAT, MPI_SUM, horovod->comm) ==
        MPI_SUCCESS);
  CHECK(check::identical(x.data(), x.size() * sizeof(float), MPI_COMM_WORLD));
  return static_cast<double>(x[0]) / (static_cast<double>(gradient(0)) * size);
}
bool is(double got, double wanted) { return std::abs(got - wanted) < 1e-4; }

// A tensor whose values are more than 32 times smaller than its name's last ones may be another one: nothing of what
// waits comes with it, neither what is larger than it nor what is not.
void another_tensor() {
  constexpr std::size_t kCount = 20000;
  const auto sum = [](float first, float unit) {
    std::vector<float> x(kCount);
    for (std::size_t i = 0; i < kCount; ++i) x[i] = (i % 2 ? -unit : unit) * (i < kCount / 2 ? 0.1f : 1.0f);
    x[0] = first;
    horovod->announce({{"allreduce.other", static_cast<std::int64_t>(kCount)}});
    CHECK(MPI_Allreduce(MPI_IN_PLACE, x.data(), static_cast<int>(kCount), MPI_FLOAT, MPI_SUM, horovod->comm) ==
          MPI_SUCCESS);
    return static_cast<double>(x[0]) / size;
  };
  CHECK(is(sum(0.5f, 1000.25f), 0.5), "a name's first sum is MPI's own");
  CHECK(is(sum(0.5f, 1000.25f), 0), "the smallest one waits");
  CHECK(is(sum(2.5f, 1.25f), 2.5), "what waited was another tensor's");
}

// A name's first sum that is to be compressed is MPI's own, also where rules had it summed exactly before.
void rules_that_change() {
  static const auto set_codec = reinterpret_cast<decltype(&crimp_set_codec)>(dlsym(RTLD_DEFAULT, "crimp_set_codec"));
  const std::string name = "allreduce.ruled";
  CHECK(set_codec(horovod->comm, name.c_str(), "none") == MPI_SUCCESS);
  for (int call = 0; call < 2; ++call) CHECK(is(smallest(name, 20000), 1), "summed exactly");
  CHECK(set_codec(horovod->comm, name.c_str(), nullptr) == MPI_SUCCESS);
  CHECK(is(smallest(name, 20000), 1), "its first sum");
  CHECK(is(smallest(name, 20000), 0), "the smaller half waits");
}

}  // namespace

int main() {
  check::begin();
  horovod.emplace();
  // Sizes of one name, more than Crimp tells apart (four).
  const std::string name = "allreduce.w";
  CHECK(is(smallest(name, 20000), 1), "a name's first sum is MPI's own");
  CHECK(is(smallest(name, 20000), 0), "the smaller half waits");
  for (const std::size_t other : {21000u, 22000u, 23000u, 24000u, 25000u}) CHECK(is(smallest(name, other), 1));
  for (int again = 0; again < 2; ++again)
    for (const std::size_t other : {21000u, 22000u, 23000u, 24000u, 25000u}) smallest(name, other);
  CHECK(is(smallest(name, 20000), 2), "what waited comes with the next one, whatever the other sizes have sent");

  // So does a program that names its tensors itself.
  const std::string own = "w";
  CHECK(is(smallest(own, 20000, false), 0), "the smaller half waits");
  CHECK(is(smallest(own, 21000, false), 0));
  CHECK(is(smallest(own, 20000, false), 2), "what waited comes with the next one of its size");
  CHECK(is(smallest(own, 21000, false), 2));

  another_tensor();
  rules_that_change();

  // Names that are new in every step: behind so many of them a name's first sum is compressed, and nothing is kept of
  // it.
  const std::string second = "allreduce.v";
  CHECK(is(smallest(second, 20000), 1));
  CHECK(is(smallest(second, 20000), 0));
  for (int i = 0; i < 4200; ++i) smallest("allreduce.step" + std::to_string(i), 1024);
  CHECK(is(smallest(second, 21000), 0), "a first sum that is compressed");
  CHECK(is(smallest(second, 20000), 2), "the other size of this name has what waited");
  CHECK(is(smallest(second, 21000), 0), "and of the first sum nothing was kept");
  CHECK(is(smallest(second, 22000), 0), "a first sum that is compressed");
  CHECK(is(smallest(second, 20000), 0), "the smaller half waits");
  CHECK(is(smallest(second, 20000), 2), "what a later call keeps stays, though nothing was kept of a first sum");
  expected["calls>"] = 100;
  horovod.reset();
  return check::finish();
}
