#include "memory/program_memory.hpp"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <memory>
#include <thread>

#include "support/sanitized.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("program_memory") {
  namespace {

  constexpr std::size_t kBytes = 1 << 20;
  int in_image;

  struct Mapping {
    void* at = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ~Mapping() { ::munmap(at, kBytes); }
  };

  bool found_on_other_stack, found_below;
  const void* on_first_stack;
  ucontext_t back, there;
  void on_other_stack() {
    int here = 0;
    found_on_other_stack = in_program_memory(&here, &here);
    found_below = in_program_memory(on_first_stack, on_first_stack);
    ::swapcontext(&there, &back);
  }

  }  // namespace

  TEST_CASE("image, heap and this thread's stack are known; mappings, other stacks and nothing are not") {
    int on_stack = 0;
    const Mapping mapping;
    REQUIRE(mapping.at != MAP_FAILED);
    CHECK(in_program_memory(&on_stack, &on_stack));
    CHECK(in_program_memory(&in_image, &on_stack));
    CHECK(!in_program_memory(mapping.at, &on_stack));
    CHECK(!in_program_memory(&on_stack, mapping.at));
    CHECK(!in_program_memory(nullptr, nullptr));
    CHECK(!in_program_memory(&on_stack, nullptr));
    CHECK(!in_program_memory(reinterpret_cast<void*>(0x7000'0000'0000), &on_stack));  // as a device's addresses are
    if (!kSanitized && !kThreadSanitized) {                                           // whose allocators map memory
      const auto in_heap = std::make_unique<float>();
      CHECK(in_program_memory(in_heap.get(), in_heap.get()));
    }
  }
  TEST_CASE("of another thread's stack nothing is known") {
    int on_first = 0;
    bool first = true, own = false;
    std::thread([&] {
      int here = 0;
      first = in_program_memory(&on_first, &on_first);
      own = in_program_memory(&here, &here);
    }).join();
    CHECK(!first);
    CHECK(own);
  }
  TEST_CASE("nor on a stack that the program has made, from which the thread's own may lie anywhere" *
            doctest::skip(kSanitized || kThreadSanitized)) {
    int on_first = 0;
    on_first_stack = &on_first;
    const Mapping stack;
    REQUIRE(stack.at != MAP_FAILED);
    ::getcontext(&there);
    there.uc_stack = {stack.at, 0, kBytes};
    there.uc_link = nullptr;
    ::makecontext(&there, on_other_stack, 0);
    ::swapcontext(&back, &there);
    CHECK(!found_on_other_stack);
    CHECK(!found_below);
  }
}
