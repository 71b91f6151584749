// Calls from a thread with a stack of 256 KB, as runtimes with many threads have them: with every codec, by
// crimp_allreduce and by MPI_Allreduce. The stack is painted before, so that its deepest use is known, and what is
// below it cannot be touched.
//   stacks        half of the stack is enough; or, where MPI's own sums take about that (MPICH 4.0's have 128 KB in one
//                 frame), theirs and a little
//   stacks deep   control: the thread itself uses more than that
#include <pthread.h>
#include <sys/mman.h>

#include "crimp/crimp.h"

#include "check.hpp"

using check::rank, check::size;

namespace {

constexpr std::size_t kStack = 256 << 10, kBelow = 4 << 20, kHalf = kStack / 2, kAboveMpi = 16 << 10;
constexpr unsigned char kPaint = 0xa5;

const char* const kCodecs[] = {"fp16",
                               "bf16",
                               "3lc",
                               "3lc:entropy=1",
                               "3lc:zero_run=0",
                               "qsgd",
                               "qsgd:s=7",
                               "terngrad",
                               "natural",
                               "8bit",
                               "1bit",
                               "signsgd",
                               "signum",
                               "efsignsgd",
                               "inceptionn",
                               "maxmin",
                               "fp8",
                               "sketchml",
                               "sketchml:quantiles=256",
                               "adaq",
                               "topk",
                               "topk:value=f16,ratio=0.3",
                               "topk:reuse=4",
                               "randomk",
                               "randomk:ratio=0.9",
                               "threshold",
                               "dgc",
                               "dgc:sample=0.01",
                               "sidco",
                               "sidco:dist=gamma",
                               "thc",
                               "thc:bits=2,g=3",
                               "powersgd",
                               "powersgd:r=8"};
constexpr std::size_t kCount = 150000;
int compressed = 0;

__attribute__((noinline)) void use(std::size_t bytes) {
  volatile auto* const much = static_cast<volatile char*>(__builtin_alloca(bytes));
  for (std::size_t i = 0; i < bytes; ++i) much[i] = 0;
}

void* plain(void*) {
  std::vector<float> in(kCount, 1.0f), out(kCount);
  CHECK(check::native_allreduce(in.data(), out.data(), static_cast<int>(kCount), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) ==
        MPI_SUCCESS);
  return nullptr;
}

// more: bytes that the thread uses itself afterwards.
void* calls(void* more) {
  std::vector<float> in(kCount), out(kCount);
  for (std::size_t i = 0; i < kCount; ++i)
    in[i] = static_cast<float>(check::value(i, rank)) * (i % 100 == 7 ? 1.0f : 0.01f);
  for (std::size_t c = 0; c < std::size(kCodecs); ++c) {
    const std::string name = "codec" + std::to_string(c) + ".";
    const crimp_segment segments[] = {{name.c_str(), kCount}};
    for (int call = 0; call < 3; ++call) {
      CHECK(crimp_allreduce(in.data(), out.data(), kCount, CRIMP_FLOAT32, MPI_COMM_WORLD, segments, 1) == MPI_SUCCESS,
            "%s", kCodecs[c]);
      CHECK(check::identical(out.data(), kCount * sizeof(float), MPI_COMM_WORLD), "%s", kCodecs[c]);
      ++compressed;
    }
  }
  CHECK(MPI_Allreduce(in.data(), out.data(), kCount, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS);
  ++compressed;
  use(*static_cast<std::size_t*>(more));
  return nullptr;
}

// Bytes of a stack that this takes.
std::size_t depth(void* (*thread_of)(void*), void* argument) {
  // The kernel would let a stack grow where nothing else lies; here something lies.
  auto* const memory =
      static_cast<unsigned char*>(mmap(nullptr, kBelow + kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  unsigned char* const stack = memory + kBelow;
  mprotect(stack, kStack, PROT_READ | PROT_WRITE);
  std::memset(stack, kPaint, kStack);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstack(&attributes, stack, kStack);
  pthread_t thread;
  CHECK(pthread_create(&thread, &attributes, thread_of, argument) == 0);
  pthread_join(thread, nullptr);
  std::size_t untouched = 0;
  while (untouched < kStack && stack[untouched] == kPaint) ++untouched;
  munmap(memory, kBelow + kStack);
  return kStack - untouched;
}

}  // namespace

int main(int argc, char**) {
  std::string rules;
  for (std::size_t c = 0; c < std::size(kCodecs); ++c) rules += "codec" + std::to_string(c) + ".=" + kCodecs[c] + ";";
  rules.pop_back();
  setenv("CRIMP_RULES", rules.c_str(), 1);
  check::begin(MPI_THREAD_SERIALIZED);
  const std::size_t of_mpi = depth(plain, nullptr), allowed = std::max(kHalf, of_mpi + kAboveMpi);
  std::size_t more = argc > 1 ? allowed : 0;
  const std::size_t used = depth(calls, &more);
  std::printf("rank %d used %zu KB of the stack, MPI alone %zu KB\n", rank, used >> 10, of_mpi >> 10);
  CHECK(used <= allowed, "%zu bytes of the stack were used, and MPI alone takes %zu", used, of_mpi);
  const bool chosen =
      !std::strcmp(std::getenv("CRIMP_ALGORITHM"), "auto");  // whatever is slower than plain MPI is not compressed
  check::expected[chosen ? "calls>" : "calls"] = chosen ? 1 : compressed;
  return check::finish();
}
