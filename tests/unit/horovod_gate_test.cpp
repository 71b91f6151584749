// The held-bit gate with its clock and its cache in hand.
#include <doctest/doctest.h>

#include "horovod/gate.hpp"
#include "horovod/negotiation.hpp"
#include "support/horovod_simulator.hpp"

using namespace crimp;
using namespace crimp::test;
using namespace crimp::horovod;
using std::chrono::milliseconds;

namespace {

Gate::Clock::time_point now;
Gate::Clock::time_point clock_in_hand() { return now; }

// Tensors a, b, c, ... of 1000 bytes each, bit i for tensor i, reduced often enough for a plan.
struct Net {
  ResponseCache cache{1024};
  Gate gate;
  std::string names;
  explicit Net(const std::string& plan, std::string tensors = "abcd", int bound_ms = 100)
      : gate(MergePlan(plan), milliseconds(bound_ms)), names(tensors) {
    for (const char c : names) {
      Response r;
      r.names = {std::string(1, c)};
      r.sizes = {250};
      cache.put(r);
    }
    for (int step = 0; step < 5; ++step) reduce(names);
  }
  void reduce(const std::string& tensors) {
    for (const char c : tensors) gate.reduced(std::string(1, c), 1000);
  }
  // What is left of this rank's ready tensors; status: shutdown 1, uncached 2, invalid 4.
  std::string pass(const std::string& ready, unsigned status = 0) {
    std::vector<std::int64_t> words((cache.bits() + 3 + 63) / 64);
    words[0] = static_cast<std::int64_t>(7u & ~status);
    for (const char c : ready)
      if (const auto bit = cache.bit(std::string(1, c)) + 3; true) words[bit / 64] |= std::int64_t{1} << (bit % 64);
    const std::int64_t before = words[0] & 7;
    gate.hold(words, cache, clock_in_hand);
    CHECK((words[0] & 7) == before);
    std::string left;
    for (std::size_t bit = 3; bit < words.size() * 64; ++bit)
      if (words[bit / 64] >> (bit % 64) & 1) left += cache.peek(bit - 3)->names.front();
    return left;
  }
  std::uint64_t count(Release why) const { return gate.releases(why); }
};

}  // namespace

