// The C interface: named segments keep their residuals however tensors are merged, half types, and errors with a clear
// text.
#include "crimp/crimp.h"

#include "check.hpp"

using check::expected, check::rank, check::refused, check::size;

namespace {

struct Tensor {
  const char* name;
  std::size_t count;
  std::vector<double> total = std::vector<double>(count);  // of the results of all steps

  float gradient(std::size_t i, int of_rank) const {
    return static_cast<float>(check::value(i, of_rank, static_cast<unsigned>(name[0])));
  }

  // With error feedback the results of many steps add up to the steps times the exact sum, up to one residual per rank;
  // in two shots owners of shards keep residuals of the sum too, one for each way in which tensors are merged here.
  void check_mean(int steps) const {
    const char* const algorithm = std::getenv("CRIMP_ALGORITHM");
    const double kept = algorithm && std::string(algorithm) == "two_shot" ? 6.0 : 1.5;
    for (std::size_t i = 0; i < count; ++i) {
      double exact = 0;
      for (int r = 0; r < size; ++r) exact += static_cast<double>(gradient(i, r));
      const double mean = total[i] / steps;
      CHECK(std::abs(mean - exact) <= kept * size / steps, "%s[%zu]: mean %.4f of %d steps, exact %.4f", name, i, mean,
            steps, exact);
    }
  }
};

// One call over the given tensors, merged in this order.
void reduce(const std::vector<Tensor*>& merged, bool in_place) {
  std::vector<crimp_segment> segments;
  std::vector<float> in;
  for (const Tensor* t : merged) {
    segments.push_back({t->name, t->count});
    for (std::size_t i = 0; i < t->count; ++i) in.push_back(t->gradient(i, rank));
  }
  std::vector<float> out = in;
  const void* send = in_place ? MPI_IN_PLACE : in.data();
  CHECK(crimp_allreduce(send, out.data(), out.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, segments.data(),
                        segments.size()) == MPI_SUCCESS);
  CHECK(check::identical(out.data(), out.size() * sizeof(float), MPI_COMM_WORLD));
  ++expected[size > 1 ? "calls" : "passed_through.communicator"];
  std::size_t at = 0;
  for (Tensor* t : merged)
    for (std::size_t i = 0; i < t->count; ++i) t->total[i] += static_cast<double>(out[at++]);
}

void merged_differently() {
  constexpr int kSteps = 60;
  Tensor a{"a.weight", 20000}, b{"b.weight", 50001}, c{"c.bias", 7};
  for (int step = 0; step < kSteps; ++step) {
    if (step % 3 == 0) reduce({&a, &b, &c}, false);
    if (step % 3 == 1) reduce({&c, &a}, true), reduce({&b}, true);
    if (step % 3 == 2) reduce({&b, &c, &a}, true);
  }
  if (size > 1) expected["layouts.named.calls>"] = kSteps;
  for (const Tensor* t : {&a, &b, &c}) t->check_mean(kSteps);
}

// The same through plain MPI_Allreduce calls, which Crimp knows again by their order.
void known_by_order() {
  constexpr int kSteps = 70;
  MPI_Comm comm;
  MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  Tensor a{"a", 30000}, b{"b", 20001};
  for (int step = 0; step < kSteps; ++step)
    for (Tensor* t : {&a, &b}) {
      std::vector<float> data(t->count);
      for (std::size_t i = 0; i < t->count; ++i) data[i] = t->gradient(i, rank);
      MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(t->count), MPI_FLOAT, MPI_SUM, comm);
      for (std::size_t i = 0; i < t->count; ++i) t->total[i] += static_cast<double>(data[i]);
    }
  expected[size > 1 ? "calls" : "passed_through.communicator"] += 2 * kSteps;
  if (size > 1) expected["layouts.periodic.calls>"] = 2 * kSteps - 20;
  for (const Tensor* t : {&a, &b}) t->check_mean(kSteps);
  MPI_Comm_free(&comm);
}

// Names that have met what Crimp made of other names: they are tensors as any other.
void any_name() {
  constexpr int kSteps = 30;
  Tensor a{"weight", 20000}, b{"weight\x01owner", 20000}, c{"#1.0", 20000};
  for (int step = 0; step < kSteps; ++step) reduce({&a, &b, &c}, true);
  for (const Tensor* t : {&a, &b, &c}) t->check_mean(kSteps);
}

void halves() {
  MPI_Datatype type, again;
  MPI_Op sum;
  CHECK(crimp_datatype(CRIMP_FLOAT32, &type, &sum) == MPI_SUCCESS && type == MPI_FLOAT && sum == MPI_SUM);
  CHECK(crimp_datatype(CRIMP_FLOAT64, &type, &sum) == MPI_SUCCESS && type == MPI_DOUBLE && sum == MPI_SUM);
  CHECK(crimp_datatype(CRIMP_FLOAT16, &again, &sum) == MPI_SUCCESS);
  CHECK(crimp_datatype(CRIMP_BFLOAT16, &type, &sum) == MPI_SUCCESS && type != again);
  std::vector<std::uint16_t> ones(20000, 0x3fc0), small(20, 0x3fc0);  // 1.5 in bfloat16
  for (std::size_t i = 1; i < ones.size(); i += 2) ones[i] |= 0x8000;
  for (auto* data : {&ones, &small})
    CHECK(crimp_allreduce(MPI_IN_PLACE, data->data(), data->size(), CRIMP_BFLOAT16, MPI_COMM_WORLD, nullptr, 0) ==
          MPI_SUCCESS);
  const std::uint16_t wanted[] = {0, 0x3fc0, 0x4040, 0x4090, 0x40c0};
  CHECK(ones[0] == wanted[size] && ones[19999] == (wanted[size] | 0x8000) && small[0] == wanted[size], "%x, %x",
        ones[0], small[0]);
  ++expected[size > 1 ? "calls" : "passed_through.communicator"];
  ++expected["passed_through.small"];
}

