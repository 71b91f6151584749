// Ranks that come to different calls: all of them have an error, and then begin anew, whatever each has learnt and
// counted until then. CRIMP_FAULT=slow_link on all ranks, so that no clock decides.
//
//   differing              calls of one codec or by one algorithm
//   differing nodes        ranks of each node, by CRIMP_ALGORITHM=hierarchical: all leaders know of it
//   differing types        as many elements, of another type
//   differing measuring    one rank measures what the others know; CRIMP_NODE_SIZE=1: what a node adds has no headers
#include "check.hpp"
#include "crimp/crimp.h"

using check::rank, check::size;

namespace {

constexpr std::size_t kCount = 400000;  // too long for one exchange

struct Call {
  const char* name;
  std::size_t count = kCount;
  const char* beside = nullptr;  // half of the elements are this one's
};

int reduce(const Call& call, std::vector<float>& x) {
  x.assign(call.count, static_cast<float>(rank + 1));
  const std::size_t half = call.beside ? call.count / 2 : 0;
  const crimp_segment tensors[] = {{call.name, call.count - half}, {call.beside, half}};
  return crimp_allreduce(MPI_IN_PLACE, x.data(), x.size(), CRIMP_FLOAT32, MPI_COMM_WORLD, tensors, half ? 2 : 1);
}

void alike(const Call& call, int times = 1) {
  for (std::vector<float> x; times > 0; --times) {
    CHECK(reduce(call, x) == MPI_SUCCESS, "%s, %d more", call.name, times - 1);
    const auto sum = static_cast<float>(size * (size + 1) / 2);  // which all codecs here hold exactly
    CHECK(x == std::vector<float>(call.count, sum), "%s: %g, not %g", call.name, static_cast<double>(x[0]),
          static_cast<double>(sum));
  }
}

void differ(const Call& last, const Call& others) {
  std::vector<float> x;
  check::refused("rank ", reduce(rank == size - 1 ? last : others, x));
}

// Each codec is measured once more at its seventeenth call, by all ranks together.
void codecs() {
  const Call a{"a"}, b{"b"};
  alike(a, 4);  // three come before anything is measured
  alike(b);
  differ(b, a);
  alike(a, 20);
  alike(b, 20);
}

// Who measures a codec of its own exchanges what the others take for headers, and is told as they are.
void measuring() {
  const Call one{"a"}, two{"a", kCount, "c"};
  alike(one, 4);
  differ(two, one);
  alike(one);
  alike(two, 4);
}

// Calls of a size that is new take the level of those that there are: with CRIMP_DELAY_TARGET=0.001us, which every
// call exceeds, the second one from the sixth call on.
void levels() {
  const Call small{"small"}, large{"large", 4 * kCount};
  alike(small);
  differ(large, small);
  alike(small, 6);
  alike(large);
}

// A call of two codecs counts as two. By one algorithm, without which these calls could not meet.
void parts() {
  const Call one{"a"}, two{"a", kCount, "b"};
  CHECK(crimp_set_algorithm(MPI_COMM_WORLD, "allgather") == MPI_SUCCESS);
  alike(two);
  differ(two, one);
  alike(one);
  alike(two);
}

void nodes() {
  const Call longer{"a", kCount + 1000}, call{"a"};
  alike(call);
  std::vector<float> x;
  check::refused("rank", reduce(rank % 2 == 0 ? longer : call, x));
  alike(call, 3);
}

void types() {
  const Call call{"a"};
  alike(call);
  std::vector<float> x;
  std::vector<double> y(kCount, 1);
  const crimp_segment tensor{"a", kCount};
  check::refused("rank", rank == size - 1 ? crimp_allreduce(MPI_IN_PLACE, y.data(), y.size(), CRIMP_FLOAT64,
                                                            MPI_COMM_WORLD, &tensor, 1)
                                          : reduce(call, x));
  alike(call, 3);
}

}  // namespace

int main(int argc, char** argv) {
  setenv("CRIMP_RULES", "a=fp16; b=natural; c=bf16:memory=residual", 1);
  setenv("CRIMP_LADDER", "bf16; fp16", 1);
  check::begin();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "measuring") measuring();
  else if (what == "nodes") nodes();
  else if (what == "types") types();
  else {
    codecs();
    levels();
    parts();
  }
  return check::finish();
}
