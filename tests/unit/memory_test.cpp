#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "collective/residual.hpp"
#include "core/error.hpp"
#include "memory/memory_resource.hpp"
#include "memory/repeated_memory.hpp"

using namespace crimp;

TEST_SUITE("memory") {
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

  constexpr auto kNamed = Layout::Source::named;
  float* find(ResidualStore& store, const std::string& name, std::uint64_t count) {
    return store.find({kNamed, false, name}, {count, FeedbackKind::residual, count}).values;
  }

  }  // namespace

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

  TEST_CASE("repeated memory can be written everywhere and takes a MiB") {
    const std::size_t bytes = (std::size_t{5} << 20) + 3;
    Memory memory(bytes, repeated_memory());
    CHECK(memory.data()[bytes - 1] == std::byte{0});
    std::memset(memory.data(), 0xff, bytes);
    memory.data()[5] = std::byte{7};
    CHECK(memory.data()[(std::size_t{1} << 20) + 5] == std::byte{7});
    CHECK(memory.data()[(std::size_t{5} << 20) + 2] == std::byte{0xff});
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
    float* a = find(store, "a", 1000);
    CHECK(zeroed(reinterpret_cast<std::byte*>(a), 4000));
    a[999] = 5.0f;
    float* b = find(store, "b", 10);
    b[0] = 1.0f;
    store.begin_call();
    CHECK(find(store, "a", 1000) == a);
    CHECK(a[999] == 5.0f);
    CHECK(store.tensors() == 2);
    CHECK(store.bytes() == 4040);
    store.begin_call();
    a = find(store, "a", 1001);
    CHECK(zeroed(reinterpret_cast<std::byte*>(a), 4004));
    CHECK(find(store, "b", 10)[0] == 1.0f);
    store.forget(kNamed);
    CHECK(store.bytes() == 0);
    CHECK(find(store, "b", 10)[0] == 0.0f);
  }

  TEST_CASE("a residual that could not be allocated leaves no entry behind") {
    ResidualStore store;
    CHECK(out_of_memory([&] { find(store, "huge", std::uint64_t{1} << 58); }) != "");
    CHECK(store.tensors() == 0);
  }

  TEST_CASE(
      "what is kept of values, of owners' sums and of tensors known by their order never meets, whatever tensors are called") {
    ResidualStore store;
    const ResidualShape shape{100, FeedbackKind::residual, 100};
    const std::string names[] = {"a", "a\x01owner", "#1.0", "a\x01momentum", ""};
    std::vector<float*> all;
    for (const auto source : {Layout::Source::named, Layout::Source::negotiated, Layout::Source::periodic})
      for (const bool owner : {false, true})
        for (const auto& name : names) all.push_back(store.find({source, owner, name}, shape).values);
    for (std::size_t i = 0; i < all.size(); ++i) all[i][0] = static_cast<float>(i + 1);
    for (std::size_t i = 0; i < all.size(); ++i) CHECK(all[i][0] == static_cast<float>(i + 1));
    store.forget(Layout::Source::periodic, "#");  // not the program's tensor of that name
    CHECK(store.tensors() == all.size() - 2);
    store.begin_call();
    CHECK(store.find({kNamed, false, "#1.0"}, shape).values[0] == 3.0f);
    CHECK(store.find({Layout::Source::periodic, false, "#1.0"}, shape).values[0] == 0.0f);
  }

  TEST_CASE("a tensor that is in one call twice is refused, and what the call has stays where it is") {
    ResidualStore store;
    float* const a = find(store, "a", 1000);
    for (const std::uint64_t count : {1000, 2000}) {
      try {
        find(store, "a", count);
        FAIL("found twice");
      } catch (const Error& e) {
        CHECK(e.code() == ErrorCode::layout_invalid);
        CHECK(std::string(e.what()).find("'a'") != std::string::npos);
      }
      a[999] = 1.0f;  // would be a use after free
    }
    store.begin_call();
    CHECK(find(store, "a", 1000)[999] == 1.0f);
  }

  TEST_CASE("what a failed call has made goes, what was there before stays as it is") {
    ResidualStore store;
    float* const old = find(store, "old", 1000);
    find(store, "reshaped", 10)[0] = 1.0f;
    old[999] = 5.0f;
    store.keep();
    store.drop_new();  // nothing is new
    CHECK(store.tensors() == 2);

    store.begin_call();
    CHECK(find(store, "old", 1000) == old);
    find(store, "new", 2000)[0] = 2.0f;
    CHECK(zeroed(reinterpret_cast<std::byte*>(find(store, "reshaped", 20)), 80));  // begins anew, so it is new
    store.drop_new();
    CHECK(store.tensors() == 1);
    CHECK(store.bytes() == 4000);
    store.begin_call();
    CHECK(find(store, "old", 1000) == old);
    CHECK(old[999] == 5.0f);
    CHECK(find(store, "new", 2000)[0] == 0.0f);
    CHECK(find(store, "reshaped", 10)[0] == 0.0f);

    // A call that failed otherwise, and then one that drops: what no call has succeeded with.
    store.begin_call();
    find(store, "new", 2000);
    store.drop_new();
    CHECK(store.tensors() == 1);
    // Once a call has succeeded with it, it is there.
    store.begin_call();
    find(store, "new", 2000)[0] = 3.0f;
    store.keep();
    store.begin_call();
    find(store, "another", 5);
    store.drop_new();
    store.begin_call();
    CHECK(store.tensors() == 2);
    CHECK(find(store, "new", 2000)[0] == 3.0f);
  }

  TEST_CASE(
      "planes stay where kind and count stay, what a codec keeps behind them does not; another kind starts from zeros") {
    ResidualStore store;
    const auto at = [&](FeedbackKind kind, std::uint64_t elements, int codec) {
      static const std::shared_ptr<const Codec> codecs[3] = {make_codec("topk"), make_codec("3lc"), make_codec("fp16")};
      store.begin_call();
      return store.find({kNamed, false, "a"}, {100, kind, elements, codecs[codec].get()}).values;
    };
    float* x = at(FeedbackKind::residual, 104, 0);
    x[99] = 1.0f, x[100] = 2.0f;
    x = at(FeedbackKind::residual, 104, 0);
    CHECK(x[99] == 1.0f);
    CHECK(x[100] == 2.0f);
    x = at(FeedbackKind::residual, 104, 1);
    CHECK(x[99] == 1.0f);
    CHECK(x[100] == 0.0f);
    x = at(FeedbackKind::residual, 100, 2);
    CHECK(x[99] == 1.0f);
    x = at(FeedbackKind::residual, 110, 1);
    CHECK(x[99] == 1.0f);
    CHECK(x[100] == 0.0f);
    x = at(FeedbackKind::average, 100, 2);
    CHECK(x[99] == 0.0f);
    x = at(FeedbackKind::momentum, 200, 2);
    x[150] = 3.0f;
    CHECK(at(FeedbackKind::momentum, 200, 0)[150] == 3.0f);
    CHECK(at(FeedbackKind::residual, 100, 2)[99] == 0.0f);
  }
}
