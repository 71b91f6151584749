// crimp_reduce_scatter_block: shares of sums whose tensors have names.
//   named_shares mixed      several codecs in one call and tensors that are summed exactly (their values are whole
//                           numbers, so that sums have one value), in every placement of the buffers, over borders of
//                           shares. Wants CRIMP_CODEC=fp16, CRIMP_RULES=*bias=none;mid*=bf16
//   named_shares feedback   the mean of many calls, some by crimp_allreduce, comes to the exact sum. Wants a codec with
//                           residuals
//   named_shares whole      the same beside a tensor of powersgd, which has none and lets the call be summed exactly
//   named_shares momentum   what is summed exactly has the momentum of dgc: by arithmetic
//   named_shares starved    the same where a rank may lack memory once (CRIMP_FAULT=alloc@...): nobody waits for ever,
//   and
//                           all ranks get the same sums, with momentum or without
//   named_shares early      a communicator's first calls, of a codec whose results are not MPI's sums, under
//                           CRIMP_ALGORITHM=auto: nothing is written outside of a rank's share
//   named_shares counted    calls of several codecs, some of them left to MPI, are counted once. Wants
//                           CRIMP_ALGORITHM=auto, CRIMP_CODEC=fp16, CRIMP_RULES=mid*=bf16
//   named_shares differ     one rank names other tensors once, so that it counts other codecs in a call: that one fails
//                           on all ranks, the later ones do not. Wants CRIMP_RULES=B=bf16
//   named_shares errors     what is refused, and that the next call is good
#include "crimp/crimp.h"

#include <bit>

#include "check.hpp"

using check::expected, check::rank, check::refused, check::size;

namespace {

enum class Place { apart, in_place, own_part, begin };

struct Tensor {
  std::string name;
  std::size_t count;
  bool exact() const { return name.find("bias") != std::string::npos; }
  double gradient(std::size_t i, int of_rank) const {
    const double x = check::value(i, of_rank, static_cast<unsigned>(name[0]) + static_cast<unsigned>(count));
    return exact() ? std::round(100000 * x) : x;
  }
};

// A call's tensors, padded to a multiple of the ranks.
struct Call {
  std::vector<Tensor> tensors;
  std::size_t own = 0;