// A layer that no rank used has zeros for gradients, and whoever gave them does not look at the sum: what error
// feedback holds of it waits. Owners of sums have residuals of their own, which do not.
void idle() {
  const char* const algorithm = std::getenv("CRIMP_ALGORITHM");
  if (algorithm && !std::strcmp(algorithm, "two_shot")) return;
  constexpr std::size_t kEach = 20000;
  const crimp_segment tensors[] = {{"used.weight", kEach}, {"idle.weight", kEach}};
  std::vector<float> in(2 * kEach), out(2 * kEach);
  double delivered = 0, given = 0;
  for (int step = 0; step < 40; ++step) {
    const bool used = step % 2 == 0;
    for (std::size_t i = 0; i < 2 * kEach; ++i) {
      in[i] = i < kEach || used ? static_cast<float>(check::value(i, rank) + 0.5) : 0;
      if (i >= kEach)
        for (int r = 0; used && r < size; ++r) given += check::value(i, r) + 0.5;
    }
    CHECK(crimp_allreduce(in.data(), out.data(), out.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, tensors, 2) == MPI_SUCCESS);
    ++expected[size > 1 ? "calls" : "passed_through.communicator"];
    for (std::size_t i = kEach; i < 2 * kEach; ++i) {
      delivered += static_cast<double>(out[i]);
      if (!used && out[i] != 0) {
        CHECK(false, "step %d: element %zu of a tensor without a gradient is %g", step, i, static_cast<double>(out[i]));
        break;
      }
    }
  }
  CHECK(std::abs(delivered / given - 1) < 0.1, "%g of %g were delivered", delivered, given);
}

void errors() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::vector<float> x(20000), y(20000);
  const auto call = [&](std::uint64_t count, std::vector<crimp_segment> s, int dtype = CRIMP_FLOAT32) {
    return crimp_allreduce(x.data(), y.data(), count, static_cast<crimp_dtype>(dtype), MPI_COMM_WORLD, s.data(),
                           s.size());
  };
  refused("cover 15000 elements, the buffer has 20000", call(20000, {{"a", 10000}, {"b", 5000}}));
  refused("('b') reaches to element 20001", call(20000, {{"a", 10000}, {"b", 10001}}));
  refused("reaches to element", call(20000, {{"a", 10000}, {"b", ~0ull - 5}}));
  refused("cover 3 elements, the buffer has 4611686018427387904", call(1ull << 62, {{"a", 3}}));
  refused("segment 1 has no name", call(20000, {{"a", 10000}, {nullptr, 10000}}));
  refused("segment 0 has no name", call(20000, {{"", 20000}}));
  refused("segments 0 and 2 are both named 'a'", call(20000, {{"a", 5000}, {"b", 10000}, {"a", 5000}}));
  refused("segments 1 and 2 are both named 'b'", call(20000, {{"a", 5000}, {"b", 10000}, {"b", 5000}}));
  refused("crimp_dtype is 6", call(20000, {{"a", 20000}}, 6));
  const auto buffers = [&](const void* from, void* to, std::uint64_t count = 20000) {
    return crimp_allreduce(from, to, count, CRIMP_FLOAT64, MPI_COMM_WORLD, nullptr, 0);
  };
  refused("no sendbuf (NULL) for 20000 elements; legal is a buffer of so many, or MPI_IN_PLACE",
          buffers(nullptr, y.data()));
  refused("no recvbuf (NULL) for 20000 elements", buffers(x.data(), nullptr));
  refused("no recvbuf (NULL) for 1 elements", buffers(MPI_IN_PLACE, nullptr, 1));
  refused("MPI_IN_PLACE as recvbuf", buffers(x.data(), MPI_IN_PLACE));
  refused("for 9223372036854775808 elements; legal is up to 1152921504606846975,",
          buffers(x.data(), y.data(), 1ull << 63));
  CHECK(buffers(nullptr, nullptr, 0) == MPI_SUCCESS);
  ++expected["passed_through.small"];
  MPI_Datatype type;
  MPI_Op op;
  refused("crimp_dtype is 0", crimp_datatype(static_cast<crimp_dtype>(0), &type, &op));
  refused("crimp_datatype was given no type (NULL)", crimp_datatype(CRIMP_FLOAT32, nullptr, &op));
  refused("crimp_datatype was given no sum (NULL)", crimp_datatype(CRIMP_FLOAT32, &type, nullptr));
  refused("no segments (NULL) were given, and a segment_count of 3",
          crimp_allreduce(x.data(), y.data(), 20000, CRIMP_FLOAT32, MPI_COMM_WORLD, nullptr, 3));
  CHECK(call(0, {{"a", 0}}) == MPI_SUCCESS);
  ++expected["passed_through.small"];
  if (size > 1) {  // names differ between ranks: all hear of it
    refused("not in the same MPI_Allreduce", call(20000, {{rank ? "other" : "one", 20000}}));
    CHECK(call(20000, {{"one", 20000}}) == MPI_SUCCESS, "after errors");
    ++expected["calls"];
  }
}

}  // namespace

int main() {
  check::begin();
  CHECK(std::strlen(crimp_version()) >= 5);
  merged_differently();
  any_name();
  known_by_order();
  halves();
  idle();
  errors();
  return check::finish();
}