TEST_SUITE("horovod_gate") {
  TEST_CASE("without a plan, or before tensors have shown their places, nothing is held") {
    Net off("off");
    CHECK(off.gate.groups().empty());
    CHECK(off.pass("ab") == "ab");
    Gate early(MergePlan("all"), milliseconds(100));
    for (int step = 0; step < 3; ++step)
      for (const char* t : {"a", "b"}) early.reduced(t, 1000);
    CHECK_FALSE(early.planned());
    early.reduced("a", 1000);
    CHECK_FALSE(early.planned());  // in the middle of a step
    early.reduced("b", 1000);
    CHECK(early.groups() == std::vector<std::size_t>{2});
  }

  TEST_CASE("a group passes when all of it is ready") {
    Net net("all");
    CHECK(net.pass("a") == "");
    CHECK(net.pass("abd") == "");
    CHECK(net.pass("abcd") == "abcd");
    CHECK(net.pass("abcd") == "abcd");  // another rank is late
    CHECK(net.count(Release::complete) == 1);
    net.reduce("abcd");
    CHECK(net.pass("c") == "");
    CHECK(net.pass("abcd") == "abcd");
    CHECK(net.count(Release::complete) == 2);
    CHECK(net.count(Release::deadline) == 0);
  }

  TEST_CASE("groups pass one after the other, in the plan's order") {
    for (const char* plan : {"y=2", "cuts=2", "bytes=1001"}) {
      CAPTURE(plan);
      Net net(plan);
      CHECK(net.gate.groups() == std::vector<std::size_t>{2, 2});
      for (int step = 0; step < 3; ++step) {
        CHECK(net.pass("cd") == "");
        CHECK(net.pass("acd") == "");
        CHECK(net.pass("abcd") == "ab");
        net.reduce("ab");
        CHECK(net.pass("c") == "");
        CHECK(net.pass("cd") == "cd");
        net.reduce("cd");
      }
      CHECK(net.count(Release::complete) == 6);
    }
  }

  TEST_CASE("nothing is held for longer than the bound, and then all passes until something was reduced") {
    Net net("y=2", "abcd", 50);
    now = {};
    CHECK(net.pass("ad") == "");
    now += milliseconds(50);
    CHECK(net.pass("ad") == "");
    now += milliseconds(1);
    CHECK(net.pass("ad") == "ad");
    CHECK(net.pass("ad") == "ad");
    CHECK(net.count(Release::deadline) == 1);
    net.reduce("a");
    CHECK(net.pass("d") == "");  // a new bound
    now += milliseconds(50);
    CHECK(net.pass("d") == "");
    CHECK(net.pass("bd") == "b");
    net.reduce("b");
    CHECK(net.pass("cd") == "cd");
  }

  TEST_CASE("the bound begins again where nothing was held in between") {
    Net net("all", "ab", 50);
    now = {};
    CHECK(net.pass("a") == "");
    now += milliseconds(40);
    CHECK(net.pass("") == "");
    now += milliseconds(40);
    CHECK(net.pass("a") == "");
    // A complete group waits for other ranks only: that is no holding.
    CHECK(net.pass("ab") == "ab");
    now += milliseconds(400);
    CHECK(net.pass("ab") == "ab");
    CHECK(net.count(Release::deadline) == 0);
  }

  TEST_CASE("a tensor that makes the bound run out twice leaves the plan") {
    Net net("all", "abc", 50);
    now = {};
    for (int step = 0; step < 2; ++step) {
      CHECK(net.pass("ab") == "");
      now += milliseconds(51);
      CHECK(net.pass("ab") == "ab");
      net.reduce("abc");
    }
    CHECK(net.count(Release::deadline) == 2);
    CHECK(net.pass("a") == "");
    CHECK(net.pass("c") == "c");  // not held
    CHECK(net.pass("ab") == "ab");
  }

  TEST_CASE("shutdown, uncached and invalid tensors of this rank open the gate") {
    const std::pair<unsigned, Release> reasons[] = {{1, Release::shutdown},
                                                    {2, Release::uncached},
                                                    {6, Release::invalid},
                                                    {4, Release::invalid},
                                                    {3, Release::shutdown}};
    for (const auto& reason : reasons) {
      const auto status = reason.first;
      const auto why = reason.second;
      CAPTURE(status);
      Net net("all");
      CHECK(net.pass("ab", status) == "ab");
      CHECK(net.count(why) == 0);  // nothing was held yet
      CHECK(net.pass("ab") == "");
      CHECK(net.pass("ab", status) == "ab");
      CHECK(net.pass("ab", status) == "ab");
      CHECK(net.count(why) == 1);
      CHECK(net.pass("ab") == "");  // and it closes again
    }
  }

  // hvd.join(): this rank's inputs are all ones, and only what the others give is reduced.
  TEST_CASE("a rank that has joined holds back no group of the others'") {
    Net net("y=2");
    for (int step = 0; step < 3; ++step) {
      CHECK(net.pass("abcd") == "ab");
      net.reduce("ab");
      CHECK(net.pass("abcd") == "cd");
      net.reduce("cd");
    }
  }

  TEST_CASE("tensors outside the plan are never held") {
    Net net("all");
    for (const char c : {'m', 'n'}) {
      Response r;
      r.names = {std::string(1, c)};
      r.sizes = {c == 'm' ? 1 : 250};
      net.cache.put(r);
    }
    net.gate.reduced("m", 4);     // a metric, now and then
    net.gate.reduced("n", 1000);  // a new tensor
    net.reduce("abcd");
    CHECK(net.gate.groups() == std::vector<std::size_t>{4});
    CHECK(net.pass("amn") == "mn");
    CHECK(net.pass("abcdmn") == "abcdmn");
  }

  TEST_CASE("single numbers are metrics even where they are reduced in every step") {
    Gate gate(MergePlan("all"), milliseconds(100));
    for (int step = 0; step < 6; ++step) {
      gate.reduced("w", 1000);
      gate.reduced("loss", 8);
    }
    CHECK(gate.groups() == std::vector<std::size_t>{1});
  }

  TEST_CASE("tensors without a name neither hold nor end the plan") {
    Net net("all");
    for (int i = 0; i < 1000; ++i) net.gate.reduced("allreduce.noname." + std::to_string(i), 1000);
    CHECK(net.gate.groups() == std::vector<std::size_t>{4});
    CHECK(net.pass("ab") == "");
    net.reduce("ab");
    net.gate.reduced("allreduce.noname.1000", 1000);  // in the middle of a step
    CHECK(net.pass("c") == "");
    CHECK(net.pass("cd") == "cd");
  }

  TEST_CASE("a tensor that is no longer cached is waited for, up to the bound") {
    Net net("all", "abc", 50);
    now = {};
    net.cache.erase(1);
    net.cache.deal_bits_again();
    CHECK(net.pass("ac") == "");
    now += milliseconds(51);
    CHECK(net.pass("ac") == "ac");
    net.reduce("abc");
    Response b;
    b.names = {"b"};
    b.sizes = {250};
    net.cache.put(b);
    CHECK(net.pass("ac") == "");
    CHECK(net.pass("abc") == "acb");
  }

  TEST_CASE("a step that another rank has cut short does not stop the plan") {
    Net net("y=2");
    CHECK(net.pass("abcd") == "ab");
    net.reduce("ab");
    net.reduce("ab");  // the next step already: c and d were left out
    CHECK(net.pass("cd") == "cd");
    net.reduce("cd");
    CHECK(net.pass("abcd") == "ab");
    net.reduce("a");
    net.reduce("a");  // without b
    CHECK(net.pass("cd") == "");
    CHECK(net.pass("bcd") == "b");
  }

  TEST_CASE("bits in several words and short inputs") {
    Net net("all", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@#$%&*+=-/");
    CHECK(net.cache.bits() > 64);
    CHECK(net.pass("aZ9/") == "");
    CHECK(net.pass(net.names) == net.names);
    std::vector<std::int64_t> none, one{-1};
    net.gate.hold(none, net.cache, clock_in_hand);
    net.gate.hold(one, net.cache, clock_in_hand);
    CHECK((one[0] & 7) == 7);
  }

  // The gates of all ranks between a simulated Horovod and itself: the same calls on all, and a step of as many calls
  // as the plan has groups.
  TEST_CASE("merged calls carry the plan's tensors, and the decoder counts them") {
    HorovodRun run;
    run.ranks = 3;
    std::vector<Negotiation> ranks;
    for (int r = 0; r < run.ranks; ++r)
      ranks.emplace_back(run.ranks, horovod::Options{}, MergePlan("y=3"), milliseconds(60000));
    std::size_t seen = 0;
    int calls = 0, step = 0;
    const auto feed = [&](const std::vector<HorovodEvent>& events) {
      for (; seen < events.size(); ++seen) {
        const HorovodEvent& e = events[seen];
        calls += e.kind == HorovodEvent::data && step >= 10;
        for (Negotiation& n : ranks) switch (e.kind) {
            case HorovodEvent::ready_bits: n.ready_bits(e.words); break;
            case HorovodEvent::invalid_bits: n.invalid_bits(e.words); break;
            case HorovodEvent::gathered: n.gathered(); break;
            case HorovodEvent::broadcast: n.broadcast(e.bytes.data(), e.bytes.size()); break;
            case HorovodEvent::data: CHECK(n.data_call(e.count, e.type)->known());
          }
      }
    };
    run.gate = [&](std::size_t rank, std::span<std::int64_t> words, const std::vector<HorovodEvent>& events) {
      feed(events);
      ranks[rank].hold(words);
    };
    HorovodSimulator horovod(run);
    for (; step < 100; ++step) {
      feed(horovod.step());
      seen = 0;
    }
    CHECK(calls == 90 * 3);
    const Record record = ranks[0].record();
    CHECK(record.groups.size() == 3);
    CHECK(record.merged_tensors % static_cast<std::uint64_t>(run.tensors) == 0);
    CHECK(record.merged_tensors >= 90u * static_cast<std::uint64_t>(run.tensors));
    CHECK(record.merged_calls >= 270);
    CHECK(record.releases[static_cast<std::size_t>(Release::complete)] >= 270);
    CHECK(record.releases[static_cast<std::size_t>(Release::deadline)] == 0);
  }
}
