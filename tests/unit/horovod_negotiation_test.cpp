// The negotiation decoder against a simulated Horovod: every layout it names must be the true one.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "horovod/negotiation.hpp"
#include "support/effort.hpp"
#include "support/horovod_simulator.hpp"
#include "support/sanitized.hpp"

using namespace crimp;
using namespace crimp::test;
using horovod::Negotiation;

TEST_SUITE("horovod_negotiation") {
  namespace {

  struct Tally {
    std::uint64_t calls = 0, explained = 0, wrong = 0;
    std::string first;  // the first wrong layout
  };

  std::string text_of(const HorovodEvent& e) {
    std::string text = std::to_string(e.count) + ":";
    for (const auto& p : e.parts)
      text += " " + (horovod::unnamed(p.name) ? "" : p.name) + "@" + std::to_string(p.offset) + "+" +
              std::to_string(p.count);
    return text;
  }

  std::string text_of(const Layout& layout, std::uint64_t count) {
    std::string text = std::to_string(count) + ":";
    std::uint64_t at = 0;
    for (const auto& s : layout.segments) {
      if (s.offset != at) text += " (does not tile)";
      at = s.offset + s.count;
      if (s.use == Segment::Use::sum)
        text += " " + s.key + "@" + std::to_string(s.offset) + "+" + std::to_string(s.count);
    }
    return at == count ? text : text + " (ends at " + std::to_string(at) + ")";
  }

  void feed(Negotiation& decoder, const HorovodEvent& e, Tally& tally) {
    switch (e.kind) {
      case HorovodEvent::ready_bits: return decoder.ready_bits(e.words);
      case HorovodEvent::invalid_bits: return decoder.invalid_bits(e.words);
      case HorovodEvent::gathered: return decoder.gathered();
      case HorovodEvent::broadcast: return decoder.broadcast(e.bytes.data(), e.bytes.size());
      case HorovodEvent::data: break;
    }
    const Layout layout = *decoder.data_call(e.count, e.type, [&] { return e.on_device; });
    ++tally.calls;
    if (!layout.known()) return;
    ++tally.explained;
    const std::string got = text_of(layout, e.count), expected = text_of(e);
    if (layout.source == Layout::Source::negotiated && got == expected) return;
    if (tally.wrong++ == 0) tally.first = got + "\nbut it is\n" + expected;
  }

  horovod::Options options_of(const HorovodRun& run) {
    horovod::Options o;
    o.cache_capacity = run.capacity;
    o.fusion_threshold = run.threshold;
    o.threshold_unit = run.threshold_unit;
    o.autotune = run.autotune;
    o.separate_groups = run.separate_groups;
    return o;
  }

  // steps x seeds; the decoder knows what Horovod's environment variables say.
  Tally follow(const std::string& what, HorovodRun run, int steps = 500) {
    Tally tally;
    std::uint64_t fast = 0, slow = 0, evictions = 0, erasures = 0, counted = 0;
    if (kSanitized) steps /= 5;
    for (run.seed = 1; run.seed <= effort<std::uint64_t>(3, 1, 1, 1); ++run.seed) {
      HorovodSimulator horovod(run);
      Negotiation decoder(run.ranks, options_of(run));
      for (int s = 0; s < steps; ++s)
        for (const auto& e : horovod.step()) feed(decoder, e, tally);
      fast += horovod.fast_cycles(), slow += horovod.slow_cycles(), evictions += horovod.evictions(),
          erasures += horovod.erasures();
      counted += decoder.record().explained + decoder.record().unexplained_calls();
    }
    MESSAGE(what << ": " << tally.explained << " of " << tally.calls << " explained, " << tally.wrong << " wrong; "
                 << fast << " fast and " << slow << " slow cycles, " << evictions << " evictions, " << erasures
                 << " erasures");
    CHECK_MESSAGE(tally.wrong == 0, what << ": " << tally.first);
    CHECK(counted == tally.calls);
    CHECK(tally.calls > (kSanitized ? 60 : 1000));
    return tally;
  }

  void follow_all(const std::string& what, const HorovodRun& run, int steps = 500) {
    const Tally tally = follow(what, run, steps);
    CAPTURE(what);
    CHECK(tally.explained == tally.calls);
  }

  HorovodRun with(void (*change)(HorovodRun&)) {
    HorovodRun run;
    change(run);
    return run;
  }

  }  // namespace

  TEST_CASE("every data call is explained") {
    follow_all("default", {});
    follow_all("4 ranks", with([](auto& r) { r.ranks = 4; }));
    follow_all("150 tensors (3 words of bits)", with([](auto& r) { r.tensors = 150; }), 200);
    follow_all("threshold 100 kB", with([](auto& r) { r.threshold = 102400; }));
    follow_all("no threshold",
               with([](auto& r) { r.threshold = std::numeric_limits<std::int64_t>::max(), r.threshold_unit = 512; }));
    follow_all("threshold 0", with([](auto& r) { r.threshold = 0; }));
    follow_all("tensors of one size, 64 kB", with([](auto& r) { r.equal_sizes = true, r.threshold = 65536; }));
    follow_all("float16, float32 and int64", with([](auto& r) { r.mixed_types = true; }));
    follow_all("mixed types, 64 kB look-ahead", with([](auto& r) { r.mixed_types = true, r.threshold = 65536; }));
    follow_all("minima among the sums", with([](auto& r) { r.minima = true, r.threshold = 65536; }));
    follow_all("timeline", with([](auto& r) { r.timeline = true, r.tensors = 130; }), 200);
  }

  TEST_CASE("every data call is explained whatever the cache does") {
    follow_all("cache off", with([](auto& r) { r.capacity = 0; }));
    follow_all("capacity 8", with([](auto& r) { r.capacity = 8; }));
    follow_all("capacity 39 of 40", with([](auto& r) { r.capacity = 39; }));
    follow_all("shapes change", with([](auto& r) { r.reshapes = true; }));
    follow_all("shapes change, capacity 30, timeline",
               with([](auto& r) { r.reshapes = r.timeline = true, r.capacity = 30; }));
    follow_all("unnamed tensors", with([](auto& r) { r.unnamed = true, r.capacity = 100; }));
    follow_all("cache switched off and on", with([](auto& r) { r.cache_every = 7; }));
    follow_all("cache switched every step", with([](auto& r) { r.cache_every = 1; }));
  }

  TEST_CASE("every data call is explained among other operations") {
    follow_all("joins", with([](auto& r) { r.joins = true; }));
    follow_all("joins, 3 ranks, shapes change", with([](auto& r) { r.joins = r.reshapes = true, r.ranks = 3; }));
    follow_all("joins, no cache", with([](auto& r) { r.joins = true, r.capacity = 0; }));
    follow_all("joins, 3 ranks, no cache", with([](auto& r) { r.joins = true, r.ranks = 3, r.capacity = 0; }));
    follow_all("adasum", with([](auto& r) { r.adasum = true; }));
    follow_all("allgathers", with([](auto& r) { r.allgathers = true; }));
    follow_all("everything at once", with([](auto& r) {
                 r.joins = r.reshapes = r.adasum = r.allgathers = r.unnamed = r.mixed_types = r.timeline = true,
                 r.capacity = 60;
               }));
  }

  TEST_CASE("every data call is explained with groups") {
    follow_all("groups", with([](auto& r) { r.groups = 8; }));
    follow_all("groups apart", with([](auto& r) { r.groups = 8, r.separate_groups = true; }));
    follow_all("groups apart, split by the threshold",
               with([](auto& r) { r.groups = 5, r.separate_groups = true, r.threshold = 65536; }));
    follow_all("groups of more than nine",
               with([](auto& r) { r.groups = 3, r.separate_groups = true, r.mixed_types = true; }));
  }

  TEST_CASE("every data call is explained with pads in the buffers") {
    follow_all("GPU pads", with([](auto& r) { r.pads_counted = r.pads_in_buffer = true; }));
    follow_all("GPU pads, mixed types",
               with([](auto& r) { r.pads_counted = r.pads_in_buffer = r.mixed_types = true; }));
    follow_all("GPU pads, joins, no cache",
               with([](auto& r) { r.pads_counted = r.pads_in_buffer = r.joins = true, r.capacity = 0; }));
    follow_all("GPU pads, 64 kB", with([](auto& r) { r.pads_counted = r.pads_in_buffer = true, r.threshold = 65536; }));
    // Four tensors fit without their pads only.
    follow_all("GPU pads at the threshold",
               with([](auto& r) { r.pads_counted = r.pads_in_buffer = r.equal_sizes = true, r.threshold = 65560; }));
    follow_all("CPU tensors in a CUDA build", with([](auto& r) { r.pads_counted = true; }));
  }

  // What the decoder cannot know from outside: sizes of gathered rows and pads that are counted where a threshold
  // binds. Unknown then, never wrong.
  TEST_CASE("never a wrong layout where the threshold is not known") {
    const auto mostly = [](const std::string& what, const HorovodRun& run, double rate) {
      const Tally tally = follow(what, run);
      CAPTURE(what);
      CHECK(static_cast<double>(tally.explained) >= rate * static_cast<double>(tally.calls));
    };
    mostly("CPU tensors in a CUDA build, 64 kB", with([](auto& r) { r.pads_counted = true, r.threshold = 65536; }),
           0.9);
    mostly("CPU tensors in a CUDA build at the threshold",
           with([](auto& r) { r.pads_counted = r.equal_sizes = true, r.threshold = 65560; }),
           0.1);  // made to be the worst
    mostly("allgathers, 64 kB", with([](auto& r) { r.allgathers = true, r.threshold = 65536; }), 0.5);
    // As without HOROVOD_AUTOTUNE in this process's environment.
    mostly("tuned threshold, not followed", with([](auto& r) { r.tuned_every = 200, r.threshold = 262144; }), 0.2);
    mostly("tuned threshold, one size, not followed",
           with([](auto& r) { r.tuned_every = 200, r.equal_sizes = true, r.threshold = 262144; }), 0.2);
  }

  TEST_CASE("every data call is explained while Horovod tunes itself") {
    const auto tuned = [](const std::string& what, void (*change)(HorovodRun&), int every = 40) {
      HorovodRun run;
      run.tuned_every = every, run.autotune = true, run.threshold_unit = 2048;
      if (change) change(run);
      follow_all(what, run);
    };
    tuned("tuned threshold", nullptr);
    tuned("tuned in every cycle", nullptr, 1);
    tuned("tuned, one size", [](auto& r) { r.equal_sizes = true; });
    tuned("tuned, mixed types", [](auto& r) { r.mixed_types = true; });
    tuned("tuned, groups apart", [](auto& r) { r.groups = 5, r.separate_groups = true; });
    tuned("tuned, joins and shapes change", [](auto& r) { r.joins = r.reshapes = true; });
    tuned("tuned, cache switched, shapes change, timeline",
          [](auto& r) { r.cache_every = 8, r.reshapes = r.timeline = true; });
    tuned("tuned, hosts with different numbers of ranks", [](auto& r) { r.threshold_unit = 1; });
  }

  TEST_CASE("a tuned threshold holds for all communicators; what cannot be one changes nothing") {
    const auto a = response_list({{"a", 256}}), b = response_list({{"b", 256}});
    const std::vector<std::int64_t> uncached{5}, both{7 + 8 + 16};
    const auto shared = std::make_shared<std::int64_t>(1 << 20);
    horovod::Options options;
    options.autotune = true;
    options.threshold_unit = 1024;
    // One call of 512 elements, or two of 256.
    const auto calls = [&](Negotiation& n) {
      n.ready_bits(both);
      if (!n.data_call(512, Dtype::f32)->known()) return 2;
      return 1;
    };
    Negotiation one(2, options, {}, {}, shared), other(2, options, {}, {}, shared), deaf(2, horovod::Options());
    for (Negotiation* n : {&one, &other, &deaf})
      for (const auto* list : {&a, &b}) {
        n->ready_bits(uncached);
        n->gathered();
        n->broadcast(list->data(), list->size());
      }
    struct {
      std::uint8_t flags[8] = {0, 1, 0, 1, 99, 99, 99, 99};
      double mb = 1. / 1024, cycle = 5;
      std::uint8_t active[8] = {1, 99, 99, 99, 99, 99, 99, 99};
    } p;
    static_assert(sizeof p == 32);
    for (Negotiation* n : {&one, &other, &deaf}) CHECK(calls(*n) == 1);
    const auto refused = [&] {
      one.broadcast(&p, sizeof p);
      CHECK(calls(one) == 1);
    };
    for (const double mb : {-1., 1e300, std::nan(""), std::numeric_limits<double>::infinity()}) p.mb = mb, refused();
    p.mb = 1. / 1024;
    for (const double cycle : {-1., std::nan("")}) p.cycle = cycle, refused();
    p.cycle = 5, p.flags[2] = 2, refused();
    p.flags[2] = 0, p.active[0] = 7, refused();
    p.active[0] = 0;
    one.broadcast(&p, 31);
    CHECK(calls(one) == 1);
    one.broadcast(&p, sizeof p);
    deaf.broadcast(&p, sizeof p);
    CHECK(calls(one) == 2);
    CHECK(calls(other) == 2);
    CHECK(calls(deaf) == 1);
    p.mb = 1.01 / 1024;  // 1034 bytes: rounded up to 2048
    one.broadcast(&p, sizeof p);
    CHECK(calls(one) == 1);
  }

  TEST_CASE("calls of another count or type are unknown until the next cycle") {
    HorovodRun run;
    HorovodSimulator horovod(run);
    Negotiation decoder(run.ranks, options_of(run));
    Tally tally;
    for (int s = 0; s < 300; ++s)
      for (const auto& e : horovod.step()) {
        if (e.kind == HorovodEvent::data && s % 3 == 0) {
          CHECK_FALSE(decoder.data_call(e.count + 100000, e.type)->known());
          CHECK_FALSE(decoder.data_call(e.count, Dtype::f64)->known());
        } else {
          feed(decoder, e, tally);
        }
      }
    CHECK(tally.wrong == 0);
    CHECK(tally.explained == tally.calls);
  }

  TEST_CASE("malformed messages are refused or read safely and later cycles are explained again") {
    HorovodRun run;
    run.capacity = 0;  // every cycle carries a list, so every one heals
    HorovodSimulator horovod(run);
    Negotiation decoder(run.ranks, options_of(run));
    std::mt19937_64 random(7);
    Tally tally;
    std::uint64_t refused = 0, read = 0;
    for (int s = 0; s < 150; ++s)
      for (const auto& e : horovod.step()) {
        if (e.kind != HorovodEvent::broadcast) {
          feed(decoder, e, tally);
          continue;
        }
        for (int kind = 0; kind < 12; ++kind) {
          // Of exactly its size on the heap, so that a read past it is seen.
          std::vector<std::uint8_t> bad = e.bytes;
          if (kind < 4) bad.resize(random() % bad.size());
          if (kind == 4)
            for (auto& b : bad) b = static_cast<std::uint8_t>(random());
          if (kind > 4)
            for (int n = 1 << (kind - 5); n > 0; --n) bad[random() % bad.size()] = static_cast<std::uint8_t>(random());
          bad.shrink_to_fit();
          horovod::read_response_list(bad.data(), bad.size()) ? ++read : ++refused;
          Negotiation victim(run.ranks, options_of({}));
          victim.ready_bits(std::vector<std::int64_t>{5});  // uncached tensors: a list comes
          victim.gathered();
          victim.broadcast(bad.data(), bad.size());
          for (const std::uint64_t n : {1, 4096}) victim.data_call(n, Dtype::f32);
          victim.ready_bits(std::vector<std::int64_t>{-1});
          victim.data_call(100, Dtype::f32);
          decoder.gathered();
          decoder.broadcast(bad.data(), bad.size());
          decoder.data_call(12345678, Dtype::f32);
        }
        decoder.gathered();
        feed(decoder, e, tally);
      }
    CHECK(refused > 1000);
    CHECK(read > 1000);
    CHECK(tally.wrong == 0);
    CHECK(tally.explained == tally.calls);
  }

  TEST_CASE("sizes that overflow are refused") {
    for (const std::int64_t n : {std::numeric_limits<std::int64_t>::max(), std::int64_t{1} << 61, std::int64_t{-1}}) {
      CAPTURE(n);
      const auto bytes = response_list({{"a", 8}, {"b", n}});
      CHECK_FALSE(horovod::read_response_list(bytes.data(), bytes.size()).has_value());
    }
    const auto bytes = response_list({{"a", 8}, {"b", 0}, {"c", 3}});
    const auto list = horovod::read_response_list(bytes.data(), bytes.size());
    REQUIRE(list.has_value());
    CHECK(list->front().names == std::vector<std::string>{"a", "b", "c"});
    Negotiation decoder(2, {});
    decoder.gathered();
    decoder.broadcast(bytes.data(), bytes.size());
    const Layout layout = *decoder.data_call(11, Dtype::f32);
    CHECK(layout.known());
    CHECK(layout.segments.size() == 2);  // a tensor without elements has no segment
  }

  TEST_CASE("any words as bit vectors are survived") {
    HorovodRun run;
    HorovodSimulator horovod(run);
    Negotiation decoder(run.ranks, options_of(run));
    std::mt19937_64 random(8);
    Tally tally;
    for (int s = 0; s < 50; ++s)
      for (const auto& e : horovod.step()) {
        std::vector<std::int64_t> noise(random() % 4);
        for (auto& w : noise) w = static_cast<std::int64_t>(random());
        if (s > 10 && random() % 3 == 0) random() % 2 ? decoder.ready_bits(noise) : decoder.invalid_bits(noise);
        Tally ignored;
        feed(decoder, e, s > 10 ? ignored : tally);
      }
    CHECK(tally.wrong == 0);
  }

  TEST_CASE("a broadcast that no gather announced is another's") {
    Negotiation decoder(2, {});
    const auto bytes = response_list({{"a", 4096}});
    const std::vector<std::int64_t> uncached{5}, none{7};
    decoder.ready_bits(uncached);
    decoder.broadcast(bytes.data(), bytes.size());
    CHECK(decoder.cache().bits() == 0);
    CHECK_FALSE(decoder.data_call(4096, Dtype::f32)->known());
    // A gather announces one only.
    decoder.ready_bits(uncached);
    decoder.gathered();
    decoder.broadcast(bytes.data(), bytes.size());
    decoder.ready_bits(none);
    decoder.broadcast(bytes.data(), bytes.size());
    CHECK(decoder.cache().bits() == 1);
    CHECK_FALSE(decoder.data_call(4096, Dtype::f32)->known());
  }

  TEST_CASE("a list in a cycle without bit vectors leaves the mirror empty") {
    Negotiation decoder(2, {});
    const auto a = response_list({{"a", 4096}}), b = response_list({{"b", 100}});
    const std::vector<std::int64_t> uncached{5}, none{7}, first{15};
    // An idle cycle, then one with the cache switched off, then it is on again and starts from nothing.
    decoder.ready_bits(none);
    decoder.gathered();
    decoder.broadcast(a.data(), a.size());
    CHECK(decoder.data_call(4096, Dtype::f32)->known());
    CHECK(decoder.cache().bits() == 0);
    decoder.ready_bits(uncached);
    decoder.gathered();
    decoder.broadcast(b.data(), b.size());
    CHECK(decoder.data_call(100, Dtype::f32)->known());
    decoder.ready_bits(first);
    const Layout layout = *decoder.data_call(100, Dtype::f32);
    REQUIRE(layout.known());
    CHECK(layout.segments[0].key == "b");
  }

  // Of such a list Horovod caches what the mirror does not see.
  TEST_CASE("behind a list that cannot be read, or an unknown bit, hits are unknown until the cache begins anew") {
    for (const bool unreadable : {true, false}) {
      CAPTURE(unreadable);
      Negotiation decoder(2, {});
      const auto list = [&](const std::vector<std::pair<std::string, std::int64_t>>& tensors, bool cached = true) {
        if (cached) decoder.ready_bits(std::vector<std::int64_t>{5});
        decoder.gathered();
        const auto bytes = response_list(tensors);
        decoder.broadcast(bytes.data(), bytes.size());
      };
      const std::vector<std::int64_t> first{7 | 1 << 3}, third{7 | 1 << 5};
      list({{"a", 4096}});
      if (unreadable) {
        list({{"a", 4096}, {"huge", (std::int64_t{1} << 32) + 1}});
      } else {
        decoder.ready_bits(third);
        CHECK_FALSE(decoder.data_call(4096, Dtype::f32)->known());
      }
      list({{"b", 4096}});
      CHECK(decoder.data_call(4096, Dtype::f32)->known());  // a list speaks for itself
      for (const auto& bits : {first, third, std::vector<std::int64_t>{7 | 1 << 4}}) {
        decoder.ready_bits(bits);
        CHECK_FALSE(decoder.data_call(4096, Dtype::f32)->known());
      }
      const auto& why = decoder.record().unexplained;
      CHECK(why[static_cast<std::size_t>(horovod::Unexplained::cache_differs)] == (unreadable ? 3u : 4u));
      list({{"c", 4096}}, false);
      CHECK(decoder.data_call(4096, Dtype::f32)->known());
      list({{"d", 100}});
      CHECK(decoder.data_call(100, Dtype::f32)->known());
      decoder.ready_bits(first);
      const Layout layout = *decoder.data_call(100, Dtype::f32);
      REQUIRE(layout.known());
      CHECK(layout.segments[0].key == "d");
    }
  }

  TEST_CASE("Horovod's variables are read as it reads them") {
    const auto with = [](const char* name, const char* text) {
      ::setenv(name, text, 1);
      const horovod::Options o = horovod::Options::from_environment(0);
      ::unsetenv(name);
      return o;
    };
    for (const char* text : {"400000", "400000.0", " 400000", "400000 bytes"})
      CHECK(with("HOROVOD_FUSION_THRESHOLD", text).fusion_threshold == 400000);
    for (const char* text : {"", "64M"})
      CHECK(with("HOROVOD_FUSION_THRESHOLD", text).fusion_threshold == std::atoi(text));
    CHECK(horovod::Options::from_environment(0).fusion_threshold == 128 << 20);
    CHECK(with("HOROVOD_CACHE_CAPACITY", "").cache_capacity == 0);
    CHECK(with("HOROVOD_CACHE_CAPACITY", "8;").cache_capacity == 8);
    CHECK(with("HOROVOD_DISABLE_GROUP_FUSION", "1 ").separate_groups);
    CHECK_FALSE(with("HOROVOD_DISABLE_GROUP_FUSION", "yes").separate_groups);
    CHECK(with("HOROVOD_AUTOTUNE", "1\n").autotune);
    CHECK_FALSE(with("HOROVOD_BATCH_D2D_MEMCOPIES", "no").pads);
    CHECK(with("HOROVOD_BATCH_D2D_MEMCOPIES", "-1").pads);
  }

  TEST_CASE("a list that never came is not waited for in the next cycle") {
    Negotiation decoder(2, {});
    const auto a = response_list({{"a", 4096}});
    const std::vector<std::int64_t> uncached{5}, first{15};
    decoder.ready_bits(uncached);
    decoder.gathered();
    decoder.broadcast(a.data(), a.size());
    decoder.ready_bits(uncached);
    decoder.gathered();  // and nobody broadcasts
    decoder.ready_bits(first);
    decoder.broadcast("not Horovod's", 13);
    const Layout layout = *decoder.data_call(4096, Dtype::f32);
    REQUIRE(layout.known());
    CHECK(layout.segments[0].key == "a");
  }
}
