// Cost model and chooser: curves, theory, choices equal on all ranks, forced algorithms.
#include "collective/chooser.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include "backend/host_backend.hpp"
#include "core/settings.hpp"
#include "memory/workers.hpp"
#include "support/data.hpp"
#include "support/thread_transport.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("chooser") {
  namespace {

  // 3LC as measured on one core: encode 3 GB/s, decode 10 GB/s, 1.6 bits a value.
  constexpr int kEarly = static_cast<int>(Chooser::kEarly);
  constexpr CodecCost k3lc{.encode_s = 1.3e-9, .decode_s = 0.4e-9, .payload_bytes = 0.2};

  Choice choice(int ranks, double gigabits, std::uint64_t bytes, const char* codec = "3lc") {
    const auto made = make_codec(codec);
    return cheapest(candidates(NetworkModel::of(ranks, 30e-6, gigabits * 0.125e9, 4e9), nullptr, k3lc,
                               {made.get(), bytes / 4, 655360, bytes}));
  }

  }  // namespace

  TEST_CASE("a curve is linear between its points and goes on with its last slope") {
    Curve c;
    CHECK(c.at(5) == 0);
    c.add(100, 1);
    CHECK(c.at(5) == 1);
    CHECK(c.at(500) == 1);
    c.add(200, 2);
    c.add(400, 8);
    CHECK(c.at(50) == 1);
    CHECK(c.at(150) == doctest::Approx(1.5));
    CHECK(c.at(300) == doctest::Approx(5));
    CHECK(c.at(500) == doctest::Approx(11));
    c.add(800, 7);  // noise: more bytes never cost less
    CHECK(c.at(1000) == doctest::Approx(8));
  }

  // 64 ranks, 64 MiB at 10 Gbit/s: 63 messages of 30 us an exchange are 1.9 ms, two exchanges a chunk, and 26 chunks of
  // 655360 elements have 98 ms of them; the bytes of all are 5 ms.
  TEST_CASE("chunks grow where messages cost more than what they carry") {
    const auto predicted = [](const char* codec, int ranks, std::uint64_t setting) {
      const auto made = make_codec(codec);
      const ChoiceQuery query{made.get(), 16 << 20, setting, 64 << 20, 3, 1};
      return entry_of(Algorithm::two_shot).predicted(NetworkModel::of(ranks, 30e-6, 1.25e9, 4e9), k3lc, query);
    };
    const auto open = predicted("3lc", 64, 0), fixed = predicted("3lc", 64, kDefaultChunk);
    CHECK(fixed.s > 98e-3);
    CHECK(fixed.chunk_setting == kDefaultChunk);
    CHECK(open.chunk_setting > kDefaultChunk);
    CHECK(open.s < 0.6 * fixed.s);
    CHECK(predicted("3lc", 64, open.chunk_setting).s == open.s);
    // Nothing is won where few messages are sent, nor may a selection be another one.
    CHECK(predicted("3lc", 2, 0).chunk_setting == kDefaultChunk);
    CHECK(predicted("topk", 64, 0).chunk_setting == kDefaultChunk);
    CHECK(predicted("3lc:scale=tensor", 64, 0).chunk_setting == kDefaultChunk);
    const auto codec = make_codec("3lc");
    const Choice chosen = cheapest(candidates(NetworkModel::of(64, 30e-6, 1.25e9, 4e9), nullptr, k3lc,
                                              {codec.get(), 16 << 20, 0, 64 << 20, 3, 1}));
    CHECK(chosen.carriage.algorithm == Algorithm::two_shot);
    CHECK(chosen.carriage.chunk_setting == open.chunk_setting);
  }

  // What a launch costs makes chunks long; on the host it costs nothing. Of 64 MiB in a device's memory 26 chunks have
  // four launches each.
  TEST_CASE("chunks are long where beginning anything is dear, and where a rank's values lie in a device's memory") {
    const auto predicted = [](const char* codec, double launch_s, std::uint64_t setting,
                              Algorithm algorithm = Algorithm::two_shot, double byte_s = 0) {
      const auto made = make_codec(codec);
      CodecCost cost{.encode_s = byte_s, .decode_s = byte_s, .payload_bytes = 0.2};
      cost.launch_s = launch_s;
      const ChoiceQuery query{made.get(), 16 << 20, setting, 64 << 20, 3, 1};
      return entry_of(algorithm).predicted(NetworkModel::of(2, 1e-9, 1e15, 4e9), cost, query);
    };
    CHECK(predicted("3lc", 1e-4, kDefaultChunk).s == doctest::Approx(26 * 4e-4).epsilon(1e-3));
    CHECK(predicted("3lc", 1e-4, kDefaultChunk, Algorithm::allgather).s == doctest::Approx(26 * 2e-4).epsilon(1e-3));
    CHECK(predicted("3lc", 1e-4, 0).chunk_setting == 4 * kDeviceChunk);  // one
    CHECK(predicted("3lc", 0, 0, Algorithm::allgather, 1e-9).chunk_setting == kDefaultChunk);
    CHECK(predicted("topk", 1e-4, 0).chunk_setting == kDefaultChunk);
    // Where launches cost next to nothing the device's chunk is what wins nothing by another.
    CHECK(predicted("3lc", 1e-12, 0, Algorithm::allgather, 1e-9).chunk_setting == kDeviceChunk);

    for (const bool device : {false, true})
      for (const char* spec : {"3lc", "topk"})
        for (const std::uint64_t setting : {std::uint64_t{0}, std::uint64_t{40960}}) {
          CAPTURE(std::string(spec));
          const auto codec = make_codec(spec);
          std::uint64_t chosen[2];
          run_ranks(2, [&](ThreadTransport& transport) {
            Chooser chooser("two_shot");
            chooser.set_device(device);
            const ChoiceQuery query{codec.get(), 1 << 24, setting, 1 << 26};
            chosen[transport.rank()] =
                chooser.choose(transport, query, {}, [](const Codec&) -> CodecCost { return {}; })
                    .carriage.chunk_setting;
          });
          CHECK(chosen[0] == (device && setting == 0 && std::string(spec) == "3lc" ? kDeviceChunk : 0));
          CHECK(chosen[1] == chosen[0]);
        }
  }

  // By hand: one allgather of 16 ranks is 4 messages of 1 ms, in place of two, and 15 frames at 1 ns a byte.
  TEST_CASE(
      "one exchange has half of allgather's messages, and is a candidate where it fits and values are the host's") {
    const auto made = make_codec("fp16");
    const NetworkModel network = NetworkModel::of(16, 1e-3, 1e9, 1e12);
    const CodecCost cost{.encode_s = 3e-9, .decode_s = 1e-9, .payload_bytes = 2};
    ChoiceQuery query{made.get(), 12000, 0, 48000};
    query.frame_bytes = 30000;
    const auto predicted = [&](Algorithm algorithm) { return entry_of(algorithm).predicted(network, cost, query).s; };
    CHECK(predicted(Algorithm::one_shot) == doctest::Approx(4e-3 + 15 * 30000e-9 + 12000 * 19e-9).epsilon(1e-9));
    CHECK(predicted(Algorithm::allgather) ==
          doctest::Approx(8e-3 + 15 * (64 + 24000) * 1e-9 + 12000 * 19e-9).epsilon(1e-9));
    const auto considered = [&](const CodecCost& of) {
      const auto all = candidates(network, nullptr, of, query);
      return std::any_of(all.begin(), all.end(),
                         [](const Choice& c) { return c.carriage.algorithm == Algorithm::one_shot; });
    };
    CHECK(considered(cost));
    CHECK(cheapest(candidates(network, nullptr, cost, query)).carriage.algorithm == Algorithm::one_shot);
    CodecCost device = cost;
    device.launch_s = 1e-5;
    CHECK_FALSE(considered(device));
    for (const std::uint64_t bytes : {0, 30848, 40000}) {  // 17 of 30,840 are 512 KiB
      query.frame_bytes = bytes;
      CHECK_FALSE(considered(cost));
    }
    // Where it is asked for all the same the codec's first algorithm carries the call.
    for (const std::uint64_t bytes : {30000, 40000}) {
      query.frame_bytes = bytes;
      run_ranks(16, [&](ThreadTransport& transport) {
        Chooser chooser("one_shot");
        const Choice choice = chooser.choose(transport, query, {}, [](const Codec&) -> CodecCost { return {}; });
        CHECK(choice.carriage.algorithm == (bytes == 30000 ? Algorithm::one_shot : Algorithm::allgather));
        CHECK(std::string(choice.why) == (bytes == 30000 ? "CRIMP_ALGORITHM" : "CRIMP_ALGORITHM is for shorter calls"));
      });
    }
  }

  // Codecs that cost nothing and payloads of a byte a value on 64 ranks, by hand. Directly, 64 x 10240 values are two
  // alltoalls of 63 messages and two allgathers of 6, and 63/64 of the bytes twice. By base 8 an alltoall has 2 steps
  // of 7 messages, each with 56 of 64 blocks; by base 2 six steps of one message with 32 blocks. Headers have 64 bytes.
  TEST_CASE("relays have the messages and the bytes of their steps, and are taken where messages cost more") {
    const double latency = 1e-3, byte_s = 1e-9, block = 10240;
    const auto predicted = [&](int ranks, std::uint64_t count, int radix, double per_message) {
      const auto made = make_codec("3lc");
      const CodecCost codec{.encode_s = 0, .decode_s = 0, .payload_bytes = 1};
      const ChoiceQuery query{made.get(), count, std::uint64_t{1} << 30, 4 * count, 3, radix};
      return entry_of(Algorithm::two_shot)
          .predicted(NetworkModel::of(ranks, per_message, 1 / byte_s, 1e12), codec, query);
    };
    const auto near = [](double s) { return doctest::Approx(s).epsilon(1e-9); };
    const std::uint64_t count = 64 * 10240;
    CHECK(predicted(64, count, 1, latency).s == near(138 * latency + 2 * 63 * (block + 64) * byte_s));
    CHECK(predicted(64, count, 8, latency).s == near(40 * latency + (112 + 63) * (block + 64) * byte_s));
    CHECK(predicted(64, count, 2, latency).s == near(24 * latency + (192 + 63) * (block + 64) * byte_s));
    CHECK(predicted(64, count, 1, latency).radix == 1);
    // Left open: the fewest messages where they are dear, none on the way where they cost nothing, nor on few ranks.
    CHECK(predicted(64, count, 0, 1.0).radix == 2);
    CHECK(predicted(64, count, 0, 0.0).radix == 1);
    CHECK(predicted(7, count, 0, 1.0).radix == 1);
    const auto middle = predicted(1024, 1024 * 10240, 0, 20e-6);
    CHECK(middle.radix > 1);
    for (const int radix : {1, 2, 4, 16, 32}) CHECK(middle.s <= predicted(1024, 1024 * 10240, radix, 20e-6).s / 0.95);
    CHECK(entry_of(Algorithm::allgather)
              .predicted(NetworkModel::of(64, 1, 1e9, 1e9), {}, {make_codec("3lc").get(), count, 0, 4 * count})
              .radix == 1);
  }

  TEST_CASE("the theory's bytes and latencies") {
    const NetworkModel m = NetworkModel::of(8, 1e-5, 1e9, 1e12);
    CHECK(m.allgather.at(1e6) == doctest::Approx(3e-5 + 1e-3));
    CHECK(m.alltoall.at(1e6) == doctest::Approx(7e-5 + 1e-3));
    CHECK(m.step.at(1e6) == doctest::Approx(1e-5 + 1e-3));
    CHECK(m.plain.at(0) == doctest::Approx(3e-5));
    CHECK(m.plain.at(1e8) == doctest::Approx(1e-4 * 0 + 2 * 7.0 / 8 * 0.1).epsilon(0.01));
    CHECK(m.plain.at(1000) == doctest::Approx(3e-5 + 3e-6).epsilon(0.01));
  }

  TEST_CASE("slow links and large buffers compress, fast links and small ones do not; two shots win with many ranks") {
    CHECK_FALSE(choice(2, 1, 16 << 20).plain);
    // Two shots receive as much and compute more.
    CHECK(choice(2, 1, 16 << 20).carriage.algorithm == Algorithm::allgather);
    CHECK(choice(4, 400, 16 << 20).plain);
    CHECK(choice(8, 1, 256).plain);
    const Choice many = choice(256, 1, 256 << 20);
    CHECK_FALSE(many.plain);
    CHECK(many.carriage.algorithm == Algorithm::two_shot);
    CHECK(many.predicted_s < many.plain_s);
    CHECK(many.predicted_s > 0);
  }

  TEST_CASE(
      "what adds more error than CRIMP_QUALITY allows is not considered, and two shots of what is summed as integers never below any") {
    constexpr double kAny = std::numeric_limits<double>::infinity();
    const NetworkModel slow =
        NetworkModel::of(64, 30e-6, 0.0125e9, 4e9);  // two shots receive a 32nd of what an allgather does
    const auto chosen = [&](const char* spec, double quality, const HierarchyModel* nodes = nullptr) {
      const auto codec = make_codec(spec);
      return cheapest(candidates(slow, nodes, k3lc, {codec.get(), 4 << 20, 655360, 16 << 20, quality}));
    };
    const double usual = Settings{}.quality;
    struct Expected {
      const char* spec;
      double quality;
      Algorithm algorithm;
    };
    for (const Expected& expected : std::initializer_list<Expected>{{"3lc", usual, Algorithm::two_shot},
                                                                    {"3lc:s=0.5,entropy=1", usual, Algorithm::two_shot},
                                                                    {"3lc:s=1.75", usual, Algorithm::allgather},
                                                                    {"3lc:s=1.75", kAny, Algorithm::two_shot},
                                                                    {"3lc", 1, Algorithm::allgather},
                                                                    {"3lc", 1.5, Algorithm::allgather},
                                                                    {"maxmin", usual, Algorithm::two_shot},
                                                                    {"qsgd", usual, Algorithm::two_shot},
                                                                    {"qsgd:s=7", usual, Algorithm::allgather},
                                                                    {"qsgd:s=7", 4, Algorithm::two_shot},
                                                                    {"topk", usual, Algorithm::two_shot},
                                                                    {"signsgd", 1, Algorithm::two_shot},
                                                                    {"randomk", 1, Algorithm::two_shot},
                                                                    {"thc", kAny, Algorithm::two_shot}}) {
      CAPTURE(std::string(expected.spec));
      CAPTURE(expected.quality);
      const Choice c = chosen(expected.spec, expected.quality);
      CHECK(c.carriage.algorithm == expected.algorithm);
      CHECK(c.limited == (expected.algorithm == Algorithm::allgather));
      CHECK((std::string(c.why).find("CRIMP_QUALITY") != std::string::npos) == c.limited);
    }
    for (const double quality : {1.0, usual, 1000.0}) {
      const Algorithm by = chosen("thc", quality).carriage.algorithm;
      CHECK((by == Algorithm::homomorphic || by == Algorithm::integer_sum));
    }
    // Between leaders alike; and nodes do not vote.
    const HierarchyModel nodes{NetworkModel::of(32, 30e-6, 0.0125e9, 4e9), {2, 1e-10, 5e-6}};
    CHECK(chosen("3lc:s=1.75", kAny, &nodes).carriage.algorithm == Algorithm::two_shot);
    for (const char* spec : {"3lc:s=1.75", "qsgd:s=7"}) {
      const Choice c = chosen(spec, usual, &nodes);
      CHECK(c.carriage.nodes);
      CHECK(c.carriage.algorithm == Algorithm::allgather);
    }
    CHECK(chosen("signsgd", kAny, &nodes).carriage.algorithm == Algorithm::two_shot);
    CHECK_FALSE(chosen("signsgd", kAny, &nodes).carriage.nodes);
    // A node's exact sums are never considered for it.
    const HierarchyModel one_node{NetworkModel::of(1, 30e-6, 0.0125e9, 4e9), {64, 1e-10, 5e-6}};
    const auto limited = make_codec("3lc:s=1.75");
    ChoiceQuery query{limited.get(), 4 << 20, 655360, 16 << 20, usual};
    query.exact = true;
    const auto all = candidates(slow, &one_node, k3lc, query);
    CHECK(all.size() >= 2);
    for (const Choice& c : all)
      CHECK((std::string(c.why).find("CRIMP_QUALITY") == std::string::npos) ==
            (c.carriage.algorithm == Algorithm::node_sum));
  }

  TEST_CASE("with nodes of many ranks the leaders' exchange is considered") {
    const auto codec = make_codec("3lc");
    const NetworkModel flat = NetworkModel::of(64, 30e-6, 0.125e9 / 8, 4e9);  // eight ranks share a link
    const HierarchyModel nodes{NetworkModel::of(8, 30e-6, 0.125e9, 4e9), {8, 1e-10, 5e-6}};
    const Choice c = cheapest(candidates(flat, &nodes, k3lc, {codec.get(), 4 << 20, 655360, 16 << 20}));
    CHECK(c.carriage.nodes);
    CHECK(c.carriage.algorithm != Algorithm::hierarchical);
  }

  TEST_CASE("every rank measures, and all choose alike") {
    for (const int n : {1, 2, 4}) {
      std::vector<Choice> choices(static_cast<std::size_t>(n));
      const auto codec = make_codec("3lc");
      run_ranks(n, [&](ThreadTransport& t) {
        Chooser chooser("auto");
        Workers workers(1);
        HostBackend backend(workers);
        int plain_calls = 0;
        const auto plain = [&](float* buffer, std::uint64_t count) {
          ++plain_calls;
          std::vector<std::uint8_t> all(round_up(count * 4, 64) * static_cast<std::uint64_t>(n));
          std::vector<std::uint8_t> mine(round_up(count * 4, 64));
          std::memcpy(mine.data(), buffer, count * 4);
          t.wait(t.start_allgather(mine.data(), all.data(), mine.size()));
        };
        // One rank's sample is useless: nobody's numbers may come from it alone.
        const auto time = [&](const Codec&) {
          return time_codec(*codec,
                            t.rank() == 0 ? std::vector<float>(10, 0.0f) : make_data(Data::normal, 1, kSampleElements),
                            0, backend);
        };
        for (int call = 0; call < kEarly + 3; ++call) {
          const Choice c = choices[static_cast<std::size_t>(t.rank())] =
              chooser.choose(t, {codec.get(), 1 << 22, 655360, 1 << 24}, plain, time);
          CHECK(c.early == (call < kEarly));
          if (call == kEarly - 1) CHECK(t.exchanges() == 0);  // who is freed by now has paid nothing
        }
        CHECK(plain_calls > 2);
        CHECK(chooser.measurements() == 1);
      });
      for (const Choice& c : choices) {
        CHECK(c.carriage.algorithm == choices[0].carriage.algorithm);
        CHECK(c.plain == choices[0].plain);
        CHECK(c.predicted_s == choices[0].predicted_s);
        CHECK(c.plain_s == choices[0].plain_s);
      }
    }
  }

  TEST_CASE("communicators of the same ranks measure once, however short they live") {
    const auto codec = make_codec("fp16");
    run_ranks(3, [&](ThreadTransport& t) {
      SharedModels shared;  // of this rank's process
      Workers workers(1);
      HostBackend backend(workers);
      int timed = 0;
      const auto plain = [&](float*, std::uint64_t) {};
      const auto time = [&](const Codec&) {
        ++timed;
        return time_codec(*codec, make_data(Data::normal, 1, kSampleElements), 0, backend);
      };
      // Each one is a duplicate that is freed after `calls` calls; returns its last choice.
      const auto communicator = [&](int calls, std::uint64_t group, std::uint64_t& measured) {
        Chooser chooser("auto");
        chooser.share(&shared, group);
        Choice last;
        for (int call = 0; call < calls; ++call) {
          const ChoiceQuery query{codec.get(), 1 << 20, 655360, 1 << 22};
          last = chooser.choose(t, query, plain, time);
          chooser.took(query, last, last.carriage.algorithm == Algorithm::two_shot ? 1e-3 : 2e-3);
        }
        measured += chooser.measurements();
        return last;
      };
      std::uint64_t measured = 0;
      for (int i = 0; i < static_cast<int>(Chooser::kEarlyOfGroup); ++i) {
        const int before = t.exchanges();
        CHECK(communicator(1, 7, measured).early);
        CHECK(t.exchanges() == before + 1);  // asking for what there is
      }
      CHECK(measured == 0);
      CHECK(timed == 0);
      CHECK_FALSE(communicator(1, 7, measured).early);
      CHECK(measured == 1);
      CHECK(timed == 1);
      // Adopted from the first call on; nothing is tried that would not be finished.
      for (int i = 0; i < 20; ++i) {
        const int before = t.exchanges();
        const Choice c = communicator(2, 7, measured);
        CHECK_FALSE(c.early);
        CHECK_FALSE(c.trial);
        CHECK(t.exchanges() == before + 1);
      }
      CHECK(measured == 1);
      // Who lives long tries, and those after it know what came of it.
      const Choice known = communicator(2 * Trials::kShortRounds * static_cast<int>(Trials::kMost), 7, measured);
      const Choice after = communicator(1, 7, measured);
      CHECK(after.carriage.algorithm == known.carriage.algorithm);
      CHECK(std::string(after.why) == known.why);
      CHECK_FALSE(after.trial);
      CHECK(measured == 1);
      // Others have a model of their own.
      communicator(kEarly + 1, 8, measured);
      CHECK(measured == 2);
      // So has a program of one communicator, after its first calls.
      communicator(kEarly, 9, measured);
      CHECK(measured == 2);
    });
  }

  TEST_CASE("the same ranks are a group in any order that has those of a host at the same places") {
    using Ints = std::vector<int>;
    const auto group = [](const Ints& ranks, const Ints& hosts) { return group_of(ranks, hosts); };
    // One rank on each host, all on one, two on each.
    CHECK(group({2, 0, 3, 1}, {2, 0, 3, 1}) == group({0, 1, 2, 3}, {0, 1, 2, 3}));
    CHECK(group({2, 0, 3, 1}, {0, 0, 0, 0}) == group({0, 1, 2, 3}, {0, 0, 0, 0}));
    CHECK(group({3, 2, 0, 1}, {2, 2, 0, 0}) == group({0, 1, 2, 3}, {0, 0, 2, 2}));
    CHECK(group({0, 2, 1, 3}, {0, 2, 0, 2}) != group({0, 1, 2, 3}, {0, 0, 2, 2}));
    CHECK(group({0, 2, 3, 1}, {0, 2, 2, 0}) != group({0, 1, 2, 3}, {0, 0, 2, 2}));
    // Other ranks.
    CHECK(group({0, 1, 2, 4}, {0, 1, 2, 4}) != group({0, 1, 2, 3}, {0, 1, 2, 3}));
    CHECK(group({0, 1, 2}, {0, 1, 2}) != group({0, 1, 2, 3}, {0, 1, 2, 3}));
    // Where hosts are not known the order counts.
    CHECK(group({1, 0}, {}) != group({0, 1}, {}));
    CHECK(group({1, 0}, {}) == group({1, 0}, {}));
  }

  TEST_CASE("what the ranks do not all have alike nobody adopts, and all measure") {
    const auto codec = make_codec("fp16");
    for (const bool absent : {false, true})
      run_ranks(3, [&](ThreadTransport& t) {
        SharedModels shared;
        Workers workers(1);
        HostBackend backend(workers);
        if (t.rank() != 2 || !absent) {
          // As where threads published in another order: rank 2's is another one.
          Models models;
          models.network = NetworkModel::of(3, t.rank() == 2 ? 1e-5 : 2e-5, 1e9, 1e10);
          shared.count_call(5);
          shared.publish(5, models);
          CHECK(shared.find(5) != nullptr);
        }
        Chooser chooser("auto");
        chooser.share(&shared, 5);
        const auto plain = [&](float*, std::uint64_t) {};
        const auto time = [&](const Codec&) {
          return time_codec(*codec, make_data(Data::normal, 1, kSampleElements), 0, backend);
        };
        for (int call = 0; call < 5; ++call)
          CHECK(chooser.choose(t, {codec.get(), 1 << 20, 655360, 1 << 22}, plain, time).early == (call < kEarly));
        CHECK(chooser.measurements() == 1);
      });
    // Of calls before this communicator's the fewest that a rank has seen count.
    run_ranks(3, [&](ThreadTransport& t) {
      SharedModels shared;
      Workers workers(1);
      HostBackend backend(workers);
      const std::uint64_t seen = t.rank() == 0 ? Chooser::kEarlyOfGroup : Chooser::kEarlyOfGroup - 2;
      for (std::uint64_t call = 0; call < seen; ++call) shared.count_call(5);
      Chooser chooser("auto");
      chooser.share(&shared, 5);
      const auto time = [&](const Codec&) {
        return time_codec(*codec, make_data(Data::normal, 1, kSampleElements), 0, backend);
      };
      for (int call = 0; call < 4; ++call)
        CHECK(chooser
                  .choose(
                      t, {codec.get(), 1 << 20, 655360, 1 << 22}, [](float*, std::uint64_t) {}, time)
                  .early == (call < 2));
    });
    Models a, b;
    CHECK(a.digest() == b.digest());
    b.codecs["fp16"].cost.encode_s = 1e-9;
    CHECK(a.digest() != b.digest());
    a.codecs["fp16"].cost.encode_s = 1e-9;
    CHECK(a.digest() == b.digest());
    a.hierarchy.emplace();
    CHECK(a.digest() != b.digest());
  }

  TEST_CASE("a call with two codecs is one of a communicator's first three, not two") {
    const auto one = make_codec("fp16"), two = make_codec("bf16"), whole = make_codec("powersgd");
    run_ranks(2, [&](ThreadTransport& t) {
      SharedModels shared;
      Workers workers(1);
      HostBackend backend(workers);
      Chooser chooser("auto");
      chooser.share(&shared, 5);
      const auto plain = [&](float*, std::uint64_t) {};
      for (std::uint64_t call = 0; call < 5; ++call) {
        bool first = true;
        for (const auto* codec : {&whole, &one, &two}) {  // the first one has nothing to choose from
          const auto time = [&](const Codec&) {
            return time_codec(**codec, make_data(Data::normal, 1, kSampleElements), 0, backend);
          };
          const Choice c = chooser.choose(t, {codec->get(), 1 << 20, 655360, 1 << 22}, plain, time, !first);
          CHECK(c.early == (codec != &whole && call < Chooser::kEarly));
          first = false;
        }
        CHECK(chooser.measurements() == (call < Chooser::kEarly ? 0 : 1));
        CHECK(shared.calls(5) == call + 1);
      }
    });
  }

  TEST_CASE("no more groups of ranks are remembered than a few") {
    SharedModels shared;
    for (std::uint64_t group = 0; group < 2 * SharedModels::kMostGroups; ++group) {
      shared.count_call(group);
      shared.publish(group, {});
    }
    CHECK(shared.calls(0) == 1);
    CHECK(shared.find(0) != nullptr);
    CHECK(shared.calls(2 * SharedModels::kMostGroups - 1) == 0);
    CHECK(shared.find(2 * SharedModels::kMostGroups - 1) == nullptr);
  }

  TEST_CASE(
      "a model that has nodes leads to them when they are chosen; where they cannot be had another algorithm is taken") {
    const auto codec = make_codec("3lc");
    for (const bool have : {true, false}) {
      std::vector<Choice> choices(4);
      run_ranks(4, [&](ThreadTransport& t) {
        SharedModels shared;
        Models models;
        models.network = NetworkModel::of(4, 30e-6, 0.125e9 / 8, 4e9);
        models.hierarchy = HierarchyModel{NetworkModel::of(2, 30e-6, 0.125e9, 4e9), {2, 1e-10, 5e-6}};
        models.codecs[codec->spec()].cost = k3lc;
        shared.count_call(5);
        shared.publish(5, models);
        Chooser chooser("auto");
        chooser.share(&shared, 5);
        const Hierarchy hierarchy{nullptr, nullptr, 2};
        int opened = 0;
        chooser.set_nodes([&] { return ++opened, have ? &hierarchy : nullptr; });
        for (int call = 0; call < 3; ++call)
          choices[static_cast<std::size_t>(t.rank())] =
              chooser.choose(t, {codec.get(), 4 << 20, 655360, 16 << 20}, {}, {});
        CHECK(opened == 1);
      });
      for (const Choice& c : choices) {
        CHECK(c.carriage.nodes == have);
        CHECK_FALSE(c.early);
        CHECK(c.predicted_s == choices[0].predicted_s);
      }
    }
  }

  // Of a group of four ranks on two nodes, 5, that has had its early calls.
  void share_nodes(SharedModels & shared, const Codec& codec) {
    Models models;
    models.network = NetworkModel::of(4, 30e-6, 0.125e9, 4e9);
    models.hierarchy = HierarchyModel{NetworkModel::of(2, 30e-6, 0.125e9, 4e9), {2, 1e-10, 5e-6}};
    models.codecs[codec.spec()].cost = k3lc;
    for (std::uint64_t call = 0; call < Chooser::kEarlyOfGroup; ++call) shared.count_call(5);
    shared.publish(5, models);
  }

  TEST_CASE("a communicator's first calls try nothing, and open no nodes for what is gained by one") {
    // As where a program duplicates its communicator in each step.
    const auto codec = make_codec("3lc");
    for (const bool tried : {false, true}) {
      CAPTURE(tried);
      run_ranks(4, [&](ThreadTransport& t) {
        SharedModels shared;
        share_nodes(shared, *codec);
        const Hierarchy hierarchy{nullptr, nullptr, 2};
        int opened = 0;
        const auto communicator = [&](std::uint64_t calls) {
          Chooser chooser("auto");
          chooser.share(&shared, 5);
          chooser.set_nodes([&] { return ++opened, &hierarchy; });
          Choice c;
          for (std::uint64_t call = 0; call < calls; ++call) {
            c = chooser.choose(t, {codec.get(), 20000, 655360, 80000}, {}, [](const Codec&) { return k3lc; });
            if (call < Chooser::kEarly) CHECK_FALSE((c.trial || c.carriage.nodes));
            chooser.took({codec.get(), 20000, 655360, 80000}, c, c.carriage.nodes ? 1e-5 : 1e-3);
          }
          return c;
        };
        if (tried) CHECK(communicator(200).carriage.nodes);  // they are the best once it lives
        const int before = opened;
        for (int dup = 0; dup < 20; ++dup) CHECK_FALSE(communicator(1).carriage.nodes);
        CHECK(opened == before);
        CHECK(opened == tried);
      });
    }
  }

  TEST_CASE("where communicators are freed before their trials can end later ones begin them when they are older") {
    const auto codec = make_codec("3lc");
    for (const bool alike : {true, false}) {
      CAPTURE(alike);
      run_ranks(4, [&](ThreadTransport& t) {
        SharedModels shared;
        share_nodes(shared, *codec);
        const Hierarchy hierarchy{nullptr, nullptr, 2};
        ChoiceQuery query{codec.get(), 20000, 655360, 80000};
        query.alone = true;
        const auto trials_of = [&](std::uint64_t calls) {
          Chooser chooser("auto");
          chooser.share(&shared, 5);
          chooser.set_nodes([&] { return &hierarchy; });
          int trials = 0;
          for (std::uint64_t call = 0; call < calls; ++call) {
            const Choice c = chooser.choose(t, query, {}, [](const Codec&) { return k3lc; });
            chooser.took(query, c, c.plain ? 1e-3 : c.carriage.nodes ? 0.8e-3 : 6e-3);
            trials += c.trial;
          }
          return trials;
        };
        // What not all ranks have seen counts on none.
        if (!alike && t.rank() == 1)
          for (int i = 0; i < 4; ++i) shared.count_unfinished(5);
        CHECK(trials_of(10) == 7);
        CHECK(trials_of(10) == 4);
        for (int i = 0; i < 20; ++i) CHECK(trials_of(10) == 0);
        // Who lives on tries all the same, and those after it know what came of it.
        constexpr std::uint64_t kLong = Chooser::kEarly << Chooser::kMostDoublings;
        CHECK(trials_of(kLong + Trials::kMostCalls + 1) > 7);
        CHECK(trials_of(200) == 0);
        CHECK(shared.unfinished(5) == (alike || t.rank() != 1 ? 2 : 6));
      });
    }
  }

  TEST_CASE("in a communicator's first calls what was tried without nodes is believed, not the model") {
    const auto codec = make_codec("3lc");
    run_ranks(4, [&](ThreadTransport& t) {
      SharedModels shared;
      share_nodes(shared, *codec);
      const Hierarchy hierarchy{nullptr, nullptr, 2};
      ChoiceQuery query{codec.get(), 20000, 655360, 80000};
      query.alone = true;
      const auto communicator = [&](int calls) {
        Chooser chooser("auto");
        chooser.share(&shared, 5);
        chooser.set_nodes([&] { return &hierarchy; });
        Choice c;
        for (int call = 0; call < calls; ++call) {
          c = chooser.choose(t, query, {}, [](const Codec&) { return k3lc; });
          chooser.took(query, c, c.plain ? 1e-3 : c.carriage.nodes ? 0.8e-3 : 6e-3);
        }
        return c;
      };
      CHECK(communicator(200).carriage.nodes);
      CHECK(communicator(1).plain);
    });
  }

  TEST_CASE("16 bits a value carry a call where they are the fastest of what was tried, and only then") {
    const auto codec = make_codec("3lc"), halves = make_codec("fp16:memory=residual");
    enum class Best { codec, halves, plain };
    for (const Best best : {Best::codec, Best::halves, Best::plain}) {
      CAPTURE(static_cast<int>(best));
      std::vector<Choice> choices(2);
      run_ranks(2, [&](ThreadTransport& t) {
        SharedModels shared;
        Models models;
        models.network = NetworkModel::of(2, 30e-6, 1.25e9, 4e9);
        const auto time = [&](const Codec& of) -> CodecCost {
          if (&of == codec.get()) return {.encode_s = 3e-9, .decode_s = 1e-9, .payload_bytes = 0.2};
          return {.encode_s = 0.3e-9, .decode_s = 0.3e-9, .payload_bytes = 2};
        };
        models.codecs[codec->spec()] = {.cost = time(*codec), .halves = time(*halves), .trials = {}};
        shared.count_call(5);
        shared.publish(5, models);
        Chooser chooser("auto");
        chooser.share(&shared, 5);
        ChoiceQuery query{codec.get(), 1 << 20, 655360, 4 << 20};
        query.alone = true;
        query.halves = halves.get();
        bool both = false, other = false;
        Choice c;
        for (int call = 0; call < 60; ++call) {
          c = chooser.choose(t, query, {}, time);
          both = both || c.carriage.halves, other = other || !(c.carriage.halves || c.plain);
          const Best of = c.plain ? Best::plain : c.carriage.halves ? Best::halves : Best::codec;
          chooser.took(query, c, of == best ? 1e-3 : 2e-3);
        }
        CHECK(both);
        CHECK(other);
        CHECK_FALSE(c.trial);
        CHECK(c.plain == (best == Best::plain));
        if (best != Best::plain) CHECK(c.carriage.halves == (best == Best::halves));
        CHECK((std::string(c.why) == "fastest of those tried, in 16 bits") == c.carriage.halves);
        choices[static_cast<std::size_t>(t.rank())] = c;
        // Others of the same ranks know it; where no halves may stand in there are none.
        Chooser after("auto");
        after.share(&shared, 5);
        CHECK(after.choose(t, query, {}, time).carriage.halves == c.carriage.halves);
        query.halves = nullptr;
        query.alone = false;
        for (int call = 0; call < 60; ++call) {
          const Choice without = after.choose(t, query, {}, time);
          CHECK_FALSE(without.carriage.halves);
          after.took(query, without, 1e-3);
        }
      });
      CHECK(choices[0].carriage.halves == choices[1].carriage.halves);
      CHECK(choices[0].carriage.algorithm == choices[1].carriage.algorithm);
    }
    Models one, two;
    one.codecs["3lc"] = two.codecs["3lc"] = {.cost = k3lc, .halves = {}, .trials = {}};
    CHECK(one.digest() == two.digest());
    two.codecs["3lc"].halves = k3lc;
    CHECK(one.digest() != two.digest());
  }

  // As a level of CRIMP_LADDER, which none may stand in for, and by a rule in calls that CRIMP_CONTROL leaves alone.
  TEST_CASE("16 bits are tried, too, where the codec was first measured for calls that ask for none") {
    const auto codec = make_codec("3lc"), halves = make_codec("fp16:memory=residual");
    run_ranks(2, [&](ThreadTransport& t) {
      const auto time = [&](const Codec& of) -> CodecCost {
        if (&of == codec.get()) return {.encode_s = 3e-9, .decode_s = 1e-9, .payload_bytes = 0.2};
        return {.encode_s = 0.3e-9, .decode_s = 0.3e-9, .payload_bytes = 2};
      };
      SharedModels shared;
      Models models;
      models.network = NetworkModel::of(2, 30e-6, 1.25e9, 4e9);
      models.codecs[codec->spec()] = {.cost = time(*codec), .halves = {}, .trials = {}};
      shared.count_call(5);
      shared.publish(5, models);
      Chooser chooser("auto");
      chooser.share(&shared, 5);
      ChoiceQuery query{codec.get(), 1 << 20, 655360, 4 << 20};
      query.alone = true;
      query.halves = halves.get();
      bool tried = false;
      for (int call = 0; call < 15; ++call) {  // the codec's cost is measured anew in its 16th
        const Choice c = chooser.choose(t, query, {}, time);
        tried = tried || c.carriage.halves;
        chooser.took(query, c, 1e-3);
      }
      CHECK(tried);
    });
  }

  TEST_CASE("a codec's cost per element is not that of a small call") {
    Workers workers(1);
    const auto codec = make_codec("bf16");
    HostBackend backend(workers);
    CHECK(time_codec(*codec, make_data(Data::normal, 1, 20), 0, backend).payload_bytes == 2);
    CHECK(time_codec(*codec, {}, 0, backend).payload_bytes == 2);
  }

  TEST_CASE("where one rank lacks memory for measuring a codec all say so alike, and the next call measures it") {
    const auto codec = make_codec("3lc");
    for (const int poor : {0, 2}) {
      std::vector<Choice> choices(3);
      run_ranks(3, [&](ThreadTransport& t) {
        Chooser chooser("auto");
        Workers workers(1);
        HostBackend backend(workers);
        int asked = 0;
        const auto plain = [&](float*, std::uint64_t) {};
        const auto time = [&](const Codec&) {
          if (++asked <= 2 && t.rank() == poor) throw std::bad_alloc();
          return time_codec(*codec, make_data(Data::normal, 1, kSampleElements), 0, backend);
        };
        const auto choose = [&] { return chooser.choose(t, {codec.get(), 1 << 22, 655360, 1 << 24}, plain, time); };
        for (int call = 0; call < kEarly; ++call) CHECK(choose().early);
        for (int call = 1; call <= 2; ++call) {
          CHECK_THROWS_WITH_AS(choose(), doctest::Contains("measuring the codec 3lc"), Error);
          CHECK(asked == call);
        }
        choices[static_cast<std::size_t>(t.rank())] = choose();
        CHECK(asked == 3);
        choose();
        CHECK(asked == 3);
      });
      for (const Choice& c : choices) {
        CHECK(c.predicted_s > 1e-6);  // four million elements are not free
        CHECK(c.predicted_s == choices[0].predicted_s);
        CHECK(c.carriage.algorithm == choices[0].carriage.algorithm);
      }
    }
  }

  TEST_CASE("what the model sees close together is tried in turn, and the times of who came last decide") {
    const std::vector<Choice> predictions = {{.carriage = {Algorithm::allgather}, .predicted_s = 1.0, .plain_s = 10},
                                             {.carriage = {Algorithm::homomorphic}, .predicted_s = 2.1, .plain_s = 10},
                                             {.carriage = {Algorithm::two_shot}, .predicted_s = 1.9, .plain_s = 10}};
    constexpr std::uint64_t kCount = 1000;
    std::vector<Choice> chosen(3);
    run_ranks(3, [&](ThreadTransport& t) {
      Trials trials(predictions);
      for (int round = 0; round < Trials::kRounds; ++round) {
        std::vector<Algorithm> tried;
        while (tried.size() < 2) {
          const Choice c = trials.choose(t, predictions, kCount);
          CHECK(c.trial);
          CHECK_FALSE(c.plain);
          const Algorithm expected = c.carriage.algorithm;
          tried.push_back(expected);
          // The first round is slow; ranks wait for rank 2, the last one; once there is a hiccup everywhere, once only
          // the early ranks wait long.
          double s = expected == Algorithm::allgather ? 0.9 : 0.6;
          if (round == 0) s += expected == Algorithm::two_shot ? 5 : 0;
          if (round == 1) s += expected == Algorithm::two_shot ? 3 : 0;
          if (t.rank() != 2) s += expected == Algorithm::two_shot ? 1 : 0.1;
          trials.took(s, kCount);
        }
        std::sort(tried.begin(), tried.end());
        CHECK(tried == std::vector{Algorithm::allgather, Algorithm::two_shot});
      }
      const Choice c = trials.choose(t, predictions, 2 * kCount);
      const int agreeing = t.exchanges();
      CHECK(agreeing == 2);  // after four rounds, and at the end
      CHECK_FALSE(c.trial);
      CHECK(c.carriage.algorithm == Algorithm::two_shot);
      CHECK(c.predicted_s == doctest::Approx(1.2));
      CHECK(trials.choose(t, predictions, kCount).predicted_s == doctest::Approx(0.6));
      CHECK(t.exchanges() == agreeing);
      chosen[static_cast<std::size_t>(t.rank())] = c;
    });
    for (const Choice& c : chosen) CHECK(c.predicted_s == chosen[0].predicted_s);
  }

  TEST_CASE("relays are tried beside direct messages, and give way where the network says so") {
    const auto codec = make_codec("3lc");
    const ChoiceQuery query{codec.get(), 1 << 20, 0, 4 << 20};
    const auto network = NetworkModel::of(64, 30e-6, 1.25e9, 4e9);
    const auto of = [&](int radix) {
      ChoiceQuery as = query;
      as.radix = radix;
      auto all = candidates(network, nullptr, k3lc, as);
      std::erase_if(all, [](const Choice& c) { return c.carriage.algorithm != Algorithm::two_shot; });
      return all;
    };
    const auto open = of(0);
    REQUIRE(open.size() == 2);
    CHECK(open[0].carriage.radix > 1);
    CHECK(open[1].carriage.radix == 1);
    CHECK(open[0].predicted_s < open[1].predicted_s);
    for (const int radix : {1, 4}) {  // CRIMP_RADIX has decided
      REQUIRE(of(radix).size() == 1);
      CHECK(of(radix)[0].carriage.radix == radix);
    }
    run_ranks(2, [&](ThreadTransport& t) {
      for (const bool relays_win : {false, true}) {
        Trials trials(open);
        Choice c = trials.choose(t, open, 1 << 20);
        for (int tried = 0; c.trial && tried < 1000; ++tried, c = trials.choose(t, open, 1 << 20))
          trials.took((c.carriage.radix > 1) == relays_win ? 0.9 : 1.0, 1 << 20);
        CHECK_FALSE(c.trial);
        CHECK((c.carriage.radix > 1) == relays_win);
      }
    });
  }

  TEST_CASE("short calls are tried in more rounds") {
    run_ranks(2, [&](ThreadTransport& t) {
      const std::vector<Choice> both = {{.carriage = {Algorithm::allgather}, .predicted_s = 1e-3, .plain_s = 1},
                                        {.carriage = {Algorithm::two_shot}, .predicted_s = 1e-3, .plain_s = 1}};
      for (const double s : {1e-3, 1e-2}) {
        Trials trials(both);
        int tried = 0;
        Choice c = trials.choose(t, both, 100);
        for (; c.trial && tried < 1000; ++tried, c = trials.choose(t, both, 100)) {
          // two_shot is quicker, but for the first rounds.
          const bool gather = c.carriage.algorithm == Algorithm::allgather;
          trials.took(s * (gather ? 1 : tried < 2 * Trials::kRounds ? 1.1 : 0.5), 100);
        }
        if (s == 1e-3) CHECK((tried > 2 * Trials::kRounds && tried <= 2 * Trials::kShortRounds));
        else CHECK(tried == 2 * Trials::kRounds);
        CHECK(c.carriage.algorithm == (s == 1e-3 ? Algorithm::two_shot : Algorithm::allgather));
      }
    });
  }

  TEST_CASE("trials: of one algorithm near plain MPI, of none where the model is sure, and none that succeeds") {
    run_ranks(2, [&](ThreadTransport& t) {
      const auto one = [](double predicted, double plain) {
        return std::vector<Choice>{{.carriage = {Algorithm::two_shot}, .predicted_s = predicted, .plain_s = plain}};
      };
      for (const double predicted : {0.1, 5.0, 10.0}) {  // of the last nobody knows
        const auto sure = one(predicted == 10 ? 0 : predicted, 1);
        Trials trials(sure);
        const Choice c = trials.choose(t, sure, 100);
        CHECK_FALSE(c.trial);
        CHECK(c.plain == (predicted == 5));
      }
      for (const double took : {0.9, 1.1, 0.0}) {
        const auto near = one(1.5, 1);
        Trials trials(near);
        for (int i = 0; i < Trials::kRounds; ++i) {
          CHECK(trials.choose(t, near, 100).trial);
          if (took > 0) trials.took(took, 100);
        }
        const Choice c = trials.choose(t, near, 100);
        CHECK_FALSE(c.trial);
        CHECK(c.predicted_s == doctest::Approx(took > 0 ? took : 1.5));
        CHECK(c.plain == (took != 0.9));
      }
    });
  }

  TEST_CASE("where MPI can carry the call it is tried, too, and its time decides, not the prediction") {
    run_ranks(2, [&](ThreadTransport& t) {
      constexpr std::uint64_t kCount = 100;
      const std::vector<Choice> both = {{.carriage = {Algorithm::allgather}, .predicted_s = 1.0, .plain_s = 3},
                                        {.carriage = {Algorithm::two_shot}, .predicted_s = 1.5, .plain_s = 3}};
      for (const double plain : {0.5, 1.4, 2.0}) {
        Trials trials(both, true);
        int tried = 0, plainly = 0;
        Choice c = trials.choose(t, both, kCount);
        for (; c.trial; c = trials.choose(t, both, kCount), ++tried) {
          if (tried < 4 * 3 && tried % 3 == 0) CHECK(plainly == tried / 3);  // once a round
          plainly += c.plain;
          trials.took(c.plain ? plain : c.carriage.algorithm == Algorithm::two_shot ? 1.4 : 1.7, kCount);
        }
        CHECK(plainly == (plain == 2.0 ? 4 : Trials::kRounds));  // far behind: not tried any further
        c = trials.choose(t, both, 2 * kCount);
        CHECK_FALSE(c.trial);
        CHECK(c.plain == (plain <= 1.4));  // what MPI does as fast is not worth a loss
        CHECK(c.plain_s == doctest::Approx(2 * plain));
        CHECK(c.predicted_s == doctest::Approx(2.8));
        CHECK(c.carriage.algorithm == Algorithm::two_shot);
      }
      // Of trials of MPI that failed the prediction stays; where it should be far behind it has one.
      Trials failed(both, true);
      for (Choice c = failed.choose(t, both, kCount); c.trial; c = failed.choose(t, both, kCount))
        if (!c.plain) failed.took(2.9, kCount);
      CHECK(failed.choose(t, both, kCount).plain_s == 3);
      CHECK_FALSE(failed.choose(t, both, kCount).plain);
      auto far = both;
      for (Choice& c : far) c.plain_s = 4.1;
      Trials sure(far, true);
      int plainly = 0;
      for (int i = 0; i < 2 * Trials::kRounds + 1; ++i) {
        const Choice c = sure.choose(t, far, kCount);
        CHECK(c.trial);
        plainly += c.plain;
        sure.took(c.plain ? 4.1 : 1, kCount);
      }
      CHECK(plainly == 1);
      CHECK_FALSE(sure.choose(t, far, kCount).trial);
    });
  }

  TEST_CASE("a codec that no model predicts is tried beside plain MPI, where that can carry the call") {
    const auto codec = make_codec("powersgd");
    for (const bool plain_is_faster : {false, true})
      run_ranks(2, [&](ThreadTransport& t) {
        Chooser chooser("auto");
        ChoiceQuery query{codec.get(), 1 << 20, 655360, 4 << 20};
        const auto choose = [&] {
          // Whatever the network is measured to be, the calls' own times decide. Nobody encodes to measure.
          const Choice c = chooser.choose(t, query, [](float*, std::uint64_t) {}, {});
          CHECK((c.plain || c.carriage.algorithm == Algorithm::low_rank));
          chooser.took(query, c, c.plain == plain_is_faster ? 1e-3 : 2e-3);
          return c;
        };
        CHECK_FALSE(choose().plain);  // not alone in its call
        CHECK(t.exchanges() == 0);
        query.alone = true;
        query.controlled = true;
        CHECK_FALSE(choose().plain);
        CHECK(t.exchanges() == 0);
        query.controlled = false;
        for (std::uint64_t call = 0; call < Chooser::kEarly; ++call) CHECK(choose().early);
        int of_plain = 0, trials = 0;
        for (int call = 0; call < 600; ++call) {
          const Choice c = choose();
          trials += c.trial;
          of_plain += c.trial && c.plain;
          if (!c.trial) CHECK(c.plain == plain_is_faster);
        }
        CHECK(trials < 80);
        CHECK(of_plain > 0);
        CHECK(of_plain < trials);
      });
  }

  TEST_CASE("every size has its own trials, repeated when the codec is measured late") {
    const auto codec = make_codec("fp16");
    run_ranks(2, [&](ThreadTransport& t) {
      Chooser chooser("auto");
      Workers workers(1);
      HostBackend backend(workers);
      // Plain MPI takes as long as its exchange; one algorithm's calls are told to be far quicker than the other's.
      const auto plain = [&](float*, std::uint64_t count) {
        std::this_thread::sleep_for(std::chrono::microseconds(count / 4));
      };
      const auto time = [&](const Codec&) {
        return time_codec(*codec, make_data(Data::normal, 1, kSampleElements), 0, backend);
      };
      std::vector<int> trials;
      for (int call = 0; call < 300; ++call) {
        const std::uint64_t count = call % 2 ? 1 << 20 : 1 << 23;
        const ChoiceQuery query{codec.get(), count, 655360, 4 * count};
        const Choice c = chooser.choose(t, query, plain, time);
        if (c.trial) trials.push_back(call);
        chooser.took(query, c, c.carriage.algorithm == Algorithm::two_shot ? 1e-6 : 2e-6);
        if (!c.trial && call >= 2 * 60 && std::string(c.why) == "fastest of those tried")
          CHECK(c.carriage.algorithm == Algorithm::two_shot);
      }
      // How many there are is this machine's, but they come first, and a few again from call 256 on.
      for (const int call : trials) CHECK((call < 2 * 60 || call >= 256));
      WARN(trials.size() > 0);
    });
  }

  TEST_CASE("calls of one size have trials for each collective, and others where MPI cannot carry them alone") {
    const auto codec = make_codec("fp16");
    run_ranks(2, [&](ThreadTransport& t) {
      SharedModels shared;
      Models models;
      models.network = NetworkModel::of(2, 30e-6, 1.25e9, 4e9);  // MPI's 4 MiB: 3.4 ms
      models.codecs[codec->spec()].cost = {.encode_s = 0.3e-9, .decode_s = 0.3e-9, .payload_bytes = 2};
      shared.count_call(5);
      shared.publish(5, models);
      Chooser chooser("auto");
      chooser.share(&shared, 5);
      // The last of so many calls, in which MPI, or a codec, takes so long.
      const auto settled = [&](const ChoiceQuery& query, double plain_s, double codec_s) {
        Choice c;
        for (int call = 0; call < 80; ++call) {
          c = chooser.choose(t, query, {}, [](const Codec&) -> CodecCost { return {}; });
          if (!c.plain)
            CHECK((c.carriage.algorithm == Algorithm::reduce_scatter) == (query.collective != Collective::allreduce));
          chooser.took(query, c, c.plain ? plain_s : codec_s);
        }
        CHECK_FALSE(c.trial);
        return c;
      };
      ChoiceQuery sum{codec.get(), 1 << 20, 655360, 4 << 20};
      sum.alone = true;
      ChoiceQuery beside = sum, shares = sum;
      beside.alone = false;
      shares.collective = Collective::reduce_scatter;
      shares.largest_share = 1 << 19;
      CHECK(settled(sum, 1e-3, 2e-3).plain);
      CHECK_FALSE(settled(beside, 1e-3, 2e-3).plain);
      CHECK_FALSE(settled(shares, 2e-3, 1e-3).plain);
      CHECK(settled(sum, 1e-3, 2e-3).plain);
    });
  }

  TEST_CASE("what becomes faster late in a job is noticed, however late") {
    const auto codec = make_codec("fp16");
    run_ranks(2, [&](ThreadTransport& t) {
      Chooser chooser("auto");
      const auto time = [](const Codec&) {  // slower ones would not be tried
        return CodecCost{.encode_s = 1e-9, .decode_s = 1e-9, .payload_bytes = 2};
      };
      ChoiceQuery query{codec.get(), 1 << 20, 655360, 4 << 20};
      query.alone = true;
      // MPI sums in 300 ms, and from some call on in no time.
      const auto plain = [&](float*, std::uint64_t count) {
        std::this_thread::sleep_for(std::chrono::nanoseconds(300 * count));
      };
      Choice c;
      for (int call = 0; call < 3 * 4096; ++call) {
        c = chooser.choose(t, query, plain, time);
        chooser.took(query, c, c.plain ? (call < 5000 ? 0.3 : 1e-3) : 3e-3);
        if (call == 5000) CHECK_FALSE(c.plain);
      }
      CHECK(c.plain);
    });
  }

  TEST_CASE("calls that are settled to pass are not asked about, until the codec is due again") {
    const auto codec = make_codec("fp16");
    run_ranks(2, [&](ThreadTransport& t) {
      Chooser chooser("auto");
      Workers workers(1);
      HostBackend backend(workers);
      const auto time = [&](const Codec&) {
        return time_codec(*codec, make_data(Data::normal, 1, kSampleElements), 0, backend);
      };
      const ChoiceQuery query{codec.get(), 1 << 20, 655360, 4 << 20};
      const auto choose = [&] {
        // MPI's own sum takes no time at all, so nothing is faster.
        const Choice c = chooser.choose(
            t, query, [](float*, std::uint64_t) {}, time);
        chooser.took(query, c, 1);
        return c;
      };
      CHECK_FALSE(chooser.settled(query, choose()).codec);  // an early call
      int asked = 1;
      Chooser::Settled settled;
      for (; !settled.codec && asked < 200; ++asked) settled = chooser.settled(query, choose());
      REQUIRE(settled.codec == codec.get());
      for (int passed = 0; chooser.still(settled) && asked < 1000; ++passed, ++asked) chooser.passed(settled);
      CHECK(asked == 16 + kEarly);  // the codec's calls are counted from the first that is not early
      const Choice due = choose();
      CHECK(due.plain);
      CHECK_FALSE(chooser.still(settled));
      settled = chooser.settled(query, due);
      CHECK(chooser.still(settled));
      chooser.force("two_shot");
      CHECK_FALSE(chooser.still(settled));
      CHECK_FALSE(chooser.settled(query, chooser.choose(t, query, {}, {})).codec);
      chooser.force("auto");
      settled = chooser.settled(query, choose());
      CHECK(chooser.still(settled));
      chooser.forget();
      CHECK_FALSE(chooser.still(settled));
    });
  }

  TEST_CASE("a forced algorithm is taken, measures nothing, and never gives way to plain MPI") {
    const auto codec = make_codec("fp16");
    run_ranks(2, [&](ThreadTransport& t) {
      Chooser chooser("two_shot");
      const Choice c = chooser.choose(t, {codec.get(), 10, 655360, 40}, {}, {});
      CHECK(c.carriage.algorithm == Algorithm::two_shot);
      CHECK_FALSE(c.plain);
      CHECK(std::string(c.why) == "CRIMP_ALGORITHM");
      CHECK(t.exchanges() == 0);
      CHECK(std::string(Chooser("hierarchical").choose(t, {codec.get(), 10, 655360, 40}, {}, {}).why) ==
            "no nodes of several ranks");
    });
  }
}
