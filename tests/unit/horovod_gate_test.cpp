// The held-bit gate with its clock and its cache in hand.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "horovod/gate.hpp"
#include "horovod/negotiation.hpp"
#include "support/horovod_simulator.hpp"

using namespace crimp;
using namespace crimp::test;
using namespace crimp::horovod;
using std::chrono::milliseconds;

TEST_SUITE("horovod_gate") {
  namespace {

  Clock::time_point now;
  Clock::time_point clock_in_hand() { return now; }

  // Tensors a, b, c, ... of 1000 bytes each, bit i for tensor i, reduced often enough for a plan.
  struct Net {
    ResponseCache cache{1024};
    Gate gate;
    std::string names;
    explicit Net(const std::string& plan, std::string tensors = "abcd", int bound_ms = 100, Leader leader = {})
        : gate(MergePlan(plan), milliseconds(bound_ms), std::move(leader)), names(tensors) {
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

  // CRIMP_PLAN_FILE in a new directory, and two ranks, of which the first one decides and has it.
  struct Saved {
    std::string directory = (std::filesystem::temp_directory_path() / "crimp-test-XXXXXX").string();
    std::shared_ptr<const PlanFile> file;
    std::vector<std::vector<std::uint8_t>> messages;  // the leader's
    std::size_t heard = 0;
    std::vector<std::string> warnings, chosen;
    Saved() {
      REQUIRE(::mkdtemp(directory.data()));
      file = std::make_shared<const PlanFile>(path());
    }
    ~Saved() { std::filesystem::remove_all(directory); }
    std::string path() const { return directory + "/plans.json"; }
    std::string text() const {
      std::stringstream all;
      all << std::ifstream(path()).rdbuf();
      return all.str();
    }
    static SavedPlan plan(const std::string& tensors, Cuts cuts, double step_s = 1e-3) {
      SavedPlan p;
      p.ranks = 2;
      for (const char c : tensors) p.tensors.push_back({std::string(1, c), 1000});
      p.plan = {true, {std::move(cuts), {}}};
      p.step_s = step_s;
      return p;
    }
    Leader first() {
      Leader leader;
      leader.here = true;
      leader.broadcast = [&](std::span<std::uint8_t> bytes) { messages.emplace_back(bytes.begin(), bytes.end()); };
      leader.file = file;
      leader.key.ranks = 2;
      leader.warn = [&](const std::string& line) { warnings.push_back(line); };
      leader.chosen = [&](const SearchRecord& record) { chosen.push_back(record.line()); };
      return leader;
    }
    Leader second() {  // a file of its own would be nobody's business
      Leader leader;
      leader.broadcast = [&](std::span<std::uint8_t> bytes) {
        REQUIRE(heard < messages.size());
        REQUIRE(bytes.size() == messages[heard].size());
        std::copy(messages[heard].begin(), messages[heard].end(), bytes.begin());
        ++heard;
      };
      return leader;
    }
  };

  // Steps of so long on both ranks.
  void steps(Net& first, Net& second, int number, milliseconds each, const std::string& tensors) {
    for (int step = 0; step < number; ++step) {
      now += each;
      for (Net* net : {&first, &second}) net->reduce(tensors), net->pass("");
    }
  }

  }  // namespace

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

  TEST_CASE("a tensor that makes the bound run out once in eight steps stays in the plan, twice in them it does not") {
    for (const int each : {7, 8}) {
      CAPTURE(each);
      std::vector<std::pair<std::size_t, std::size_t>> said;
      Leader leader;
      leader.late = [&](std::size_t unmerged, std::size_t tensors) { said.emplace_back(unmerged, tensors); };
      Net net("all", "abc", 50, leader);
      now = {};
      for (int step = 0; step < 40; ++step) {
        const bool late = step % each == 0 && (each == 8 || step < 8);
        if (late) {
          CHECK(net.pass("a") == "");
          now += milliseconds(51);
          CHECK(net.pass("a") == "a");
        }
        net.reduce("abc");
        CHECK(net.gate.unmerged() == (each == 8 || step < 7 ? 0 : 2));
      }
      CHECK(net.count(Release::deadline) == (each == 8 ? 5 : 2));
      CHECK(net.pass("a") == (each == 8 ? "" : "a"));
      if (each == 7) CHECK(said == std::vector{std::pair<std::size_t, std::size_t>(2, 3)});
      else CHECK(said.empty());
    }
  }

  TEST_CASE("for a group of which all have left the plan nothing is held in later steps") {
    for (const auto& [plan, all, rest] :
         {std::array{"cuts=1,3", "abcde", "bcde"}, std::array{"cuts=2", "abcd", "cd"}}) {
      CAPTURE(plan);
      Net net(plan, all, 50);
      now = {};
      std::uint64_t deadlines = 0;
      for (int step = 0; step < 8; ++step) {
        for (std::string ready = rest; !ready.empty(); now += milliseconds(1)) {
          const std::string passed = net.pass(ready);
          net.reduce(passed);
          std::erase_if(ready, [&](char c) { return passed.find(c) != std::string::npos; });
        }
        if (step == 3) deadlines = net.count(Release::deadline);
      }
      CHECK(net.count(Release::deadline) == deadlines);
    }
  }

  TEST_CASE("the bound goes on while tensors outside the plan are reduced, and while this rank reports something") {
    for (const bool known : {true, false}) {
      CAPTURE(known);
      Net net("all", "ab", 50);
      net.gate.reduced("other", 1000), net.reduce("ab");
      now = {};
      for (int i = 0; i < 5; ++i) {
        CHECK(net.pass("a") == "");
        now += milliseconds(10);
        if (known) net.gate.reduced(i % 2 ? "other" : "loss", i % 2 ? 1000 : 4);
        else CHECK(net.pass("a", 2) == "a");  // a new name is on its way
      }
      CHECK(net.pass("a") == "");
      now += milliseconds(1);
      CHECK(net.pass("a") == "a");
      CHECK(net.count(Release::deadline) == 1);
    }
  }

  // What leaves the plan there does not come with its group, of which the others then wait for the rest.
  TEST_CASE("a tensor that another rank lacks in one step after the other leaves the plan here, too") {
    Net net("cuts=2", "abcd", 50);
    now = {};
    for (int step = 0; step < 4; ++step) {
      CHECK(net.pass("abcd") == "ab");
      if (step >= 2) net.reduce("b");  // there a has left the plan
      const std::string rest = step >= 2 ? "acd" : "abcd";
      CHECK(net.pass(rest) == (step >= 2 ? "a" : "ab"));
      now += milliseconds(51);
      CHECK(net.pass(rest) == rest);
      CHECK(net.count(Release::deadline) == static_cast<std::uint64_t>(step + 1));
      net.reduce(step >= 2 ? "cda" : "bcda");  // what all ranks have first
    }
    CHECK(net.pass("abcd") == "ab");
    net.reduce("b");
    CHECK(net.pass("acd") == "acd");
    net.reduce("cda");
    CHECK(net.pass("b") == "b");
    CHECK(net.pass("cd") == "");
  }

  TEST_CASE("ranks that come late now and then end no plan") {
    Net net("cuts=2", "abcd", 50);
    now = {};
    for (int step = 0; step < 20; ++step) {
      CHECK(net.pass("abcd") == "ab");
      if (step % 2) now += milliseconds(51);
      CHECK(net.pass("abcd") == (step % 2 ? "abcd" : "ab"));
      net.reduce("ab");
      CHECK(net.pass("cd") == "cd");
      net.reduce("cd");
    }
    CHECK(net.pass("cd") == "");
  }

  TEST_CASE("a tensor that missed a step, or came in the second one, ends no merging") {
    Gate gate(MergePlan("all"), milliseconds(100));
    const auto step = [&](const std::string& tensors) {
      for (const char c : tensors) gate.reduced(std::string(1, c), 1000);
    };
    step("abdefg");
    for (int i = 0; i < 20; ++i) step("abcdefg");
    CHECK(gate.groups() == std::vector<std::size_t>{6});  // c is never held
    step("acdefg");                                       // without b, while there is a plan
    step("abcdefg");
    CHECK(gate.groups() == std::vector<std::size_t>{6});
    gate.reduced("x", 1000);  // a new one, once
    for (int i = 0; i < 20; ++i) step("abcdefg");
    CHECK(gate.planned());
    const auto groups = gate.groups();
    gate.reduced("y", 1000);
    step("abcdefg");
    CHECK(gate.groups() == groups);
  }

  TEST_CASE("a second tensor that misses a step while the first one's is being learnt ends no merging either") {
    Gate gate(MergePlan("all"), milliseconds(100));
    const auto step = [&](const std::string& tensors) {
      for (const char c : tensors) gate.reduced(std::string(1, c), 1000);
    };
    step("abde");
    for (int i = 0; i < 4; ++i) step("abcde");
    step("abce");
    for (int i = 0; i < 40; ++i) step("abcde");
    CHECK(gate.planned());
  }

  TEST_CASE("where steps begin with a tensor that came in the second one, others are held for it twice") {
    Net net("all", "bcd");
    net.gate = Gate(MergePlan("all"), milliseconds(100));
    net.reduce("bcd");
    Response a;
    a.names = {"a"};
    a.sizes = {250};
    net.cache.put(a);
    for (int i = 0; i < 20; ++i) net.reduce("abcd");
    now = {};
    for (int step = 0; step < 5; ++step) {
      CHECK(net.pass("a") == "a");
      net.reduce("a");
      CHECK(net.pass("bc") == "");
      if (step < 2) {
        CHECK(net.pass("bcd") == "");
        now += milliseconds(101);
      }
      CHECK(net.pass("bcd") == "bcd");
      net.reduce("bcd");
    }
    CHECK(net.count(Release::deadline) == 2);
  }

  TEST_CASE("names that never come again are forgotten, and the plan stays") {
    Net net("y=2");
    for (int step = 0; step < 5000; ++step) {
      if (step % 2) net.gate.reduced("sum." + std::to_string(step), 1000);
      net.reduce("abcd");
      if (net.gate.remembered() > 1100) FAIL_CHECK(step);
      if (net.gate.groups() != std::vector<std::size_t>{2, 2}) FAIL_CHECK(step);
    }
    CHECK(net.pass("abcd") == "ab");
    net.reduce("ab");
    CHECK(net.pass("cd") == "cd");
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

  TEST_CASE("behind a step without one of its tensors the groups come in the plan's order") {
    Net net("cuts=2");
    net.reduce("abc");  // without d
    CHECK(net.pass("abcd") == "cd");
    net.reduce("cd");
    CHECK(net.pass("ab") == "ab");
    net.reduce("ab");
    for (int step = 0; step < 3; ++step) {
      CHECK(net.pass("abcd") == "ab");
      net.reduce("ab");
      CHECK(net.pass("cd") == "cd");
      net.reduce("cd");
    }
  }

  TEST_CASE("a tensor that has left the plan and comes at some time ends no step") {
    Net net("all", "abckd");
    now = {};
    for (int step = 0; step < 2; ++step) {  // k keeps the others waiting, twice
      CHECK(net.pass("abcd") == "");
      now += milliseconds(101);
      CHECK(net.pass("abcd") == "abcd");
      net.reduce("abcdk");
    }
    CHECK(net.pass("abcd") == "abcd");
    net.reduce("abc");
    net.reduce("k");  // before d
    net.reduce("d");
    for (int step = 0; step < 3; ++step) {
      CHECK(net.pass("abc") == "");
      CHECK(net.pass("abcd") == "abcd");
      net.reduce("abcdk");
    }
    CHECK(net.count(Release::deadline) == 2);
  }

  TEST_CASE("what is reduced several times a step does not keep gradients from being planned") {
    for (const std::uint64_t bytes : {8, 256}) {  // a loss; the sums of batch norms, which all have one name
      Gate gate(MergePlan("all"), milliseconds(100));
      for (int step = 0; step < 6; ++step) {
        gate.reduced("u", 1000);
        gate.reduced("often", bytes);
        gate.reduced("v", 1000);
        gate.reduced("often", bytes);
      }
      CAPTURE(bytes);
      CHECK(gate.groups() == std::vector<std::size_t>{2});
    }
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

  TEST_CASE("Horovod's groups stay whole") {
    // w_0of2 and w_1of2 are one group; what lies between them joins it.
    for (const auto& [plan, expected] : {std::pair<const char*, std::vector<std::size_t>>{"y=2", {4}},
                                         {"cuts=1", {4}},
                                         {"cuts=3", {3, 1}},
                                         {"bytes=1", {3, 1}},
                                         {"cuts=2,3", {3, 1}}}) {
      const std::string of = plan;  // clang 14 takes no binding into a lambda
      CAPTURE(of);
      Gate gate{MergePlan(plan), milliseconds(100)};
      for (int step = 0; step < 5; ++step)
        for (const char* t : {"w_0of2", "a", "w_1of2", "b"}) gate.reduced(t, 1000);
      CHECK(gate.groups() == expected);
    }
  }

  TEST_CASE("of Horovod's groups all tensors are in the plan, or none") {
    struct Case {
      std::vector<std::pair<const char*, std::uint64_t>> tensors;  // beside a and b, in every step
      std::vector<std::size_t> groups;
    };
    for (const Case& c : {Case{{{"w_0of2", 1000}, {"w_1of2", 8}}, {4}},  // a bias of two numbers
                          Case{{{"w_0of3", 4}, {"w_1of3", 1000}, {"w_2of3", 2}}, {5}},
                          Case{{{"w_0of3", 1000}, {"w_1of3", 1000}}, {2}},  // the third one is no sum
                          Case{{{"w_0of2", 4}, {"w_1of2", 4}}, {2}},        // metrics
                          Case{{{"w_0of2", 1000}, {"w_1of2", 1000}, {"w_0of3", 1000}}, {4}}}) {
      Gate gate(MergePlan("all"), milliseconds(100));
      for (int step = 0; step < 5; ++step) {
        for (const char* t : {"a", "b"}) gate.reduced(t, 1000);
        for (const auto& [name, bytes] : c.tensors) gate.reduced(name, bytes);
      }
      CAPTURE(c.tensors.size());
      CHECK(gate.groups() == c.groups);
    }
    Gate gate(MergePlan("all"), milliseconds(100));
    for (int step = 0; step < 9; ++step) {  // one member now and then
      gate.reduced("a", 1000), gate.reduced("w_0of2", 1000);
      if (step % 4 == 0) gate.reduced("w_1of2", 1000);
    }
    CHECK(gate.groups() == std::vector<std::size_t>{1});
  }

  // Horovod takes all of a group that it keeps apart as soon as one of it is ready on all ranks.
  TEST_CASE("of Horovod's groups all tensors are held, or none where one cannot be") {
    ResponseCache cache{1024};
    Gate gate(MergePlan("all"), milliseconds(50));
    const std::vector<std::string> names{"a", "w_0of2", "w_1of2", "b"};
    const auto put = [&](const std::string& name) {
      Response r;
      r.names = {name};
      r.sizes = {250};
      cache.put(r);
    };
    const auto step = [&](const std::vector<std::string>& of) {
      for (const auto& name : of) gate.reduced(name, 1000);
    };
    const auto pass = [&](const std::vector<std::string>& ready) {
      std::vector<std::int64_t> words{7};
      for (const auto& name : ready) words[0] |= std::int64_t{8} << cache.bit(name);
      gate.hold(words, cache, clock_in_hand);
      std::vector<std::string> left;
      for (const auto& name : ready)
        if (words[0] & std::int64_t{8} << cache.bit(name)) left.push_back(name);
      return left;
    };
    const std::vector<std::string> none, first{"w_0of2"}, both{"w_0of2", "w_1of2"};
    for (const auto& name : names) put(name);
    for (int i = 0; i < 5; ++i) step(names);
    REQUIRE(gate.groups() == std::vector<std::size_t>{4});
    now = {};
    CHECK(pass(both) == none);
    for (int i = 0; i < 2; ++i) {  // one of it has another shape, and goes to the coordinator
      cache.erase(cache.bit("w_1of2"));
      cache.deal_bits_again();
      CHECK(pass(first) == first);
      CHECK(pass({"a", "w_0of2", "b"}) == first);
      now += milliseconds(51);
      CHECK(pass({"a", "w_0of2", "b"}).size() == 3);
      put("w_1of2");
      step(names);
    }
    // Two steps were held for w_1of2, which has left the plan.
    CHECK(pass(both) == both);
    CHECK(pass({"a", "w_0of2", "w_1of2"}) == both);
    CHECK(pass({"a", "b", "w_0of2", "w_1of2"}).size() == 4);
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

  TEST_CASE("calls count as merged behind an AND only, without which nothing was held") {
    const auto list = response_list({{"a", 256}, {"b", 256}});
    const std::vector<std::int64_t> uncached{5};
    for (const std::size_t capacity : {0, 1024}) {
      horovod::Options options;
      options.cache_capacity = capacity;
      Negotiation n(2, options, MergePlan("all"), milliseconds(100));
      for (int step = 0; step < 10; ++step) {
        if (capacity) n.ready_bits(uncached);
        n.gathered();
        n.broadcast(list.data(), list.size());
        CHECK(n.data_call(512, Dtype::f32)->known());
      }
      CHECK(n.record().explained == 10);
      CHECK(n.record().groups == std::vector<std::size_t>{2});
      CHECK((n.record().merged_calls > 0) == (capacity > 0));
      CHECK((n.record().merged_tensors > 0) == (capacity > 0));
    }
  }

  // Rank 0's plans reach all ranks before the same AND, whatever clocks say; every call stays explained.
  TEST_CASE("a searched plan changes on all ranks at once") {
    HorovodRun run;
    run.ranks = 3;
    std::vector<std::uint8_t> message;
    std::vector<std::vector<std::uint8_t>> heard(3);  // by each rank, one after another
    std::vector<SearchRecord> chosen;
    std::vector<Negotiation> ranks;
    for (int r = 0; r < run.ranks; ++r) {
      Leader leader;
      leader.here = r == 0;
      leader.broadcast = [&, r](std::span<std::uint8_t> bytes) {
        if (r == 0) message.assign(bytes.begin(), bytes.end());
        REQUIRE(bytes.size() == message.size());
        std::copy(message.begin(), message.end(), bytes.begin());
        auto& of = heard[static_cast<std::size_t>(r)];
        of.insert(of.end(), bytes.begin(), bytes.end());
      };
      leader.chosen = [&](const SearchRecord& record) { chosen.push_back(record); };
      ranks.emplace_back(run.ranks, horovod::Options{}, MergePlan("auto"), milliseconds(60000), nullptr, leader);
    }
    std::size_t seen = 0;
    const auto feed = [&](const std::vector<HorovodEvent>& events) {
      for (; seen < events.size(); ++seen) {
        const HorovodEvent& e = events[seen];
        for (Negotiation& n : ranks) switch (e.kind) {
            case HorovodEvent::ready_bits: n.ready_bits(e.words); break;
            case HorovodEvent::invalid_bits: n.invalid_bits(e.words); break;
            case HorovodEvent::gathered: n.gathered(); break;
            case HorovodEvent::broadcast: n.broadcast(e.bytes.data(), e.bytes.size()); break;
            case HorovodEvent::data:
              CHECK(n.data_call(e.count, e.type)->known());
              n.called(4 * e.count, 1e-9 * static_cast<double>(e.count));
          }
      }
    };
    run.gate = [&](std::size_t rank, std::span<std::int64_t> words, const std::vector<HorovodEvent>& events) {
      feed(events);
      ranks[rank].hold(words);
    };
    HorovodSimulator horovod(run);
    for (int step = 0; step < 600; ++step) {
      feed(horovod.step());
      seen = 0;
    }
    CHECK(heard[1] == heard[0]);
    CHECK(heard[2] == heard[0]);
    REQUIRE(chosen.size() >= 1);
    CHECK(chosen[0].settled);
    CHECK(chosen[0].tried.size() >= 3);
    CHECK(chosen[0].tried[0].steps >= 3);
    CHECK_FALSE(ranks[1].record().search);
    REQUIRE(ranks[0].record().search);
    CHECK(ranks[0].record().releases[static_cast<std::size_t>(Release::deadline)] == 0);
    CHECK(ranks[0].record().unexplained_calls() == 0);
  }

  TEST_CASE("other tensors, now and then, do not begin the search anew") {
    std::vector<std::vector<std::uint8_t>> messages;
    Leader leader;
    leader.here = true;
    leader.broadcast = [&](std::span<std::uint8_t> bytes) { messages.emplace_back(bytes.begin(), bytes.end()); };
    Net net("auto", "abcd", 100, leader);
    CHECK(net.pass("ab") == "ab");  // no plan yet
    REQUIRE(messages.size() == 1);
    CHECK(messages[0].size() == 2 + 4 + 4 * 4);  // with the order of the tensors
    CHECK(messages[0][0] == 0);
    for (int step = 0; step < 4; ++step) {
      CHECK(messages.size() == 1);
      net.reduce("abcd");
      net.pass("");
    }
    REQUIRE(messages.size() == 2);
    CHECK(messages[1][0] == 1);  // all in one
    CHECK(net.pass("ab") == "");
    CHECK(net.pass("abcd") == "abcd");
    CHECK(net.gate.groups() == std::vector<std::size_t>{4});
    Response e;
    e.names = {"e"};
    e.sizes = {250};
    net.cache.put(e);
    net.gate.reduced("e", 1000);
    CHECK(net.pass("ae") == "e");
    CHECK(net.gate.groups() == std::vector<std::size_t>{4});
    CHECK(messages.size() == 2);
    for (int step = 0; step < 4; ++step) {
      if (step == 1) {  // in the middle of a step
        net.reduce("ab");
        net.gate.reduced("f", 1000);
        net.reduce("cd");
      } else {
        net.reduce("abcd");
      }
      net.pass("");
    }
    CHECK(messages.size() == 3);
    CHECK(messages[2].size() == 2 + 4);
    CHECK(messages[2][0] == 1);  // two groups
    CHECK(net.gate.groups() == std::vector<std::size_t>{2, 2});
  }

  TEST_CASE("a searched plan that is told behind a new tensor does not keep it from being planned") {
    Leader leader;
    leader.here = true;
    int messages = 0;
    leader.broadcast = [&](std::span<std::uint8_t>) { ++messages; };
    Net net("auto", "ab", 100, leader);
    const auto step = [&] {
      net.reduce("ab");
      for (const char* t : {"c", "d", "e"}) net.gate.reduced(t, 100000);
      net.pass("");
    };
    step();  // the first plan is told now
    CHECK(messages == 1);
    CHECK(net.gate.groups().empty());
    for (int i = 0; i < 20; ++i) step();
    REQUIRE(net.gate.search());
    CHECK(net.gate.search()->tensors == 3);
    CHECK(messages > 2);
  }

  TEST_CASE("a step that was cut short counts, and what is reduced of the next is not waited for") {
    Leader leader;
    leader.here = true;
    int messages = 0;
    leader.broadcast = [&](std::span<std::uint8_t>) { ++messages; };
    Net net("auto", "abcd", 100, leader);
    net.pass("");
    for (int step = 0; step < 3; ++step) net.reduce("abcd"), net.pass("");
    CHECK(messages == 1);
    net.reduce("aba");           // c and d were left out: the next step has begun, with a
    CHECK(net.pass("b") == "");  // all in one from here
    CHECK(messages == 2);
    CHECK(net.pass("bcd") == "bcd");
  }

  TEST_CASE("a plan of CRIMP_PLAN_FILE holds from the first planned step on, in the file's order on all ranks") {
    Saved saved;
    REQUIRE(saved.file->save(Saved::plan("dacb", {1, 3})) == "");
    Net first("auto", "abcd", 100, saved.first()), second("auto", "abcd", 100, saved.second());
    for (Net* net : {&first, &second}) {
      CHECK(net->pass("abc") == "");  // they wait for d
      CHECK(net->gate.groups() == std::vector<std::size_t>{1, 2, 1});
      CHECK(net->pass("abcd") == "d");
      net->reduce("d");
      CHECK(net->pass("ab") == "");
      CHECK(net->pass("abc") == "ac");
      net->reduce("ac");
      CHECK(net->pass("b") == "b");
      net->reduce("b");
    }
    CHECK(saved.messages.size() == 1);
    REQUIRE(saved.chosen.size() == 1);
    CHECK(saved.chosen[0].find("4 tensors in 3 groups (cuts=1,3), the plan of an earlier run, by CRIMP_PLAN_FILE") !=
          std::string::npos);
    const SearchRecord record = first.gate.search().value();
    CHECK(record.settled);
    CHECK(record.searches == 0);
    CHECK(record.steps == 0);
    CHECK(record.tried.empty());
    CHECK(record.chosen.origin == "CRIMP_PLAN_FILE");
    CHECK(record.chosen.plan.groups.cuts == Cuts{1, 3});
    CHECK_FALSE(second.gate.search());
    CHECK(saved.warnings.empty());
  }

  TEST_CASE("all ranks give a group's tensors the codec of the plan") {
    Saved saved;
    SavedPlan plan = Saved::plan("dacb", {1, 3});
    plan.plan.groups.codecs = {2, 0, 1};
    REQUIRE(saved.file->save(plan) == "");
    Leader leader = saved.first();
    leader.codecs = 3;
    Net first("auto", "abcd", 100, leader), second("auto", "abcd", 100, saved.second());
    for (Net* net : {&first, &second}) {
      for (const char* tensor : {"a", "b", "c", "d", "e"}) CHECK(net->gate.codec(tensor) == 0);  // nothing is planned
      net->pass("");
      CHECK(net->gate.codec("d") == 2);
      CHECK(net->gate.codec("a") == 0);
      CHECK(net->gate.codec("c") == 0);
      CHECK(net->gate.codec("b") == 1);
      CHECK(net->gate.codec("e") == 0);
    }
    CHECK(first.gate.search().value().chosen.plan == plan.plan);
    CHECK(first.gate.turns().at(0).turns.at(0).plan == plan.plan);  // as it was told
    CHECK(saved.chosen.at(0).find("(cuts=1,3), which have codec 3,1,2 of those") != std::string::npos);
  }

  TEST_CASE("a tensor that comes once keeps the file's plan and order") {
    Saved saved;
    REQUIRE(saved.file->save(Saved::plan("dacb", {1, 3})) == "");
    Net first("auto", "abcd", 100, saved.first()), second("auto", "abcd", 100, saved.second());
    for (Net* net : {&first, &second}) {
      net->pass("");
      net->reduce("da");
      net->gate.reduced("e", 1000);
      net->reduce("cb");
      net->pass("");
      CHECK(net->gate.groups() == std::vector<std::size_t>{1, 2, 1});
      CHECK(net->pass("abcd") == "d");
    }
    CHECK(saved.messages.size() == 1);
  }

  TEST_CASE("a step is cut short before the file's order is heard") {
    Saved saved;
    REQUIRE(saved.file->save(Saved::plan("dacb", {1, 3})) == "");
    Net first("auto", "abcd", 100, saved.first()), second("auto", "abcd", 100, saved.second());
    for (Net* net : {&first, &second}) {
      net->reduce("abcda");  // a whole step, and a of the next
      CHECK(net->pass("bc") == "");
      CHECK(net->pass("bcd") == "d");
      net->reduce("d");
      CHECK(net->pass("bc") == "c");  // its group was a, too
    }
  }

  TEST_CASE("without a plan in the file it is searched and saved, and the next run has it") {
    Saved saved;
    now = {};
    const auto run = [&](const std::string& tensors) {
      Net first("auto", tensors, 100, saved.first()), second("auto", tensors, 100, saved.second());
      for (Net* net : {&first, &second}) net->pass("");
      steps(first, second, 400, milliseconds(10), tensors);
      CHECK(first.gate.groups() == second.gate.groups());
      return first.gate.search().value();
    };
    const SearchRecord found = run("abcd");
    CHECK(found.settled);
    CHECK(found.searches == 1);
    const std::string text = saved.text();
    CHECK(text.find("\"step_ms\":10.0") != std::string::npos);
    const SearchRecord again = run("bacd");
    CHECK(again.searches == 0);
    CHECK(again.chosen.plan == found.chosen.plan);
    CHECK(saved.text() == text);
    CHECK(run("abce").searches == 1);  // another model
    CHECK(run("abcd").searches == 0);
    CHECK(saved.warnings.empty());
  }

  TEST_CASE("the steps of the plan's first window are what is saved in the end") {
    Saved saved;
    now = {};
    Net first("auto", "abcd", 100, saved.first()), second("auto", "abcd", 100, saved.second());
    for (Net* net : {&first, &second}) net->pass("");
    for (int step = 0; step < 300 && !first.gate.search().value().settled; ++step)
      steps(first, second, 1, milliseconds(10), "abcd");
    CHECK(saved.text().find("\"step_ms\":10.0,") != std::string::npos);
    steps(first, second, 60, milliseconds(11), "abcd");
    CHECK(saved.text().find("\"step_ms\":11.0,") != std::string::npos);
    CHECK(first.gate.search().value().searches == 1);
  }

  TEST_CASE("while a plan is held against none the search is not over, and its line says what decided") {
    Saved saved;
    now = {};
    Net first("auto", "abcd", 100, saved.first()), second("auto", "abcd", 100, saved.second());
    for (Net* net : {&first, &second}) net->pass("");
    const auto search = [&] { return first.gate.search().value(); };
    const auto until = [&](bool settled, milliseconds with_plan, milliseconds without) {
      for (int step = 0; step < 300 && search().settled != settled; ++step)
        steps(first, second, 1, search().chosen.plan.holds ? with_plan : without, "abcd");
      CHECK(search().settled == settled);
    };
    until(true, milliseconds(10), milliseconds(20));
    CHECK(search().chosen.plan.holds);
    CHECK(saved.chosen.size() == 1);
    until(false, milliseconds(30), milliseconds(20));
    CHECK(search().searches == 1);
    CHECK(saved.chosen.size() == 1);
    until(true, milliseconds(30), milliseconds(21));
    CHECK_FALSE(search().chosen.plan.holds);
    REQUIRE(saved.chosen.size() == 2);
    CHECK(saved.chosen[1] == search().line());
    CHECK(saved.chosen[1].find("; a step takes 30.00 ms under the best plan, without a plan 21.00,") !=
          std::string::npos);
  }

  TEST_CASE("a plan of the file whose steps take otherwise is searched again, and replaced in the file") {
    Saved saved;
    now = {};
    REQUIRE(saved.file->save(Saved::plan("dacb", {1, 3}, 5e-3)) == "");
    Net first("auto", "abcd", 100, saved.first()), second("auto", "abcd", 100, saved.second());
    for (Net* net : {&first, &second}) net->pass("");
    steps(first, second, 102, milliseconds(10), "abcd");
    CHECK_FALSE(first.gate.search().value().settled);
    steps(first, second, 300, milliseconds(10), "abcd");
    const SearchRecord record = first.gate.search().value();
    CHECK(record.settled);
    CHECK(record.searches == 1);
    CHECK(std::any_of(record.tried.begin(), record.tried.end(), [](const auto& t) {
      return t.plan.groups.cuts == Cuts{1, 3} && t.origin == "the plan until now";
    }));
    std::string problem;
    const auto now_saved = saved.file->find(Saved::plan("abcd", {}), problem);
    REQUIRE(now_saved);
    CHECK(now_saved->step_s == doctest::Approx(10e-3));
    CHECK(now_saved->plan == MergeTrials::Plan{});  // nothing gained on no plan
    CHECK(now_saved->tensors.front().name == "d");  // the order that cuts count in
    CHECK(first.gate.groups() == second.gate.groups());
  }

  TEST_CASE("a job that repeats another one has its plans, step by step, in its order") {
    Saved was;
    now = {};
    const auto job = [](Saved& of, const std::string& tensors, const std::vector<PlanTurns>* recorded,
                        milliseconds each) {
      Leader leader = of.first();
      leader.file = nullptr;
      if (recorded) leader.recorded = std::make_shared<RecordedPlans>(*recorded);
      Net first("auto", tensors, 100, leader), second("auto", tensors, 100, of.second());
      std::vector<std::vector<std::size_t>> groups;
      std::string order;
      for (int step = 0; step < 300; ++step) {
        now += each + milliseconds(step % 7);
        for (Net* net : {&first, &second}) net->pass("");
        CHECK(first.gate.groups() == second.gate.groups());
        groups.push_back(first.gate.groups());
        for (Net* net : {&first, &second}) net->reduce(tensors);
      }
      CHECK_FALSE(second.gate.turns().size() > 0);
      return std::pair(groups, first.gate.turns());
    };
    const auto [groups, turns] = job(was, "abcd", nullptr, milliseconds(10));
    REQUIRE(turns.size() == 1);
    CHECK(turns[0].tensors == std::vector<std::string>{"a", "b", "c", "d"});
    CHECK(turns[0].turns.size() > 3);
    // Other times, and tensors that come in another order at first.
    Saved is;
    const auto [again, repeated] = job(is, "dbca", &turns, milliseconds(90));
    CHECK(again == groups);
    CHECK(repeated == turns);
    CHECK(is.chosen.empty());
    CHECK(is.warnings.empty());
    // Of other tensors nothing is recorded.
    Saved other;
    const auto [searched, of_others] = job(other, "abce", &turns, milliseconds(10));
    CHECK(other.warnings.size() == 1);
    CHECK(other.chosen.size() >= 1);
  }

  TEST_CASE("who searches a second time for the same tensors repeats what was recorded second") {
    const PlanTurns one{{"a", "b"}, {{{true, {{1}, {}}}, 8}}, false}, two{{"a", "b"}, {{{true, {}}, 8}}, false};
    const std::vector<PlanTurns> recorded{one, two};
    const auto plans = std::make_shared<RecordedPlans>(recorded);
    for (const std::size_t groups : {2u, 1u}) {  // as behind a second hvd.init()
      Saved saved;
      Leader leader = saved.first();
      leader.file = nullptr;
      leader.recorded = plans;
      Net net("auto", "ab", 100, leader);
      net.pass("");
      CHECK(net.gate.groups().size() == groups);
      CHECK(saved.warnings.empty());
    }
  }

  TEST_CASE("behind the end of what is repeated the last plan stays") {
    PlanTurns turns{{"a", "b", "c", "d"}, {{{true, {{2}, {}}}, 4}, {{true, {}}, 8}}, false};
    const std::vector<PlanTurns> recorded{turns};
    Saved saved;
    Leader leader = saved.first();
    leader.file = nullptr;
    leader.recorded = std::make_shared<RecordedPlans>(recorded);
    Net first("auto", "abcd", 100, leader), second("auto", "abcd", 100, saved.second());
    std::vector<std::size_t> sizes;
    for (int step = 0; step < 100; ++step) {
      for (Net* net : {&first, &second}) net->pass("");
      sizes.push_back(first.gate.groups().size());
      for (Net* net : {&first, &second}) net->reduce("abcd");
    }
    for (int step = 0; step < 100; ++step) CHECK(sizes[static_cast<std::size_t>(step)] == (step < 4 ? 2 : 1));
    CHECK(saved.warnings.empty());
  }

  TEST_CASE("a file that is no file of plans is left alone, one that parts Horovod's groups is replaced") {
    Saved saved;
    now = {};
    std::ofstream(saved.path()) << "mine";
    {
      Net first("auto", "abcd", 100, saved.first()), second("auto", "abcd", 100, saved.second());
      for (Net* net : {&first, &second}) net->pass("");
      steps(first, second, 300, milliseconds(10), "abcd");
      CHECK(first.gate.search().value().searches == 1);
    }
    CHECK(saved.warnings.size() >= 1);
    CHECK(saved.text() == "mine");
    std::filesystem::remove(saved.path());
    saved.warnings.clear();
    SavedPlan parts = Saved::plan("ab", {1});
    parts.tensors[0].name = "g_0of2", parts.tensors[1].name = "g_1of2";
    REQUIRE(saved.file->save(parts) == "");
    Gate gate(MergePlan("auto"), milliseconds(100), saved.first());
    for (int step = 0; step < 5; ++step)
      for (const char* name : {"g_0of2", "g_1of2"}) gate.reduced(name, 1000);
    REQUIRE(saved.warnings.size() == 1);
    CHECK(saved.warnings[0].find("parts tensors of one hvd.grouped_allreduce") != std::string::npos);
    CHECK(gate.search().value().searches == 1);
  }
}
