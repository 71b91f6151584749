#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "crimp/memory.hpp"
#include "crimp/error.hpp"
#include "crimp/residual.hpp"

using namespace crimp;

namespace {

template <class Fn>
std::string out_of_memory(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::out_of_memory);
    return e.what();
  }
  return "";
}

bool zeroed(const std::byte* p, std::size_t n) {
  return std::all_of(p, p + n, [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

TEST_SUITE("memory") {
  TEST_CASE("memory is zeroed and moves") {
    Memory a(3 << 20);
    CHECK(zeroed(a.data(), a.bytes()));
    std::byte* const place = a.data();
    Memory b(std::move(a));
    CHECK(b.data() == place);
    CHECK(a.data() == nullptr);
    CHECK(a.bytes() == 0);
    Memory c(100);
    c = std::move(b);
    CHECK(c.data() == place);
    CHECK(c.bytes() == 3 << 20);
    CHECK(Memory(0).data() == nullptr);
  }

  TEST_CASE("what cannot be allocated is said in bytes") {
    const std::size_t impossible = std::size_t{1} << 60;
    CHECK(out_of_memory([&] { Memory memory(impossible); }).find(std::to_string(impossible)) != std::string::npos);
  }

  TEST_CASE("an arena hands out aligned parts that do not overlap and no more than was reserved") {
    Arena arena;
    arena.reserve(1000);
    const std::size_t reserved = arena.bytes();
    CHECK(reserved >= 1000);
    std::byte* last_end = nullptr;
    std::size_t taken = 0;
    for (const std::size_t n : {1, 64, 65, 0, 127}) {
      std::byte* p = arena.take(n);
      CHECK(reinterpret_cast<std::uintptr_t>(p) % 64 == 0);
      CHECK(p >= last_end);
      std::memset(p, 0xff, n);
      last_end = p + n;
      taken += Arena::padded(n);
    }
    CHECK(out_of_memory([&] { arena.take(reserved - taken + 1); }).find("arena") != std::string::npos);
    arena.reset();
    CHECK(arena.take(1) != nullptr);
  }

  TEST_CASE("an arena keeps what it has when more is refused") {
    Arena arena;
    arena.reserve(4096);
    const std::size_t before = arena.bytes();
    CHECK(out_of_memory([&] { arena.reserve(std::size_t{1} << 60); }) != "");
    CHECK(arena.bytes() == before);
    std::memset(arena.take(4096), 1, 4096);
    arena.reserve(100);
    CHECK(arena.bytes() == before);
  }

  TEST_CASE("a residual stays with its key and starts from zeros with another count") {
    ResidualStore store;
    float* a = store.find("a", 1000);
    CHECK(zeroed(reinterpret_cast<std::byte*>(a), 4000));
    a[999] = 5.0f;
    float* b = store.find("b", 10);
    b[0] = 1.0f;
    CHECK(store.find("a", 1000) == a);
    CHECK(a[999] == 5.0f);
    CHECK(store.tensors() == 2);
    CHECK(store.bytes() == 4040);
    a = store.find("a", 1001);
    CHECK(zeroed(reinterpret_cast<std::byte*>(a), 4004));
    CHECK(store.find("b", 10)[0] == 1.0f);
    store.forget("");
    CHECK(store.bytes() == 0);
    CHECK(store.find("b", 10)[0] == 0.0f);
  }

  TEST_CASE("a residual that could not be allocated leaves no entry behind") {
    ResidualStore store;
    CHECK(out_of_memory([&] { store.find("huge", std::uint64_t{1} << 58); }) != "");
    CHECK(store.tensors() == 0);
  }
}