  explicit Call(std::vector<Tensor> of, const char* padding = "(padding)") : tensors(std::move(of)) {
    std::size_t total = 0;
    for (const Tensor& t : tensors) total += t.count;
    const auto n = static_cast<std::size_t>(size);
    own = (total + n - 1) / n;
    if (own * n > total) tensors.push_back({padding, own * n - total});
  }
  std::vector<crimp_segment> segments() const {
    std::vector<crimp_segment> all;
    for (const Tensor& t : tensors) all.push_back({t.name.c_str(), t.count});
    return all;
  }
  std::size_t total() const { return own * static_cast<std::size_t>(size); }
  // use(index in the call, tensor, index in it) for each element of a rank's share.
  template <class Use>
  void each_of_share(Use&& use) const {
    const std::size_t first = own * static_cast<std::size_t>(rank);
    std::size_t at = 0;
    for (const Tensor& t : tensors)
      for (std::size_t i = 0; i < t.count; ++i, ++at)
        if (at >= first && at < first + own) use(at - first, t, i);
  }
  template <class T>
  std::vector<T> values() const {
    std::vector<T> all;
    for (const Tensor& t : tensors)
      for (std::size_t i = 0; i < t.count; ++i) all.push_back(static_cast<T>(t.gradient(i, rank)));
    return all;
  }
};

template <class T>
int scatter(const Call& call, const void* send, T* receive) {
  const auto segments = call.segments();
  return crimp_reduce_scatter_block(send, receive, call.own, sizeof(T) == 8 ? CRIMP_FLOAT64 : CRIMP_FLOAT32,
                                    MPI_COMM_WORLD, segments.data(), segments.size());
}

template <class T>
void mixed(const Call& call, Place place, bool compressed) {
  constexpr std::size_t kGuard = 16;
  constexpr T kMark = -77;
  std::vector<T> in = call.values<T>();
  const std::vector<T> before = in;
  std::vector<T> out(call.total() + 2 * kGuard, kMark);
  T* receive = out.data() + kGuard;
  const void* send = in.data();
  if (place == Place::in_place) std::copy(in.begin(), in.end(), receive), send = MPI_IN_PLACE;
  if (place == Place::own_part) receive = in.data() + call.own * static_cast<std::size_t>(rank);
  if (place == Place::begin) receive = in.data();
  CHECK(scatter(call, send, receive) == MPI_SUCCESS);
  call.each_of_share([&](std::size_t at, const Tensor& t, std::size_t i) {
    double sum = 0, magnitude = 0;
    for (int r = 0; r < size; ++r)
      sum += static_cast<double>(static_cast<T>(t.gradient(i, r))), magnitude += std::abs(t.gradient(i, r));
    const double once = t.name.starts_with("mid") ? 0x1p-8 : 0x1p-11;
    const double allowed = t.exact() ? 0 : !compressed ? magnitude * size * 0x1p-23 : magnitude * once + size * 0x1p-22;
    CHECK(std::abs(static_cast<double>(receive[at]) - sum) <= allowed, "%s[%zu], placed %d: %.9g, not %.9g",
          t.name.c_str(), i, static_cast<int>(place), static_cast<double>(receive[at]), sum);
  });
  if (place == Place::apart) {
    CHECK(in == before, "sendbuf was changed");
    for (std::size_t i = call.own; i < call.total(); ++i) CHECK(receive[i] == kMark, "written behind recvbuf");
  }
  for (std::size_t i = 0; i < kGuard; ++i)
    CHECK((out[i] == kMark && out[out.size() - 1 - i] == kMark), "written outside of recvbuf");
}

void mixed() {
  const Call call({{"a.weight", 20000},
                   {"a.bias", 333},
                   {"mid.weight", 30001},
                   {"one.bias", 1},
                   {"b.weight", 17777},
                   {"b.bias", 51}}),
      // The first border lies within what is summed exactly.
      over({{"d.weight", 19900},
            {"d.bias", 200},
            {"e.weight", 20000 * std::max<std::size_t>(2, static_cast<std::size_t>(size)) - 20100}}),
      excluded({{"first.bias", 16000}, {"second.bias", 4001}}, "padding.bias"),
      small({{"c.weight", 100}, {"c.bias", 23}});
  for (const Place place : {Place::apart, Place::in_place, Place::own_part, Place::begin})
    for (int again = 0; again < 2; ++again) {
      const bool inside = place == Place::own_part || place == Place::begin;
      if (inside && size == 1) continue;  // MPI forbids it
      for (const Call& of : {call, over}) {
        mixed<float>(of, place, true), mixed<double>(of, place, true);
        expected[size > 1 ? "calls" : "passed_through.communicator"] += 2;
        if (size == 1) continue;
        for (const char* once : {"algorithms.reduce_scatter.calls", "time.calls"}) expected[once] += 2;
        for (const std::size_t bytes : {of.total() * sizeof(float), of.total() * sizeof(double)})
          ++expected["size_classes." + std::to_string(std::bit_floor(bytes)) + ".calls"];
      }
      if (size > 1) expected["codecs.bf16.calls"] += 2;
#if defined(MPICH)
      if (place == Place::in_place) continue;  // MPICH 4.0 ends in some of these
#endif
      if (inside) continue;
      mixed<float>(excluded, place, false), mixed<float>(small, place, false);
      expected[size > 1 ? "passed_through.rules" : "passed_through.communicator"] += 1;
      expected["passed_through.small"] += 1;
    }
  if (size > 1) expected["layouts.named.calls>"] = 16;
}

void feedback() {
  constexpr int kSteps = 60;
  const Call call({{"a.weight", 20000}, {"b.weight", 50001}, {"c.weight", 700}});
  std::vector<double> total(call.own);
  const std::vector<float> in = call.values<float>();
  const auto segments = call.segments();
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> out(call.own), all(call.total());
    if (step % 4 == 3) {
      CHECK(crimp_allreduce(in.data(), all.data(), all.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, segments.data(),
                            segments.size()) == MPI_SUCCESS);
      std::copy_n(all.begin() + static_cast<std::ptrdiff_t>(call.own) * rank, call.own, out.begin());
    } else {
      CHECK(scatter(call, in.data(), out.data()) == MPI_SUCCESS);
    }
    for (std::size_t i = 0; i < call.own; ++i) total[i] += static_cast<double>(out[i]);
  }
  expected["calls"] = kSteps;
  expected["layouts.named.calls>"] = kSteps;
  call.each_of_share([&](std::size_t at, const Tensor& t, std::size_t i) {
    double exact = 0;
    for (int r = 0; r < size; ++r) exact += static_cast<double>(static_cast<float>(t.gradient(i, r)));
    CHECK(std::abs(total[at] / kSteps - exact) <= 1.5 * size / kSteps, "%s[%zu]: mean %.4f of %d steps, exact %.4f",
          t.name.c_str(), i, total[at] / kSteps, kSteps, exact);
  });
}

