// Every codec that has kernels against its host code: the same bytes, memories and sums, bit for bit, through the
// executor (unit.device_codec) or on a GPU (gpu.device_codec).
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>

#include "codec/coding/select_sample.hpp"
#include "codec/powersgd/powersgd_device.hpp"
#include "core/convert.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/device_run.hpp"
#include "support/effort.hpp"
#include "support/golden_files.hpp"
#include "support/specs.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("device_codec") {
  namespace {

  constexpr RandomCounter kCounter{3 * kPieceElements, 5, 2};

  // Settings besides the defaults: one for each way through the kernels.
  std::vector<std::shared_ptr<const Codec>> device_codecs() {
    std::vector<std::string> specs;
    for (const auto& info : codecs()) specs.emplace_back(info.name);
    if (!kSanitized)  // too slow there, and the kernels are the same
      for (const char* more : {"3lc:s=1.75,zero_run=0",
                               "3lc:s=0.5,zero_run=1,memory=none",
                               "3lc:entropy=1",
                               "3lc:s=1.75,entropy=1",
                               "3lc:memory=residual,decay=0.75",
                               "3lc:memory=average",
                               "qsgd:s=7,bucket=128",
                               "qsgd:s=1,bucket=10240",
                               "qsgd:s=200,memory=average",
                               "qsgd:s=32767,bucket=1280",
                               "terngrad:clip=1e-6",
                               "terngrad:clip=1e6,memory=momentum,force=1",
                               "natural:memory=residual",
                               "8bit:memory=momentum",
                               "1bit:memory=average",
                               "signsgd:memory=residual,force=1",
                               "inceptionn:log2_bound=-2",
                               "inceptionn:log2_bound=-14,memory=average",
                               "maxmin:bits=8,block=1024",
                               "maxmin:bits=3,block=128,rounding=nearest",
                               "maxmin:bits=2,block=10240",
                               "maxmin:memory=momentum",
                               "fp8:format=e5m2,block=32",
                               "fp8:block=10240,memory=average",
                               "fp8:format=e5m2,block=96,memory=residual",
                               "sketchml:quantiles=256",
                               "sketchml:quantiles=3",
                               "adaq:ratio=0.3",
                               "adaq:ratio=1,memory=momentum",
                               "topk:ratio=0.3,value=f16",
                               "topk:ratio=1",
                               "topk:ratio=0.05,memory=momentum",
                               "randomk:ratio=0.3,scale=1",
                               "randomk:ratio=1,memory=average",
                               "threshold:v=0",
                               "threshold:v=0.5,value=f16,decay=0.5",
                               "dgc:sample=0.2,ratio=0.1",
                               "dgc:sample=0.05,memory=residual",
                               "sidco:dist=gp,stages=3,ratio=0.02",
                               "sidco:dist=gamma",
                               "sidco:dist=gamma,stages=1,ratio=0.3",
                               "thc:bits=3,g=17",
                               "thc:bits=2,g=62,memory=none"})
        specs.emplace_back(more);
    std::vector<std::shared_ptr<const Codec>> all;
    for (const auto& spec : specs) {
      auto codec = make_codec(spec);
      if (!is_asked_for(*codec)) continue;
      if (!codec->traits().whole_tensors && make_device_codec(*codec)) all.push_back(std::move(codec));
    }
    return all;
  }

  // Further settings take other ways through kernels whose barriers and shared memory are mostly the default's, which
  // is run more often.
  bool is_default(const Codec& codec) { return codec.spec() == make_codec(codec.traits().name)->spec(); }

  // Which of a codec's memories: none at all, only written, read and written, only read.
  enum class Use { none, kept, both, read };

  struct Case {
    const Codec& codec;
    ChunkPartition partition;
    std::vector<float> values;
    ChunkMemory memory;
  };

  Case make_case(const Codec& codec, Data data, const std::vector<std::size_t>& groups, std::size_t gap, Use use,
                 std::uint64_t seed) {
    Case c{codec, {}, {}, {}};
    for (const std::size_t n : groups) {
      c.partition.add_group(n);
      if (gap) c.partition.add_gap(gap);
    }
    const std::size_t count = c.partition.count();
    const float limit = codec.traits().max_magnitude / 4;
    const auto make = [&](std::uint64_t s, float factor) {
      auto v = make_data(data, s, count);
      for (float& x : v) x = std::fmin(std::fmax(x * factor, -limit), limit);
      return v;
    };
    c.values = make(seed, 1.0f);
    if (use == Use::none) return c;
    c.memory.plane = make(seed + 1, 0.25f);
    if (codec.feedback().arrays() > 1) c.memory.momentum = make(seed + 2, 0.5f);
    c.memory.has = use != Use::kept;
    c.memory.keep = use != Use::read;
    return c;
  }

  std::vector<std::uint8_t> host_encode(const Case& c, ChunkMemory& memory, const RandomCounter& counter = kCounter) {
    Workers workers(1);
    std::vector<FeedbackView> feedback;
    if (!memory.plane.empty())
      for (const Group& g : c.partition.groups()) {
        if (memory.alternate && feedback.size() % 2) {
          feedback.emplace_back();
          continue;
        }
        float *r = memory.plane.data() + g.offset,
              *m = memory.momentum.empty() ? nullptr : memory.momentum.data() + g.offset;
        feedback.push_back(
            {memory.has ? r : nullptr, memory.keep ? r : nullptr, memory.has ? m : nullptr, memory.keep ? m : nullptr});
        if (!memory.states.empty())
          feedback.back().state_in = feedback.back().state_out =
              memory.states.data() + Codec::kStateFloats * (feedback.size() - 1);
      }
    std::vector<std::uint8_t> body(c.partition.body_bound(c.codec));
    std::vector<float> scratch(scratch_elements(c.codec, c.partition.count(), !feedback.empty()));
    body.resize(
        encode_body(c.codec, c.partition, c.values.data(), feedback, counter, body.data(), scratch.data(), workers));
    return body;
  }

  std::vector<std::uint8_t> check_encode(const Case& c, std::size_t skew = 0) {
    const auto device = make_device_codec(c.codec);
    ChunkMemory host = c.memory, there = c.memory;
    const auto expected = host_encode(c, host);
    const auto got = device_encode(c.codec, *device, c.partition, c.values, there, kCounter, skew);
    CHECK(difference(got, expected) == "");
    CHECK(difference(there.plane, host.plane) == "");
    CHECK(difference(there.momentum, host.momentum) == "");
    return expected;
  }

  void check_decode(const Codec& codec, const ChunkPartition& partition,
                    const std::vector<std::vector<std::uint8_t>>& bodies, std::size_t skew = 0, int voters = 0) {
    const auto device = make_device_codec(codec);
    std::vector<BodyView> views(bodies.size());
    for (std::size_t r = 0; r < bodies.size(); ++r) REQUIRE(views[r].open(codec, partition, bodies[r]) == "");
    Workers workers(1);
    auto start = make_data(Data::constant, 9, partition.count());
    for (std::size_t i = 0; i < start.size(); i += 3) start[i] = -0.0f;  // what +0 is added to
    for (const bool accumulate : {false, true}) {
      CAPTURE(accumulate);
      auto expected = start;
      const int bad = decode_add(codec, partition, views, kCounter, expected.data(), accumulate, workers, {}, voters);
      const auto got = device_decode_add(codec, *device, partition, bodies, kCounter, start, accumulate, voters, skew);
      CHECK(got.bad == bad);
      if (bad < 0) CHECK(difference(got.out, expected) == "");
    }
  }

  void check(const Codec& codec, Data data, const std::vector<std::size_t>& groups, std::size_t gap = 0,
             std::size_t skew = 0) {
    CAPTURE(codec.spec());
    CAPTURE(name_of(data));
    CAPTURE(groups[0]);
    CAPTURE(skew);
    std::vector<std::vector<std::uint8_t>> bodies;
    ChunkPartition partition;
    for (const Use use : {Use::none, Use::both}) {
      CAPTURE(static_cast<int>(use));
      const Case c = make_case(codec, data, groups, gap, use, 77 + groups[0]);
      bodies.push_back(check_encode(c, skew));
      partition = c.partition;
    }
    check_decode(codec, partition, bodies, skew);
    CHECK(simt::take_reports() == "");
  }

  // Codecs that send the values themselves refuse no bits, and bytes that were changed may be a NaN. Which NaN the sum
  // is then, the format does not say, and a device's additions do not keep.
  bool may_send_nan(const Codec& codec) {
    const std::string_view name = codec.traits().name;
    return name == "fp32" || name == "fp16" || name == "bf16";
  }

  struct SeedGuard {
    ~SeedGuard() { simt::set_seeds({}); }
  };

  }  // namespace

  TEST_CASE("there are codecs with kernels") { CHECK((one_is_asked_for() || device_codecs().size() > 0)); }

  TEST_CASE("bytes, memories and sums are the host's for all data and small counts") {
    Turns turns(5, 11, 11);
    for (const auto& codec : device_codecs())
      for (const Data data : kAllData)
        for (const std::size_t count : {1, 2, 5, 31, 32, 33, 127, 128, 129, 159, 160, 161, 700})
          if (turns.next()) check(*codec, data, {count}, 0, count % 4);
  }

  TEST_CASE("likewise around pieces, for several groups and gaps") {
    for (const auto& codec : device_codecs()) {
      for (const std::size_t count : {10239, 10240, 10241})
        if (!kSanitized || count == 10241) check(*codec, Data::normal, {count}, 0, count % 2);
      check(*codec, Data::sparse, {kSanitized || !is_default(*codec) ? 10241u : 10240u});
      if (!kSanitized && is_default(*codec)) check(*codec, Data::laplace, {40960 + 3});
      check(*codec, Data::normal, {10321, 5, kSanitized ? 77u : 20480u, 1}, 3);
      if (kSanitized) continue;
      check(*codec, Data::alternating, {64, 10240}, 64);
    }
  }

  TEST_CASE("under every order of lanes") {
    const SeedGuard guard;
    for (const auto& codec : device_codecs())
      for (std::uint64_t seed = 0;
           seed < (is_default(*codec) ? effort<std::uint64_t>(16, 5, 3, 3) : effort<std::uint64_t>(5, 3, 3, 3));
           ++seed) {
        CAPTURE(seed);
        simt::set_seeds({seed, seed * 7});
        check(*codec, Data::normal, {333, 161}, 2);
        if (!kSanitized && seed < (is_default(*codec) ? 3 : 1)) check(*codec, Data::sparse, {10240 + 333});
      }
  }

  TEST_CASE("memories that are only written or only read, or of some groups, and several steps") {
    for (const auto& codec : device_codecs()) {
      CAPTURE(codec->spec());
      Case some = make_case(*codec, Data::normal, {1000, 777, 161, 65}, 1, Use::both, 5);
      some.memory.alternate = true;
      check_encode(some);
      check_encode(make_case(*codec, Data::normal, {1000, 77}, 1, Use::kept, 5));
      if (codec->feedback().fused())
        check_encode(make_case(*codec, Data::normal, {1000, 77}, 1, Use::read, 5));  // others always write theirs
      Case c = make_case(*codec, Data::sparse, {2000}, 0, Use::both, 6);
      const auto device = make_device_codec(*codec);
      ChunkMemory host = c.memory, there = c.memory;
      for (std::uint32_t step = 0; step < 4; ++step) {
        c.values = make_data(Data::normal, 60 + step, c.partition.count());
        const RandomCounter counter{0, step, 1};
        CHECK(difference(device_encode(*codec, *device, c.partition, c.values, there, counter),
                         host_encode(c, host, counter)) == "");
        CHECK(difference(there.plane, host.plane) == "");
        CHECK(difference(there.momentum, host.momentum) == "");
      }
    }
    CHECK(simt::take_reports() == "");
  }

  // Of codecs whose residual grows from call to call under force=1, and of others' means and scales.
  TEST_CASE("residuals far beyond what values may be are encoded as on the host, and decoded") {
    for (const char* spec :
         {"qsgd:s=7,bucket=128,memory=residual,force=1", "qsgd:memory=residual,force=1",
          "qsgd:s=1,bucket=10240,memory=residual,force=1", "qsgd:s=200,memory=residual,force=1",
          "terngrad:memory=residual,force=1", "randomk:ratio=0.3,scale=1,memory=residual,force=1", "1bit", "efsignsgd",
          "adaq", "adaq:ratio=1", "fp8:memory=residual,force=1", "fp8:format=e5m2,block=32,memory=residual,force=1"})
      for (const float size : {0x1p40f, 0x1p64f, 0x1p90f, 0x1p118f, 0x1p124f}) {
        const auto codec = make_codec(spec);
        if (!is_asked_for(*codec)) continue;
        CAPTURE(codec->spec());
        CAPTURE(size);
        Case c = make_case(*codec, Data::normal, {10240 + 333}, 0, Use::both, 8);
        for (float& x : c.memory.plane) x *= size;
        check_decode(*codec, c.partition, {check_encode(c)});
        std::vector<float> sum(c.partition.count());
        const auto body = host_encode(c, c.memory);
        BodyView view;
        REQUIRE(view.open(*codec, c.partition, body) == "");
        Workers workers(1);
        CHECK(decode_add(*codec, c.partition, {&view, 1}, kCounter, sum.data(), false, workers) == -1);
      }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("several bodies are added in rank order") {
    for (const auto& codec : device_codecs()) {
      CAPTURE(codec->spec());
      std::vector<std::vector<std::uint8_t>> bodies;
      ChunkPartition partition;
      for (std::uint64_t rank = 0; rank < 5; ++rank) {
        Case c = make_case(*codec, rank % 2 ? Data::sparse : Data::normal, {161, 10241}, 1, Use::none, 50 + rank);
        bodies.push_back(host_encode(c, c.memory));
        partition = c.partition;
      }
      check_decode(*codec, partition, bodies);
      check_decode(*codec, partition, bodies, 1, 7);
    }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("values of every type are widened as they are read, sums rounded as they are stored") {
    Turns turns(4, 9, 9);
    for (const auto& codec : device_codecs()) {
      CAPTURE(codec->spec());
      const auto device = make_device_codec(*codec);
      for (const Dtype type : {Dtype::f64, Dtype::f16, Dtype::bf16})
        for (const std::size_t skew : {0, 1, 2, 3, 4})
          for (const Use use : {Use::none, Use::both}) {
            if (!turns.next()) continue;
            CAPTURE(name_of(type));
            CAPTURE(skew);
            CAPTURE(static_cast<int>(use));
            Case c = make_case(*codec, skew % 2 ? Data::normal : Data::laplace, {161, 10246, 3}, 2, use, 31 + skew);
            const std::size_t count = c.partition.count();
            std::vector<std::uint8_t> raw(count * size_of(type));
            narrow(type, c.values.data(), raw.data(), count);
            widen(type, raw.data(), c.values.data(), count);
            ChunkMemory host = c.memory, there = c.memory;
            const auto expected = host_encode(c, host);
            if (device->converts()) {
              const auto got =
                  device_encode(*codec, *device, c.partition, ConstValues(raw.data(), type), there, kCounter, skew);
              CHECK(difference(got, expected) == "");
              CHECK(difference(there.plane, host.plane) == "");
              CHECK(difference(there.momentum, host.momentum) == "");
            }

            const std::vector<std::vector<std::uint8_t>> bodies(skew % 2 ? 9 : 3, expected);
            std::vector<BodyView> views(bodies.size());
            for (std::size_t r = 0; r < bodies.size(); ++r)
              REQUIRE(views[r].open(*codec, c.partition, bodies[r]) == "");
            Workers workers(1);
            std::vector<float> sums(count);
            REQUIRE(decode_add(*codec, c.partition, views, kCounter, sums.data(), false, workers, {}) == -1);
            std::vector<std::uint8_t> rounded(raw.size(), 0x5a);  // gaps keep that
            for (const Group& g : c.partition.groups())
              narrow(type, sums.data() + g.offset, rounded.data() + g.offset * size_of(type), g.count);
            const DeviceBytes stored = device_decode_to(type, *codec, *device, c.partition, bodies, kCounter,
                                                        std::vector<std::uint8_t>(raw.size(), 0x5a), false, 0, skew);
            CHECK(stored.bad == -1);
            CHECK(difference(stored.out, rounded) == "");
          }
    }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("an empty chunk has no bytes") {
    for (const auto& codec : device_codecs()) {
      ChunkMemory none;
      ChunkPartition partition;
      CHECK(device_encode(*codec, *make_device_codec(*codec), partition, ConstValues(), none, kCounter).empty());
      partition.add_gap(5);
      CHECK(
          device_encode(*codec, *make_device_codec(*codec), partition, std::vector<float>(5), none, kCounter).empty());
    }
  }

  TEST_CASE("jobs of one launch are what they are alone") {
    for (const auto& codec : device_codecs()) {
      CAPTURE(codec->spec());
      const auto device = make_device_codec(*codec);
      std::vector<Case> cases{make_case(*codec, Data::normal, {5000, 10300}, 3, Use::both, 1), Case{*codec, {}, {}, {}},
                              make_case(*codec, Data::laplace, {20481}, 0, Use::both, 2)};
      std::vector<float> values, plane, momentum;
      std::vector<std::uint64_t> at;
      for (const Case& c : cases) {
        at.push_back(values.size());
        values.insert(values.end(), c.values.begin(), c.values.end());
        plane.insert(plane.end(), c.memory.plane.begin(), c.memory.plane.end());
        momentum.insert(momentum.end(), c.memory.momentum.begin(), c.memory.momentum.end());
      }
      const auto counter = [&](std::size_t j) {
        RandomCounter of = kCounter;
        of.element += at[j];
        return of;
      };
      const TestStream stream;
      const DeviceArray<float> in(values), planes(plane), momenta(momentum);
      std::vector<std::unique_ptr<DeviceArray<std::uint8_t>>> bodies;
      std::vector<std::vector<FeedbackView>> feedback(cases.size());
      ChunkArrays encoded, decoded;
      for (std::size_t j = 0; j < cases.size(); ++j) {
        for (const Group& g : cases[j].partition.groups())
          if (float* const r = planes.data() + at[j] + g.offset; !plane.empty()) {
            float* const m = momentum.empty() ? nullptr : momenta.data() + at[j] + g.offset;
            feedback[j].push_back({r, r, m, m});
          }
        bodies.push_back(std::make_unique<DeviceArray<std::uint8_t>>(cases[j].partition.body_bound(*codec)));
        encoded.add(*codec, {cases[j].partition, at[j], feedback[j], bodies[j]->data()});
        decoded.add(*codec, {cases[j].partition, at[j]});
      }
      const DeviceTable encodes(encoded), decodes(decoded);
      const DeviceArray<std::uint8_t> scratch(device->scratch_bytes(*encodes));
      const DeviceArray<std::uint64_t> bytes(std::vector<std::uint64_t>(cases.size()));
      cuda(device->encode(*encodes, in.data(), kCounter, bytes.data(), scratch.data(), stream), "encode");
      stream.wait();

      std::vector<float> host_plane, host_momentum, sums;
      std::vector<const std::uint8_t*> body;
      std::vector<std::unique_ptr<DeviceArray<std::uint64_t>>> offsets;
      std::vector<const std::uint64_t*> offset;
      std::vector<std::unique_ptr<DeviceArray<std::uint8_t>>> malformed;
      std::vector<int> expected_bad;
      Workers workers(1);
      for (std::size_t j = 0; j < cases.size(); ++j) {
        CAPTURE(j);
        ChunkMemory memory = cases[j].memory;
        const auto expected = host_encode(cases[j], memory, counter(j));
        CHECK(difference(bodies[j]->read(bytes.read()[j]), expected) == "");
        host_plane.insert(host_plane.end(), memory.plane.begin(), memory.plane.end());
        host_momentum.insert(host_momentum.end(), memory.momentum.begin(), memory.momentum.end());

        // Decoded beside a body of which the last job's has a bad piece.
        std::vector<std::uint8_t> other = expected;
        std::array<BodyView, 2> views;
        REQUIRE(views[0].open(*codec, cases[j].partition, expected) == "");
        REQUIRE(views[1].open(*codec, cases[j].partition, other) == "");
        if (j == 2) std::memset(other.data() + views[1].offsets()[1], 0xff, views[1].piece(1).size());
        malformed.push_back(std::make_unique<DeviceArray<std::uint8_t>>(other));
        offsets.push_back(std::make_unique<DeviceArray<std::uint64_t>>(views[0].offsets()));
        for (const auto* const bytes_of : {bodies[j]->data(), malformed[j]->data()}) {
          body.push_back(bytes_of);
          offset.push_back(offsets[j]->data());
        }
        std::vector<float> sum(cases[j].partition.count());
        expected_bad.push_back(decode_add(*codec, cases[j].partition, views, counter(j), sum.data(), false, workers));
        sums.insert(sums.end(), sum.begin(), sum.end());
      }
      CHECK(difference(planes.read(), host_plane) == "");
      CHECK(difference(momenta.read(), host_momentum) == "");

      const DeviceArray<const std::uint8_t*> body_array(body);
      const DeviceArray<const std::uint64_t*> offset_array(offset);
      const DeviceArray<float> out(std::vector<float>(values.size()));
      const DeviceArray<std::int32_t> bad(std::vector<std::int32_t>(cases.size(), INT_MAX));
      cuda(device->decode_add(*decodes, {body_array.data(), offset_array.data(), 2}, kCounter, out.data(), false, 0,
                              bad.data(), stream),
           "decode_add");
      stream.wait();
      for (std::size_t j = 0; j < cases.size(); ++j) {
        CAPTURE(j);
        const std::int32_t worst = bad.read()[j];
        CHECK((worst == INT_MAX ? -1 : worst) == expected_bad[j]);
      }
      auto got = out.read();
      got.resize(at[2]), sums.resize(at[2]);  // of what is malformed there is no sum
      CHECK(difference(got, sums) == "");
    }
  }

  // From so many on a block packs several, of more than one job where jobs meet.
  TEST_CASE("jobs of thousands of pieces are packed as on the host") {
    const auto codec = make_codec("3lc");
    const auto device = make_device_codec(*codec);
    const std::vector<float> values = make_data(Data::normal, 4, 3 * 2400);
    std::vector<ChunkPartition> partitions(3);
    std::vector<std::unique_ptr<DeviceArray<std::uint8_t>>> bodies;
    ChunkArrays arrays;
    std::uint64_t at = 0;
    std::vector<std::uint64_t> begins;
    for (const int groups : {1001, 1340, 9}) {
      ChunkPartition& partition = partitions[begins.size()];
      for (int g = 0; g < groups; ++g) partition.add_group(1 + static_cast<std::uint64_t>(g) % 3);
      begins.push_back(at);
      bodies.push_back(std::make_unique<DeviceArray<std::uint8_t>>(partition.body_bound(*codec)));
      arrays.add(*codec, {partition, at, {}, bodies.back()->data()});
      at += partition.count();
    }
    const DeviceArray<float> in(values);
    const DeviceTable table(arrays);
    const DeviceArray<std::uint8_t> scratch(device->scratch_bytes(*table));
    const DeviceArray<std::uint64_t> bytes(std::vector<std::uint64_t>(partitions.size()));
    const TestStream stream;
    cuda(device->encode(*table, in.data(), kCounter, bytes.data(), scratch.data(), stream), "encode");
    stream.wait();
    Workers workers(1);
    for (std::size_t j = 0; j < partitions.size(); ++j) {
      CAPTURE(j);
      RandomCounter counter = kCounter;
      counter.element += begins[j];
      std::vector<std::uint8_t> expected(partitions[j].body_bound(*codec));
      expected.resize(encode_body(*codec, partitions[j], values.data() + begins[j], {}, counter, expected.data(),
                                  nullptr, workers));
      CHECK(difference(bodies[j]->read(bytes.read()[j]), expected) == "");
    }
  }

  // The decoders agree on which mutated pieces are malformed, and on the sums of those that are not.
  TEST_CASE("malformed bodies are refused as on the host") {
    std::mt19937 random(7);
    for (const auto& codec : device_codecs()) {
      CAPTURE(codec->spec());
      int refused = 0;
      const auto device = make_device_codec(*codec);
      for (int round = 0; round < effort(60, 24, 12, 12); ++round) {
        const std::size_t count = round % 6 >= 4 ? kPieceElements
                                  : round % 3    ? 333u
                                                 : 161u;  // whole ones have their own way
        Case c = make_case(*codec, round % 2 ? Data::normal : Data::sparse, {count}, 0, Use::none,
                           80 + static_cast<std::uint64_t>(round));
        // Two payloads, or nine, of which some are taken together.
        std::vector<std::vector<std::uint8_t>> bodies(round % 5 == 3 ? 9 : 2, host_encode(c, c.memory));
        auto& body = bodies[bodies.size() == 9 ? static_cast<std::size_t>(2 + random() % 7)
                                               : static_cast<std::size_t>(round / 4 % 2)];
        const std::size_t prefix = c.partition.prefix_bytes(*codec),
                          end = codec->traits().fixed_size ? prefix + codec->piece_bound(c.partition.pieces()[0].count)
                                                           : prefix + static_cast<std::size_t>(body[0] | body[1] << 8);
        if (end == prefix) continue;
        for (int change = 0; change <= round % 3; ++change) {
          const std::size_t at = round % 2 ? prefix + random() % (end - prefix)
                                           : prefix + random() % std::min<std::size_t>(8, end - prefix);
          body[at] = static_cast<std::uint8_t>(round % 5 ? random() : 255);
        }
        if (bodies.size() == 9 && round % 2) bodies[8] = body;
        std::vector<BodyView> views(bodies.size());
        for (std::size_t r = 0; r < bodies.size(); ++r) REQUIRE(views[r].open(*codec, c.partition, bodies[r]) == "");
        Workers workers(1);
        std::vector<float> expected(c.partition.count());
        const int bad = decode_add(*codec, c.partition, views, kCounter, expected.data(), false, workers);
        const auto got = device_decode_add(*codec, *device, c.partition, bodies, kCounter,
                                           std::vector<float>(c.partition.count()), false);
        CHECK(got.bad == bad);
        if (bad < 0) CHECK(difference(got.out, expected, may_send_nan(*codec) ? Nans::equal : Nans::bits) == "");
        refused += bad >= 0;
      }
      MESSAGE(codec->spec() << ": " << refused << " refused");
    }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("scales that no encoder writes are taken as on the host") {
    for (const char* spec : {"qsgd", "qsgd:s=7", "qsgd:s=100,bucket=1280", "maxmin", "maxmin:bits=8,block=1024",
                             "3lc:zero_run=0", "3lc", "3lc:entropy=1", "terngrad", "8bit", "1bit", "efsignsgd"}) {
      CAPTURE(spec);
      const auto codec = make_codec(spec);
      const auto device = make_device_codec(*codec);
      Case c = make_case(*codec, Data::normal, {kPieceElements}, 0, Use::none, 21);
      const auto body = host_encode(c, c.memory);
      for (const std::uint32_t bits :
           {0u,          1u,          7u,          0x7fffffu,   0x800000u,   0xffffffu,   0x1000000u,
            0x1000001u,  0x0c123456u, 0x1fffffffu, 0x20000000u, 0x20000001u, 0x3f99999au, 0x7dffffffu,
            0x7e000000u, 0x7e000001u, 0x7f7fffffu, 0x7f800000u, 0x7fc00000u, 0x80000000u, 0xbf800000u}) {
        CAPTURE(bits);
        std::vector<std::vector<std::uint8_t>> bodies(3, body);
        std::memcpy(bodies[1].data() + c.partition.prefix_bytes(*codec), &bits, sizeof bits);
        std::vector<BodyView> views(bodies.size());
        for (std::size_t r = 0; r < bodies.size(); ++r) REQUIRE(views[r].open(*codec, c.partition, bodies[r]) == "");
        Workers workers(1);
        for (const bool accumulate : {false, true}) {
          std::vector<float> expected(c.partition.count(), accumulate ? -0.0f : 5.0f);
          const std::vector<float> before = expected;
          const int bad = decode_add(*codec, c.partition, views, kCounter, expected.data(), accumulate, workers);
          const auto got = device_decode_add(*codec, *device, c.partition, bodies, kCounter, before, accumulate);
          CHECK(got.bad == bad);
          if (bad < 0) CHECK(difference(got.out, expected, Nans::equal) == "");
        }
      }
    }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("of equal magnitudes the same ones are selected") {
    std::mt19937 random(11);
    for (const auto& codec : device_codecs()) {
      if (!codec->traits().selects) continue;
      CAPTURE(codec->spec());
      for (const int levels : {1, 2, 5}) {
        Case c = make_case(*codec, Data::zeros, {30001, 700, 10240}, 3, Use::none, 1);
        for (float& x : c.values)
          x = static_cast<float>(random() % static_cast<unsigned>(levels) + 1) * (random() % 2 ? 0.25f : -0.25f) *
              (random() % 8 ? 1.0f : 0.0f);
        const auto body = check_encode(c);
        check_decode(*codec, c.partition, {body});
        if (kSanitized) break;
      }
    }
    CHECK(simt::take_reports() == "");
  }

  // The selection looks at a sample first and reads a group once, unless the sample has misled. `of` gives a value to
  // an element that is in the sample, or not.
  TEST_CASE("many elements between a sample's ends are settled as on the host") {
    std::mt19937 random(19);
    std::normal_distribution<float> normal;
    for (const char* spec : {"topk:ratio=0.3", "adaq:ratio=0.3"})
      for (const float levels : {0.0f, 3000.0f}) {
        const auto codec = make_codec(spec);
        if (!is_asked_for(*codec)) continue;
        CAPTURE(spec);
        CAPTURE(levels);
        // More than settling keeps in shared memory.
        Case c = make_case(*codec, Data::normal, {300007}, 0, Use::none, 23);
        for (float& x : c.values) {
          x = normal(random);
          if (levels != 0.0f) x = std::round(levels * x);
        }
        check_encode(c);
      }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("what a sample shows does not change what is selected") {
    constexpr std::size_t kCount = 30011;
    std::vector<char> seen(kCount);
    for (std::uint32_t j = 0; j < select::kSample; ++j) seen[select::sample_index(j, kCount)] = 1;
    REQUIRE(std::count(seen.begin(), seen.end(), 1) > select::kSample * 9 / 10);
    std::mt19937 random(17);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform;
    const auto sign = [&] { return random() % 2 ? 1.0f : -1.0f; };
    struct Kind {
      const char* name;
      std::function<float(bool, std::size_t)> of;
    };
    const Kind kinds[] = {
        {"all larger outside", [&](bool in, std::size_t) { return in ? 1e-6f * normal(random) : normal(random); }},
        {"all smaller outside", [&](bool in, std::size_t) { return in ? normal(random) : 1e-6f * normal(random); }},
        {"zeros in it", [&](bool in, std::size_t) { return in ? 0.0f : normal(random); }},
        {"zeros outside", [&](bool in, std::size_t) { return in ? normal(random) : 0.0f; }},
        {"more between the ends than fits",
         [&](bool in, std::size_t) { return sign() * (in ? 1 + uniform(random) : 1.9f); }},
        {"more between them, at several places",
         [&](bool in, std::size_t) { return sign() * (in ? 1 + uniform(random) : 1.9f + 0.001f * uniform(random)); }},
        {"one level", [&](bool, std::size_t) { return 0.5f; }},
        {"one level, both signs", [&](bool, std::size_t) { return sign() * 0.5f; }},
        {"two levels", [&](bool, std::size_t) { return sign() * (random() % 100 ? 0.5f : 2.0f); }},
        {"few levels", [&](bool, std::size_t) { return sign() * static_cast<float>(random() % 12); }},
        {"many levels", [&](bool, std::size_t) { return std::round(300 * normal(random)); }},
        {"zeros", [&](bool, std::size_t) { return sign() * 0.0f; }},
        {"mostly zeros", [&](bool, std::size_t) { return random() % 200 ? -0.0f : normal(random); }},
        {"the largest and the smallest",
         [&](bool, std::size_t) {
           return sign() * (random() % 50 ? 0x1p-149f * static_cast<float>(random() % 9) : 0x1p98f);
         }},
        {"what lies between side by side",
         [&](bool, std::size_t i) { return sign() * static_cast<float>(kCount - i); }},
        {"normal", [&](bool, std::size_t) { return normal(random); }},
    };
    Turns turns(5, 5, 7);  // with eleven codecs and sixteen kinds
    for (const char* spec : {"topk", "topk:ratio=0.3", "topk:ratio=1e-9", "topk:ratio=0.99999", "topk:ratio=0.9",
                             "topk:memory=momentum", "adaq", "adaq:ratio=0.3", "adaq:ratio=0.99999", "dgc", "sidco"}) {
      const auto codec = make_codec(spec);
      if (!is_asked_for(*codec)) continue;
      CAPTURE(spec);
      for (const Kind& kind : kinds) {
        CAPTURE(kind.name);
        for (const Use use : {Use::none, Use::both}) {
          CAPTURE(static_cast<int>(use));
          if (!turns.next()) continue;
          Case c = make_case(*codec, Data::zeros, {333, kCount, 8193}, 3, use, 1);
          for (std::size_t i = 0; i < kCount; ++i) c.values[336 + i] = kind.of(seen[i], i);
          for (const std::size_t i : {0, 5, 332}) c.values[i] = c.values[336 + i];
          for (float& r : c.memory.plane) r = 0.0f;
          for (float& r : c.memory.momentum) r = 0.0f;
          check_encode(c);
        }
      }
    }
    CHECK(simt::take_reports() == "");
  }

  // Of the groups the last is counted in a sample, where k is large enough.
  TEST_CASE("a threshold is kept from call to call as on the host") {
    const SeedGuard guard;
    for (const std::string spec : {"topk:reuse=3", "topk:reuse=100,ratio=0.0101,value=f16", "topk:reuse=4,ratio=0.002",
                                   "topk:reuse=3,ratio=0.05,memory=momentum", "topk:reuse=2,ratio=1"}) {
      const auto codec = make_codec(spec);
      if (!is_asked_for(*codec)) continue;
      CAPTURE(spec);
      REQUIRE(codec->keeps_state());
      const std::size_t groups = 4;
      Case c =
          make_case(*codec, Data::normal, {7, 10241, 30000, effort(120001u, 65537u, 65537u, 65537u)}, 3, Use::both, 1);
      for (float& r : c.memory.plane) r = 0.0f;
      for (float& r : c.memory.momentum) r = 0.0f;
      ChunkMemory host = c.memory, there = c.memory;
      host.states = there.states = std::vector<float>(groups * Codec::kStateFloats);
      const auto device = make_device_codec(*codec);
      int again = 0, anew = 0;
      for (std::uint32_t step = 0; step < (kSanitized ? 3 : 6); ++step) {
        CAPTURE(step);
        simt::set_seeds({step, step});
        c.values = make_data(Data::normal, 3 + step, c.values.size());
        if (step == 4)
          for (float& x : c.values) x *= 3.0f;  // what is kept would send too many
        const auto before = host.states;
        const auto expected = host_encode(c, host);
        CHECK(difference(device_encode(*codec, *device, c.partition, c.values, there, kCounter, step % 2), expected) ==
              "");
        CHECK(difference(there.plane, host.plane) == "");
        CHECK(difference(there.momentum, host.momentum) == "");
        CHECK(difference(there.states, host.states) == "");
        for (std::size_t g = 0; g < groups; ++g) (host.states[2 * g + 1] == before[2 * g + 1] - 1.0f ? again : anew)++;
      }
      CHECK(anew > 4);
      CHECK((again > 0) == (spec.find("ratio=1") == spec.npos));
    }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("a scale of whole tensors has no kernels: such calls go through the host") {
    for (const std::string codec : {"3lc", "8bit", "terngrad", "efsignsgd"}) {
      CHECK(make_device_codec(*make_codec(codec)) != nullptr);
      CHECK(make_device_codec(*make_codec(codec + ":scale=tensor")) == nullptr);
    }
  }

  // Sets of elements that no encoder writes, legal or not. head: elements and form; behind it the values, then the set.
  TEST_CASE("sets of elements are accepted and refused as on the host") {
    const auto codec = make_codec("topk");
    const auto device = make_device_codec(*codec);
    int refused = 0, accepted = 0;
    const auto piece = [&](std::size_t n, std::uint32_t head, std::size_t values, const std::vector<std::uint8_t>& set,
                           float value = 1.5f) {
      ChunkPartition partition;
      partition.add_group(n);
      std::vector<std::uint8_t> body(64);
      body.push_back(static_cast<std::uint8_t>(head));
      body.push_back(static_cast<std::uint8_t>(head >> 8));
      for (std::size_t j = 0; j < values; ++j) {
        std::uint8_t four[4];
        std::memcpy(four, &value, 4);
        body.insert(body.end(), four, four + 4);
      }
      body.insert(body.end(), set.begin(), set.end());
      const std::size_t bytes = body.size() - 64;
      body[0] = static_cast<std::uint8_t>(bytes);
      body[1] = static_cast<std::uint8_t>(bytes >> 8);
      body.resize(round_up(body.size(), kPayloadAlign));
      CAPTURE(n);
      CAPTURE(head);
      CAPTURE(set.size());
      BodyView view;
      REQUIRE(view.open(*codec, partition, body) == "");
      Workers workers(1);
      std::vector<float> expected(n);
      const int bad = decode_add(*codec, partition, {&view, 1}, kCounter, expected.data(), false, workers);
      const auto got = device_decode_add(*codec, *device, partition, std::vector<std::vector<std::uint8_t>>{body},
                                         kCounter, std::vector<float>(n), false);
      CHECK(got.bad == bad);
      if (bad < 0) CHECK(difference(got.out, expected) == "");
      ++(bad < 0 ? accepted : refused);
    };
    using Bytes = std::vector<std::uint8_t>;
    const std::uint32_t map = 0x8000;
    piece(10240, 8192, 8192, Bytes(8192, 0));  // gaps where a bitmap is shorter
    piece(10240, 8192, 8192, Bytes(8191, 0));
    piece(10240, 8191, 8191, Bytes(8192, 0));
    piece(10240, 5120, 5120, Bytes(5120, 1));
    piece(10240, 5121, 5121, Bytes(5121, 1));  // the last one is behind the piece
    piece(10240, 1, 1, {255, 255, 240, 240, 0});
    piece(10240, 1, 1, {255, 255, 248, 159});  // the last element
    piece(10240, 1, 1, {255, 255, 249, 160});
    piece(10240, 1, 1, Bytes(43, 240));
    piece(10240, 1, 1, {7, 240});  // ends with a skip
    piece(10240, 2, 2, {7});
    piece(10240, 2, 2, {7, 7, 7});
    piece(10240, 1, 1, {});
    piece(10240, 1, 1, {240, 7, 7});
    piece(333, 2, 2, {240, 91, 0});
    piece(333, 2, 2, {240, 91, 1});
    piece(333, 0, 0, {});
    piece(333, 0x4001, 1, {5});  // a reserved bit
    piece(333, 334, 1, {5});
    piece(333, 3, 1, {5});  // fewer values than promised
    piece(333, 1, 1, {5}, INFINITY);
    piece(333, 1, 1, {5}, NAN);
    for (const std::size_t n : {333u, 320u, 8u, 9u}) {
      Bytes bits((n + 7) / 8, 0);
      piece(n, map | 1, 1, bits);
      bits.back() = static_cast<std::uint8_t>(1 << (n - 1) % 8);
      piece(n, map | 1, 1, bits);
      piece(n, map | 2, 2, bits);
      bits.push_back(0);
      piece(n, map | 1, 1, bits);
      bits.resize(bits.size() - 2);
      piece(n, map | 1, 1, bits);
    }
    Bytes bits(42, 0);
    bits.back() = 1 << 5;  // element 333 of 333
    piece(333, map | 1, 1, bits);
    piece(10240, map | 10240, 10240, Bytes(1280, 255));
    CHECK(accepted > 8);
    CHECK(refused > 20);
    CHECK(simt::take_reports() == "");
  }

  // What two_shot's owners encode: of sums codecs do not scale again, and where ranks keep a momentum they have a plain
  // residual.
  TEST_CASE("sums are encoded as on the host") {
    for (const char* spec : {"randomk:ratio=0.3,scale=1", "randomk", "signsgd", "signum", "qsgd", "dgc:ratio=0.1",
                             "topk:memory=momentum", "3lc:memory=momentum"}) {
      const auto codec = make_codec(spec);
      CAPTURE(codec->spec());
      const auto device = make_device_codec(*codec);
      Case c = make_case(*codec, Data::sparse, {10240, 333}, 3, codec->traits().votes ? Use::none : Use::both, 9);
      c.memory.momentum.clear();
      for (const std::uint32_t rank : {1u, kSums + 1}) {
        const RandomCounter counter{0, 7, rank};
        ChunkMemory host = c.memory, there = c.memory;
        const auto expected = host_encode(c, host, counter);
        CHECK(difference(device_encode(*codec, *device, c.partition, c.values, there, counter), expected) == "");
        CHECK(difference(there.plane, host.plane) == "");
        check_decode(*codec, c.partition, {expected}, 0, 3);
      }
    }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("more ranks than sums of a few bits hold, or a warp has lanes") {
    for (const char* const spec : {"signsgd", "3lc", "thc"}) {
      const auto codec = make_codec(spec);
      CAPTURE(codec->spec());
      std::vector<std::vector<std::uint8_t>> bodies;
      ChunkPartition partition;
      for (const std::size_t ranks : {9, 127, 128, 200}) {
        CAPTURE(ranks);
        while (bodies.size() < ranks) {
          const auto data = bodies.size() % 3 == 0 ? Data::sparse : bodies.size() < 127 ? Data::constant : Data::normal;
          Case c = make_case(*codec, data, {333}, 0, Use::none, 3 + bodies.size());
          bodies.push_back(host_encode(c, c.memory));
          partition = c.partition;
        }
        check_decode(*codec, partition, bodies, ranks % 2);
      }
    }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("votes whose planes contradict each other are refused as on the host") {
    const auto codec = make_codec("signsgd");
    const auto device = make_device_codec(*codec);
    Case c = make_case(*codec, Data::sparse, {333}, 0, Use::none, 3);
    const auto good = host_encode(c, c.memory);
    const std::size_t arrays = c.partition.prefix_bytes(*codec);
    REQUIRE(good[arrays + 42] != 0);  // most are zeros
    for (const auto& [at, byte] : {std::pair<std::size_t, std::uint8_t>{41, 0x20}, {42 + 41, 0x3f}, {0, 0xff}}) {
      auto bad = good;
      bad[arrays + at] = byte;
      const auto got = device_decode_add(*codec, *device, c.partition, std::vector{good, bad}, kCounter,
                                         std::vector<float>(333), false);
      CHECK(got.bad == 1);
      std::vector<BodyView> views(2);
      REQUIRE(views[0].open(*codec, c.partition, good) == "");
      REQUIRE(views[1].open(*codec, c.partition, bad) == "");
      Workers workers(1);
      std::vector<float> sum(333);
      CHECK(decode_add(*codec, c.partition, views, kCounter, sum.data(), false, workers) == 1);
    }
    CHECK(simt::take_reports() == "");
  }

  // What a random mutation hardly meets: a norm of zero before indices that are not, infinite means, and bits behind
  // the last element.
  TEST_CASE("malformed bodies of single codecs are refused as on the host") {
    struct Change {
      const char* spec;
      std::size_t count, at;
      std::vector<std::uint8_t> bytes;
    };
    const std::vector<Change> changes = {
        {"fp16", 333, 0, {0}},
        {"fp16", 333, 0, {240}},
        {"fp16", 1300, 2, {1}},
        {"topk:ratio=0.3,value=f16", 333, 2, {0, 0}},
        {"topk:ratio=0.3,value=f16", 333, 2, {1, 1}},
        {"threshold:v=0.5,value=f16", 333, 2, {240, 0}},
        {"qsgd", 333, 0, {0xff, 0xff, 0x7f, 0x7f}},
        {"maxmin", 333, 4, {0xff, 0xff, 0x7f, 0x7f}},
        {"thc", 2100, 4, {0, 0, 0, 0}},
        {"thc:bits=3", 1025, 4, {0, 0, 0, 0}},
        {"thc:bits=2", 200, 0, {0, 0, 0, 0}},
        {"thc", 1025, 4, {0, 0, 0, 0x80}},
        {"thc", 2100, 8, {0, 0, 0x80, 0x0c}},
        {"sketchml", 333, 252, {0, 0, 0x80, 0x7f}},
        {"sketchml:quantiles=3", 333, 12 + 41, {0x20}},
        {"sketchml:quantiles=3", 333, 12, {0xff, 0}},
        {"1bit", 333, 4, {0, 0, 0x80, 0x7f}},
        {"1bit", 333, 8 + 41, {0x20}},
        {"efsignsgd", 333, 0, {0, 0, 0xc0, 0x7f}},
        {"signsgd", 333, 41, {0x20}},
        {"signum", 333, 41, {0xff}},
        {"adaq:ratio=0.3", 333, 2, {0, 0, 0x80, 0x7f}},
        {"adaq:ratio=0.3", 333, 2, {0, 0, 0, 0}},
        {"adaq:ratio=0.3", 333, 2, {0, 0, 0x80, 0xbf}},
        {"adaq:ratio=0.3", 333, 6, {0, 0, 0xc0, 0x7f}},
        {"adaq:ratio=0.3", 333, 10, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},  // a mean that nothing has
        {"adaq:ratio=0.3", 333, 22, {0xf0}},
        {"adaq:ratio=0.3", 333, 0, {0, 0}},
        {"adaq:ratio=0.3", 333, 0, {100, 0x40}}};  // 100 elements
    for (const Change& change : changes) {
      const auto codec = make_codec(change.spec);
      CAPTURE(codec->spec());
      CAPTURE(change.at);
      const auto device = make_device_codec(*codec);
      REQUIRE(device);
      Case c = make_case(*codec, Data::normal, {change.count}, 0, Use::none, 3);
      std::vector<std::vector<std::uint8_t>> bodies(3, host_encode(c, c.memory));
      std::copy(change.bytes.begin(), change.bytes.end(),
                bodies[1].begin() + static_cast<std::ptrdiff_t>(c.partition.prefix_bytes(*codec) + change.at));
      std::vector<BodyView> views(3);
      for (std::size_t r = 0; r < 3; ++r) REQUIRE(views[r].open(*codec, c.partition, bodies[r]) == "");
      Workers workers(1);
      std::vector<float> sum(change.count);
      CHECK(decode_add(*codec, c.partition, views, kCounter, sum.data(), false, workers) >= 0);
      const auto got =
          device_decode_add(*codec, *device, c.partition, bodies, kCounter, std::vector<float>(change.count), false);
      CHECK(got.bad == 1);
    }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("PowerSGD's steps have the host's bits, for several tensors at once and in calls that follow one another") {
    using powersgd::Tensor;
    const SeedGuard guard;
    struct Arrays {
      float *values, *out, *memory, *left, *before, *right;
    };
    const auto steps = [](const char* spec, const std::vector<std::uint64_t>& sizes, Data data, bool with_memory,
                          bool in_place, std::size_t skew, bool wide = false) {
      CAPTURE(std::string(spec));
      CAPTURE(name_of(data));
      CAPTURE(sizes[0]);
      CAPTURE(with_memory);
      const auto codec = make_codec(spec);
      std::vector<powersgd::Matrix> matrices;
      std::uint64_t count = 0, memories = 0, lefts = 0, rights = 0;
      for (const std::uint64_t n : sizes) {
        const auto& m = matrices.emplace_back(powersgd::matrix_of(n, codec->parameter_word()));
        count += n;
        memories += codec->feedback_elements(n);
        lefts += m.left();
        rights += m.right();
      }
      const auto tensors_in = [&](Arrays a, std::uint32_t step) {
        std::vector<Tensor> all;
        std::uint64_t at = 0;
        for (const auto& m : matrices) {
          all.push_back({m,
                         {at, step},
                         a.values,
                         in_place ? a.values : a.out,
                         with_memory ? a.memory : nullptr,
                         a.left,
                         a.before,
                         a.right});
          at += m.count;
          a.values += m.count, a.out += m.count, a.memory += codec->feedback_elements(m.count), a.left += m.left(),
              a.before += m.right(), a.right += m.right();
        }
        return all;
      };
      // Behind the arrays is a guard each.
      constexpr float kGuard = 7.0f;
      std::vector<float> values(count + 1, kGuard), out(count + 1, kGuard), memory(memories + 1),
          left(lefts + 1, kGuard), before(rights + 1, kGuard), right(rights + 1, kGuard);
      // A Q whose columns sum to 0 beside one of ones: their dot product is what rounding leaves, which the order of
      // sums decides, and it becomes the elements that are 0.
      if (wide)
        for (std::uint64_t at = 0; const auto& m : matrices) {
          const auto any = make_data(Data::normal, 9, m.right());
          for (std::size_t k = 0; k < m.rank; ++k)
            for (std::size_t e = 0; e < m.cols; ++e) {
              const std::size_t pair = std::min<std::size_t>(e, m.cols - 1 - e);
              const float x = std::ldexp(any[k * m.cols + pair], static_cast<int>(pair * 37 % 41));
              memory[at + m.count + k * m.cols + e] = k == 0 ? 1.0f : pair % 7 == 0 ? 0.0f : e == pair ? x : -x;
            }
          at += codec->feedback_elements(m.count);
        }
      const DeviceArray<float> memory_there(memory, 4 * skew);
      Workers workers(1);
      const TestStream stream;
      for (std::uint32_t call = 0; call < 3; ++call) {
        CAPTURE(call);
        values = make_data(data, 30 + call, count + 1);
        for (float& x : values) x = std::fmin(std::fmax(x, -0x1p78f), 0x1p78f);
        const DeviceArray<float> values_there(values, 4 * skew), out_there(out, 4 * skew), left_there(left),
            before_there(before), right_there(right);
        const auto host =
            tensors_in({values.data(), out.data(), memory.data(), left.data(), before.data(), right.data()}, call);
        std::vector<powersgd::DeviceTensor> table(host.size());
        auto all = powersgd::device_tensors(tensors_in({values_there.data(), out_there.data(), memory_there.data(),
                                                        left_there.data(), before_there.data(), right_there.data()},
                                                       call),
                                            table.data());
        const DeviceArray<powersgd::DeviceTensor> table_there(table);
        all.tensors = table_there.data();
        for (const auto step : {powersgd::Step::project, powersgd::Step::project_back, powersgd::Step::rebuild}) {
          CAPTURE(static_cast<int>(step));
          powersgd::run_step(step, host, 0.25f, workers, {});
          cuda(powersgd::enqueue_step(step, all, 0.25f, stream), "enqueue_step");
          stream.wait();
          CHECK(difference(left_there.read(), left) == "");
          CHECK(difference(before_there.read(), before) == "");
          CHECK(difference(right_there.read(), right) == "");
        }
        CHECK(difference(values_there.read(), values) == "");
        CHECK(difference(out_there.read(), out) == "");
        CHECK(difference(memory_there.read(), memory) == "");
      }
      CHECK(simt::take_reports() == "");
    };
    // Whole and short last rows, one and several blocks of each kind, exact tensors first and last. Constant values
    // have rank 1: further columns of P vanish.
    for (std::uint64_t seed = 0; seed < effort<std::uint64_t>(16, 5, 3, 3); ++seed) {
      CAPTURE(seed);
      simt::set_seeds({seed, seed * 7});
      steps("powersgd:min=1", {71, 30, 1031}, Data::normal, true, false, seed % 4);
      steps("powersgd:min=1,r=3", {5, 600, 9001}, seed % 2 ? Data::normal : Data::constant, true, true, 0);
      steps("powersgd:min=1,r=8", {4099, 40}, Data::laplace, seed % 2, false, 1, seed == 1);
    }
    for (const char* spec : {"powersgd:min=1", "powersgd:min=1,r=2", "powersgd:min=1,r=4", "powersgd:min=1,r=5"})
      for (const Data data : kAllData) {
        if (data == Data::normal) steps(spec, {40961, 4096, 1, 16381}, data, true, false, 0);
        else if (!kSanitized) steps(spec, {1031, 4096}, data, true, false, 0);
      }
    if (!kSanitized)
      steps("powersgd:r=2", {300000}, Data::normal, true, false, 0,
            true);  // 500 x 600: every lane of a dot product has elements, some have two
    steps("powersgd", {100, 20000}, Data::sparse, true, false, 3);
    steps("powersgd", {4095, 1}, Data::normal, true, false, 0);  // no matrix at all
  }

  TEST_CASE("golden bytes") {
    std::map<std::string, int> lines;
    for (const auto& file : golden_files()) {
      std::ifstream in(file);
      REQUIRE(in.good());
      for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::string kind, spec, groups, data, equals, bytes;
        std::uint64_t seed;
        std::size_t count;
        if (!(words >> kind >> spec >> groups >> data >> seed >> count >> equals >> bytes) || kind != "bytes") continue;
        const auto codec = make_codec(spec);
        const auto device = make_device_codec(*codec);
        if (!device || !is_asked_for(*codec)) continue;
        CAPTURE(line);
        ChunkPartition partition;
        const std::size_t step = groups == "tensor" ? count : 10240;
        for (std::size_t at = 0; at < count; at += step) partition.add_group(std::min(step, count - at));
        ChunkMemory memory{std::vector<float>(count), {}, true, true};
        if (codec->feedback().arrays() > 1) memory.momentum.resize(count);
        CHECK(hex(device_encode(*codec, *device, partition,
                                data == "example37" ? example37() : make_data(data_named(data), seed, count), memory,
                                {0, 0, 0})) == bytes);
        ++lines[codec->traits().name];
      }
    }
    for (const auto& codec : device_codecs())
      CHECK_MESSAGE(lines[codec->traits().name] > 0, "no golden bytes for " << codec->traits().name);
  }
}
