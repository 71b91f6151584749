// What a store keeps of tensors from call to call: what it has loaded it gives back, in place of all it had; in bytes
// it is as long as they are.
#include "collective/residual.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "memory/workers.hpp"
#include "support/saved_tensors.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("residual") {
  TEST_CASE("a store gives back what it has loaded, when it is asked for, in bytes or floats") {
    const auto codec = make_codec("topk:ratio=0.01");
    std::vector<float> values(1000);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
    for (const bool from_bytes : {false, true})
      for (const bool to_bytes : {false, true}) {
        CAPTURE(from_bytes);
        CAPTURE(to_bytes);
        std::vector<SavedTensor> saved;
        saved.push_back(saved_tensor("a", values));
        saved.back().codec = "";
        if (from_bytes) saved[0] = in_bytes(std::move(saved[0]));
        saved.push_back(saved_tensor("never", {1, 2}));
        saved.push_back(saved_tensor("other count", {1, 2}));
        ResidualStore store;
        if (to_bytes) store.keep_bytes(0);
        store.load(std::move(saved));
        CHECK(store.loaded().waiting == 3);
        CHECK(store.saved().size() == 3);  // what waits is saved again
        const ResidualShape shape = ResidualShape::of(*codec, 1000);
        for (const bool kept : {false, true}) {  // a call that passes for want of memory takes nothing away
          store.begin_call();
          const Residual& r = store.find({Layout::Source::named, false, "a"}, shape);
          for (std::size_t i = 0; i < 1000; ++i)
            CHECK(std::abs(r.values[i] - values[i]) <= (from_bytes + to_bytes) * 1.0f / 127);
          CHECK(r.turns == 3);
          static_cast<void>(store.find({Layout::Source::named, false, "other count"}, ResidualShape::of(*codec, 500)));
          static_cast<void>(store.find({Layout::Source::negotiated, false, "never"}, ResidualShape::of(*codec, 2)));
          if (kept) store.keep();
          else store.drop_new();
        }
        CHECK(store.loaded().restored == 2);
        CHECK(store.loaded().unfit == 1);
        CHECK(store.loaded().waiting == 1);  // the same name of another source is another tensor
        CHECK(store.saved().size() == 4);
      }
  }

  TEST_CASE("what a call has asked for and not kept yet is saved once") {
    const auto codec = make_codec("topk:ratio=0.01");
    std::vector<SavedTensor> saved;
    saved.push_back(saved_tensor("a", std::vector<float>(1000, 1.5f)));
    saved.back().codec = "";
    ResidualStore store;
    store.load(std::move(saved));
    store.begin_call();
    static_cast<void>(store.find({Layout::Source::named, false, "a"}, ResidualShape::of(*codec, 1000)));
    CHECK(store.saved().size() == 1);
    store.drop_new();
    CHECK(store.saved().size() == 1);
    CHECK(store.loaded().waiting == 1);
  }

  TEST_CASE("a store in bytes keeps a byte an element, and what a call that passes did is undone") {
    const auto codec = make_codec("topk:ratio=0.01");
    constexpr std::uint64_t kCount = 1 << 16;
    const ResidualShape shape = ResidualShape::of(*codec, kCount);
    ResidualStore store, floats;
    store.keep_bytes(0);
    const auto call = [&](ResidualStore& in, float add, bool settles) {
      in.begin_call();
      Residual& r = in.find({Layout::Source::named, false, "a"}, shape);
      const float before = r.values[5];
      for (std::uint64_t i = 0; i < kCount; ++i) r.values[i] += add * static_cast<float>(i % 7);
      if (settles) in.settle();
      in.keep();
      return before;
    };
    call(store, 1, true);
    call(floats, 1, true);
    CHECK(floats.bytes() == shape.elements * 4);
    CHECK(store.bytes() == kCount + kCount / 64 + (shape.elements - kCount) * 4);
    const float five = call(store, 100, false);
    CHECK(std::abs(five - 5) <= 6.0f / 127);
    CHECK(call(store, 0, false) == five);
    CHECK(call(floats, 0, true) == 5);
  }

  TEST_CASE("what is loaded stands in place of all that is kept of tensors with names") {
    const ResidualShape shape{300, FeedbackKind::residual, 300};
    const ResidualKey a{Layout::Source::named, false, "a"}, owned{Layout::Source::named, true, "a"},
        other{Layout::Source::negotiated, false, "other"}, unnamed{Layout::Source::periodic, false, "unnamed"};
    for (const bool to_bytes : {false, true}) {
      CAPTURE(to_bytes);
      ResidualStore store;
      if (to_bytes) store.keep_bytes(0);
      store.begin_call();
      for (const ResidualKey& key : {a, owned, other, unnamed}) std::fill_n(store.find(key, shape).values, 300, 5.0f);
      store.settle();
      store.keep();
      std::vector<SavedTensor> saved;
      saved.push_back(saved_tensor("a", std::vector<float>(300, 1.5f)));
      store.load(std::move(saved));
      CHECK(store.saved().size() == 1);
      CHECK(!store.holds_sums());
      store.begin_call();
      CHECK(store.find(a, shape).values[7] == doctest::Approx(1.5));
      CHECK(store.find(other, shape).values[7] == 0.0f);
      CHECK(store.find(unnamed, shape).values[7] == doctest::Approx(5));
    }
  }

  TEST_CASE("sums that an owner has loaded are handed on whole where it owns nothing of them") {
    Workers workers(1);
    const ResidualKey key{Layout::Source::named, true, "a"};
    std::vector<SavedTensor> saved;
    saved.push_back(saved_tensor("a", std::vector<float>(64, 2.0f), FeedbackKind::residual, true));
    ResidualStore store;
    store.load(std::move(saved));
    REQUIRE(store.holds_sums());
    store.begin_call();
    Residual& held = store.find(key, {64, FeedbackKind::residual, 64});
    store.drop_when_empty(key);
    std::vector<float> own(64);
    for (std::uint32_t call = 0; call < OwnedRuns::most_calls(2); ++call)
      held.owned.hand_on(held.values, own.data(), 2, host_memory(), workers);
    for (const float v : own) CHECK(v == doctest::Approx(2));
    CHECK(held.owned.empty());
    store.keep();
    CHECK(store.holds_sums());
    store.begin_call();
    CHECK(!store.holds_sums());
  }

  TEST_CASE("a codec's state behind residuals in bytes stays as it is, in whatever order tensors come") {
    const auto codec = make_codec("topk:reuse=4");
    const ResidualShape shape = ResidualShape::of(*codec, 700);
    REQUIRE(shape.elements >= 702);
    ResidualStore store;
    store.keep_bytes(0);
    const auto state = [&](const char* name) {
      return store.find({Layout::Source::named, false, name}, shape).values + 700;
    };
    for (int call = 0; call < 4; ++call) {
      CAPTURE(call);
      store.begin_call();
      for (const char* name : {call % 2 ? "b" : "a", call % 2 ? "a" : "b"}) {
        float* const at = state(name);
        const float mine = name[0] == 'a' ? 1.0f / 3 : 1e20f;  // which no byte can say
        if (call == 0) at[0] = mine, at[1] = -mine;
        CHECK(at[0] == mine);
        CHECK(at[1] == -mine);
      }
      store.settle();
      store.keep();
    }
  }
}