// Gradients of 1 with momentum 0.9: after t calls every rank sends 10 (1 - 0.9^t) of what is summed exactly. So does a
// small call.
void momentum() {
  const Call call({{"a.weight", 20000}, {"a.bias", 4001}}), excluded({{"b.bias", 20003}}, "padding.bias"),
      small({{"c.bias", 301}});
  for (int step = 1; step <= 12; ++step)
    for (const Call* c : {&call, &excluded, &small}) {
      const std::vector<float> in(c->total(), 1.0f);
      std::vector<float> out(c->own);
      CHECK(scatter(*c, in.data(), out.data()) == MPI_SUCCESS);
      const double sum = size * 10 * (1 - std::pow(0.9, step));
      c->each_of_share([&](std::size_t at, const Tensor& t, std::size_t i) {
        if (!t.exact()) return;
        CHECK(std::abs(static_cast<double>(out[at]) - sum) <= 1e-5 * sum, "%s[%zu] is %.9g, not %.9g", t.name.c_str(),
              i, static_cast<double>(out[at]), sum);
      });
    }
  expected["calls"] = 12;
  expected["passed_through.rules"] = 12;
  expected["passed_through.small"] = 12;
}

void whole() {
  const Call call({{"a.weight", 20000}, {"a.bias", 4001}, {"low.weight", 10000}});
  for (int step = 1; step <= 12; ++step) {
    const std::vector<float> in(call.total(), 1.0f);
    std::vector<float> out(call.own);
    CHECK(scatter(call, in.data(), out.data()) == MPI_SUCCESS);
    call.each_of_share([&](std::size_t at, const Tensor& t, std::size_t i) {
      if (t.name[0] == '(') return;
      const double sum = t.name[0] == 'l' ? size : size * 10 * (1 - std::pow(0.9, step));
      CHECK(std::abs(static_cast<double>(out[at]) - sum) <= 1e-5 * sum, "%s[%zu] is %.9g, not %.9g", t.name.c_str(), i,
            static_cast<double>(out[at]), sum);
    });
  }
  expected["passed_through.shares"] = 12;
}

void starved() {
  const Call excluded({{"b.bias", 20003}}, "padding.bias"), small({{"c.bias", 301}});
  for (int step = 1; step <= 4; ++step)
    for (const Call* c : {&excluded, &small}) {
      const std::vector<float> in(c->total(), 1.0f);
      std::vector<float> out(c->own);
      CHECK(scatter(*c, in.data(), out.data()) == MPI_SUCCESS);
      CHECK(check::identical(out.data(), out.size() * sizeof(float), MPI_COMM_WORLD));
      const double least = size, most = size * 10 * (1 - std::pow(0.9, step));
      CHECK(out[0] >= least * (1 - 1e-5) && out[0] <= most * (1 + 1e-5), "%g, not %g to %g",
            static_cast<double>(out[0]), least, most);
    }
}

void early() {
  const Call call({{"a.weight", 20000}, {"b.weight", 50001}});
  constexpr float kMark = -77;
  const std::vector<float> in = call.values<float>();
  for (int step = 0; step < 6; ++step) {
    std::vector<float> out(call.own + 2 * call.total(), kMark);
    CHECK(scatter(call, in.data(), out.data() + call.total()) == MPI_SUCCESS);
    for (std::size_t i = 0; i < call.total(); ++i)
      CHECK((out[i] == kMark && out[out.size() - 1 - i] == kMark), "call %d wrote %zu behind or before its share", step,
            i);
    CHECK(out[call.total()] != kMark && out[call.total() + call.own - 1] != kMark);
  }
  std::vector<float> sum(rank == 0 ? call.total() : 0);
  for (int step = 0; step < 3; ++step)
    CHECK(MPI_Reduce(in.data(), rank == 0 ? sum.data() : nullptr, static_cast<int>(call.total()), MPI_FLOAT, MPI_SUM, 0,
                     MPI_COMM_WORLD) == MPI_SUCCESS);
  expected["calls>"] = 6;
}

