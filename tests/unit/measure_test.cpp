// What measure.cpp says of nodes: one model for all ranks, the slowest's, or none for any.
#include "collective/measure.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "collective/wire.hpp"
#include "core/error.hpp"
#include "support/thread_node.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("measure") {
  namespace {

  constexpr auto kSlow = std::chrono::milliseconds(1);

  // A node whose ranks meet late.
  class SlowNode final : public Node {
   public:
    explicit SlowNode(Node& node) : node_(node) {}
    int rank() const override { return node_.rank(); }
    int size() const override { return node_.size(); }
    std::span<Note> notes() override { return node_.notes(); }
    std::span<float> memory() override { return node_.memory(); }

   private:
    void meet() override {
      std::this_thread::sleep_for(kSlow);
      node_.barrier();
    }
    Node& node_;
  };

  // Leaders whose first exchange fails, on all of them alike.
  class FailingLeaders final : public Transport {
   public:
    explicit FailingLeaders(ErrorCode code, int size) : code_(code), size_(size) {}
    int rank() const override { return 0; }
    int size() const override { return size_; }
    Ticket start_allgather(const void*, void*, std::uint64_t) override { throw Error(code_, "planted"); }
    Ticket start_allgatherv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>,
                            void*) override {
      throw Error(code_, "planted");
    }
    Ticket start_alltoallv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>, void*,
                           std::span<const std::uint64_t>, std::span<const std::uint64_t>) override {
      throw Error(code_, "planted");
    }
    Ticket start_sum(const void*, void*, std::uint64_t, Integer) override { throw Error(code_, "planted"); }
    void wait(Ticket) override {}
    bool done(Ticket) override { return true; }
    void progress() noexcept override {}

   private:
    ErrorCode code_;
    int size_;
  };

  // The numbers of a model, bit for bit.
  std::vector<double> numbers_of(const HierarchyModel& m) {
    std::vector<double> all{static_cast<double>(m.leaders.ranks), static_cast<double>(m.node.ranks), m.node.byte_s,
                            m.node.barrier_s};
    for (const Curve* curve : {&m.leaders.allgather, &m.leaders.alltoall, &m.leaders.plain, &m.leaders.step})
      for (const auto& point : curve->points()) all.push_back(point.bytes), all.push_back(point.s);
    return all;
  }

  }  // namespace

  TEST_CASE(
      "all ranks, leaders or not, learn one model of their nodes: the largest one's size and the slowest ones' times") {
    const std::vector<int> nodes{1, 3, 2};
    std::vector<std::optional<HierarchyModel>> models(6);
    RunOptions slow_link;
    slow_link.tamper = [](int receiver, int, int from, std::span<std::uint8_t>) {
      if (receiver == 1 && from == 0) std::this_thread::sleep_for(kSlow);
    };
    run_hierarchy(
        nodes,
        [&](ThreadTransport& all, Hierarchy hierarchy) {
          SlowNode slow(*hierarchy.node);
          if (hierarchy.node->size() == 2) hierarchy.node = &slow;
          models[static_cast<std::size_t>(all.rank())] = measure_hierarchy(all, hierarchy);
        },
        slow_link);
    const double least = std::chrono::duration<double>(kSlow).count();
    for (const auto& model : models) {
      REQUIRE(model.has_value());
      CHECK(numbers_of(*model) == numbers_of(*models[0]));
      CHECK(model->leaders.ranks == 3);
      CHECK(model->node.ranks == 3);
      CHECK(model->node.barrier_s >= least);
      CHECK(model->node.byte_s >= 0);
      CHECK(std::isfinite(model->node.byte_s));
      CHECK(model->leaders.plain.empty());  // MPI adds over all ranks, never over leaders alone
      for (const Curve* curve : {&model->leaders.allgather, &model->leaders.alltoall}) {
        REQUIRE(curve->points().size() >= 2);
        CHECK(curve->points()[0].s >= least);
        for (std::size_t i = 1; i < curve->points().size(); ++i)
          CHECK(curve->points()[i].bytes > curve->points()[i - 1].bytes);
      }
    }
  }

  TEST_CASE("a step of relays is measured where there are ranks enough for them") {
    for (const int n : {7, 8}) {
      std::vector<NetworkModel> models(static_cast<std::size_t>(n));
      run_ranks(n, [&](ThreadTransport& t) { models[static_cast<std::size_t>(t.rank())] = measure_network(t, {}); });
      for (const auto& model : models) {
        CHECK(model.step.empty() == (n < 8));
        REQUIRE(model.step.points().size() == models[0].step.points().size());
        for (std::size_t i = 0; i < model.step.points().size(); ++i) {
          CHECK(model.step.points()[i].s == models[0].step.points()[i].s);
          CHECK(model.step.points()[i].bytes == models[0].step.points()[i].bytes);
        }
        if (n >= 8) CHECK(model.step.points()[0].bytes == 64);  // of one message
      }
    }
  }

  TEST_CASE("who agrees while another rank is in another call has an error, and that rank as well") {
    for (const bool differ : {true, false}) {
      CAPTURE(differ);
      std::atomic<int> refused{0};
      double agreed[3] = {};
      run_ranks(3, [&](ThreadTransport& t) {
        if (differ && t.rank() == 1) {
          const Header mine;
          Header all[3];
          t.wait(t.start_allgather(&mine, all, sizeof mine));
          for (const int r : {0, 2}) CHECK_FALSE(disagreement(mine, all[r]).empty());
          return;
        }
        // The first ends in a bit that is set, as a header's magic does.
        double values[2] = {std::nextafter(1.0 + t.rank(), 9.0), 1.0 / 3};
        try {
          agree_on_largest(t, values);
          CHECK(values[1] == 1.0 / 3);
          agreed[t.rank()] = values[0];
        } catch (const Error& e) {
          refused += e.code() == ErrorCode::call_differs;
        }
      });
      CHECK(refused == (differ ? 2 : 0));
      for (const double value : agreed) CHECK(value == (differ ? 0.0 : agreed[0]));
    }
  }

  // An exchange of so many ranks without any of them.
  class ManyRanks final : public Transport {
   public:
    ManyRanks(int size, std::chrono::milliseconds takes) : size_(size), takes_(takes) {}
    int rank() const override { return 0; }
    int size() const override { return size_; }
    Ticket start_allgather(const void* mine, void* all, std::uint64_t bytes) override {
      for (int r = 0; r < size_; ++r)
        std::memcpy(static_cast<char*>(all) + static_cast<std::size_t>(r) * bytes, mine, bytes);
      return 0;
    }
    Ticket start_allgatherv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>,
                            void*) override {
      return 0;
    }
    Ticket start_alltoallv(const void*, std::span<const std::uint64_t>, std::span<const std::uint64_t>, void*,
                           std::span<const std::uint64_t>, std::span<const std::uint64_t>) override {
      std::this_thread::sleep_for(takes_);
      return 0;
    }
    Ticket start_sum(const void*, void*, std::uint64_t, Integer) override { return 0; }
    void wait(Ticket) override {}
    bool done(Ticket) override { return true; }
    void progress() noexcept override {}

   private:
    int size_;
    std::chrono::milliseconds takes_;
  };

  TEST_CASE("among many ranks curves rise, though their shortest exchanges are of one size, and have a slope") {
    for (const auto takes : {std::chrono::milliseconds(0), std::chrono::milliseconds(21)})
      for (const int ranks : {256, 257, 1100}) {
        CAPTURE(takes.count());
        CAPTURE(ranks);
        ManyRanks many(ranks, takes);
        const NetworkModel model = measure_network(many, [](float*, std::uint64_t) {});
        for (const Curve* curve : {&model.allgather, &model.alltoall, &model.plain, &model.step}) {
          const auto& points = curve->points();
          REQUIRE(points.size() >= 2);
          for (std::size_t i = 1; i < points.size(); ++i) CHECK(points[i].bytes > points[i - 1].bytes);
          CHECK(std::isfinite(curve->at(1e9)));
        }
      }
  }

  TEST_CASE("where the leaders lack memory no rank has a model") {
    std::vector<int> without(5);
    run_hierarchy({2, 3}, [&](ThreadTransport& all, Hierarchy hierarchy) {
      FailingLeaders failing(ErrorCode::out_of_memory, hierarchy.nodes);
      if (hierarchy.leaders) hierarchy.leaders = &failing;
      without[static_cast<std::size_t>(all.rank())] = !measure_hierarchy(all, hierarchy).has_value();
    });
    CHECK(without == std::vector<int>(5, 1));
  }

  TEST_CASE("an exchange of the leaders that fails is an error, not a lack of memory") {
    const auto failing = [](ThreadTransport& all, Hierarchy hierarchy) {
      FailingLeaders leaders(ErrorCode::transport_failed, hierarchy.nodes);
      if (hierarchy.leaders) hierarchy.leaders = &leaders;
      measure_hierarchy(all, hierarchy);
    };
    CHECK_THROWS_WITH_AS(run_hierarchy({2, 1}, failing), "planted", Error);
  }
}