// MPI carries the first ones, whose time is shared out among two codecs.
void counted() {
  const Call call({{"a.weight", 20000}, {"mid.weight", 50001}});
  const std::vector<float> in = call.values<float>();
  for (int step = 0; step < 8; ++step) {
    std::vector<float> out(call.own);
    CHECK(scatter(call, in.data(), out.data()) == MPI_SUCCESS);
  }
  expected["passed_through.early>"] = 1;
  expected["time.calls"] = 8;
}

void differ() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  constexpr std::size_t kCount = 20000;
  const crimp_segment two[] = {{"A", kCount}, {"B", kCount}}, one[] = {{"A", 2 * kCount}};
  std::vector<float> x(2 * kCount), y(2 * kCount);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(check::value(i, rank, 1));
  for (int call = 0; call < 6; ++call) {
    const bool other = call == 2 && rank == size - 1;
    const int rc =
        crimp_allreduce(x.data(), y.data(), x.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, other ? one : two, other ? 1 : 2);
    if (call == 2) {
      refused("not in the same MPI_Allreduce", rc);
      continue;
    }
    CHECK(rc == MPI_SUCCESS, "call %d returned %d", call, rc);
    double sum = 0;
    for (int r = 0; r < size; ++r) sum += check::value(5, r, 1);
    CHECK(std::abs(static_cast<double>(y[5]) - sum) <= 1e-2 * size);
  }
  expected["calls"] = 5;
}

void errors() {
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  constexpr std::size_t kOwn = 20000;
  const std::size_t total = kOwn * static_cast<std::size_t>(size);
  std::vector<float> x(total), y(total);
  const auto call = [&](const void* from, void* to, std::uint64_t own, std::vector<crimp_segment> s,
                        crimp_dtype dtype = CRIMP_FLOAT32) {
    return crimp_reduce_scatter_block(from, to, own, dtype, MPI_COMM_WORLD, s.empty() ? nullptr : s.data(), s.size());
  };
  refused(("cover 20000 elements, the buffer has " + std::to_string(total)).c_str(),
          call(x.data(), y.data(), kOwn, {{"a", kOwn}}));
  refused("crimp_reduce_scatter_block was given no sendbuf (NULL)", call(nullptr, y.data(), kOwn, {}));
  refused("crimp_reduce_scatter_block was given no recvbuf (NULL)", call(x.data(), nullptr, kOwn, {}));
  refused("MPI_IN_PLACE as recvbuf", call(x.data(), MPI_IN_PLACE, kOwn, {}));
  refused("legal is up to 2305843009213693951", call(x.data(), y.data(), 1ull << 62, {}));
  refused("legal is up to 2305843009213693951", call(x.data(), y.data(), ~0ull, {}));
  refused("crimp_dtype is 6", call(x.data(), y.data(), kOwn, {}, static_cast<crimp_dtype>(6)));
  refused("not in the same MPI_Reduce_scatter", call(x.data(), y.data(), kOwn, {{rank ? "other" : "one", total}}));
  CHECK(crimp_reduce_scatter_block(x.data(), y.data(), 0, CRIMP_FLOAT32, MPI_COMM_WORLD, nullptr, 0) == MPI_SUCCESS);
  ++expected["passed_through.small"];
  x.assign(total, 1.0f);
  CHECK(call(x.data(), y.data(), kOwn, {{"one", total}}) == MPI_SUCCESS);
  CHECK((y[0] == static_cast<float>(size) && y[kOwn - 1] == y[0]), "%g after errors", static_cast<double>(y[0]));
  ++expected["calls"];
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  check::begin();
  if (what == "mixed") mixed();
  else if (what == "feedback") feedback();
  else if (what == "momentum") momentum();
  else if (what == "whole") whole();
  else if (what == "starved") starved();
  else if (what == "early") early();
  else if (what == "counted") counted();
  else if (what == "differ") differ();
  else if (what == "errors") errors();
  else CHECK(false, "what?");
  return check::finish();
}
