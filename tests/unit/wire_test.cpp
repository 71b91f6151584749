#include "collective/wire.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstring>
#include <set>
#include <string>

#include "codec/codec.hpp"
#include "collective/algorithms.hpp"
#include "support/wire_format.hpp"

using namespace crimp;

TEST_SUITE("wire") {
  TEST_CASE("the header's bytes are those of the format") {
    Header h;
    h.codec = 4;
    h.dtype = 3;
    h.flags = 2;
    h.count = 0x1122334455667788;
    h.body_bytes = 0x40;
    h.body_hash = 0x0102030405060708;
    h.call = 0xa1a2a3a4;
    h.chunk = 0xb1b2b3b4;
    h.parameters = 0xc1c2c3c4;
    h.layout = 0xd1d2d3d4;
    h.encode_us = 0xe1e2e3e4;
    h.wire_us = 0xf1f2f3f4;
    h.algorithm = Algorithm::hierarchical;
    h.stage = 5;
    h.say({0x899a, 0x45566778});
    const unsigned char expected[64] = {'C',  'R',  'M',  'P',  1,    4,    3,    2,    0x88, 0x77, 0x66, 0x55, 0x44,
                                        0x33, 0x22, 0x11, 0x40, 0,    0,    0,    0,    0,    0,    0,    8,    7,
                                        6,    5,    4,    3,    2,    1,    0xa4, 0xa3, 0xa2, 0xa1, 0xb4, 0xb3, 0xb2,
                                        0xb1, 0xc4, 0xc3, 0xc2, 0xc1, 0xd4, 0xd3, 0xd2, 0xd1, 0xe4, 0xe3, 0xe2, 0xe1,
                                        0xf4, 0xf3, 0xf2, 0xf1, 4,    5,    0x9a, 0x89, 0x78, 0x67, 0x56, 0x45};
    CHECK(std::memcmp(&h, expected, 64) == 0);
  }

  TEST_CASE("what must be equal is compared and what is the sender's own is not") {
    Header mine;
    mine.codec = 4;
    mine.count = 100;
    CHECK(disagreement(mine, mine) == "");
    const auto changed = [&](auto change) {
      Header got = mine;
      change(got);
      return disagreement(mine, got);
    };
    CHECK(changed([](Header& h) { h.body_bytes = 640; }) == "");
    CHECK(changed([](Header& h) { h.body_hash = 1; }) == "");
    CHECK(changed([](Header& h) {
            h.encode_us = 1;
            h.wire_us = 2;
          }) == "");
    CHECK(changed([](Header& h) { h.flags = kFlagExact; }) == "");
    CHECK(changed([](Header& h) { h.flags = kFlagExact | kFlagNoMemory; }) == "");
    CHECK(changed([](Header& h) { h.flags = kFlagForeign; }) == "");
    CHECK(changed([](Header& h) { h.flags = kFlagOutlier; }) == "");
    CHECK(changed([](Header& h) { h.flags = kFlagNoGradient; }) == "");
    CHECK(changed([](Header& h) { h.flags = kFlagFirst; }) == "");
    CHECK(changed([](Header& h) { h.magic ^= 1; }).find("no Crimp header") != std::string::npos);
    CHECK(changed([](Header& h) { h.version = 2; }).find("version is 2, here 1") != std::string::npos);
    CHECK(changed([](Header& h) { h.codec = 2; }).find("the codec is fp16, here 3lc") != std::string::npos);
    CHECK(changed([](Header& h) { h.dtype = 1; }).find("type") != std::string::npos);
    CHECK(changed([](Header& h) { h.flags = 128; }).find("reserved") != std::string::npos);
    CHECK(changed([](Header& h) { h.flags = kFlagCorrupt; }).find("reserved") != std::string::npos);
    mine.stage = 1;
    CHECK(changed([](Header& h) { h.flags = kFlagCorrupt; }) == "");
    // What sends a call through MPI comes too late there.
    for (const int flag :
         {+kFlagExact, +kFlagNoMemory, +kFlagForeign, +kFlagOutlier, +kFlagNoGradient, +kFlagFirst, 128})
      CHECK(changed([&](Header& h) { h.flags = static_cast<std::uint8_t>(flag); }).find("reserved") !=
            std::string::npos);
    mine.stage = 0;
    CHECK(changed([](Header& h) { h.say({1, 1u << 31}); }) == "");
    CHECK(changed([](Header& h) { h.wait = 1u << 31; }).find("period") != std::string::npos);
    CHECK(changed([](Header& h) {
            h.algorithm = Algorithm::two_shot;
          }).find("the algorithm is two_shot, here allgather") != std::string::npos);
    CHECK(changed([](Header& h) { h.stage = 1; }).find("the stage is 1, here 0") != std::string::npos);
    CHECK(changed([](Header& h) { h.count = 101; }).find("count is 101 (in chunk 0), here 100") != std::string::npos);
    CHECK(changed([](Header& h) { h.call = 1; }).find("call number") != std::string::npos);
    CHECK(changed([](Header& h) { h.chunk = 1; }).find("chunk") != std::string::npos);
    CHECK(changed([](Header& h) { h.parameters = 1; }).find("parameter") != std::string::npos);
    CHECK(changed([](Header& h) { h.layout = 1; }).find("tensors' names, sizes") != std::string::npos);
    CHECK(changed([](Header& h) { h.body_bytes = 63; }).find("body size is 63, no multiple") != std::string::npos);
  }

  TEST_CASE("what a program gave is said before what Crimp made of it, by the names that people write") {
    Header mine;
    mine.codec = 4;
    mine.dtype = static_cast<std::uint8_t>(Dtype::f32);
    mine.count = 100000;
    Header got = mine;
    got.codec = 2, got.parameters = 3, got.algorithm = Algorithm::one_shot;
    got.layout = 1;
    CHECK(disagreement(mine, got, "on rank 0") ==
          "the tensors' names, sizes, order or shares are others than on rank 0");
    got.count = 99000;
    CHECK(disagreement(mine, got, "on rank 0") ==
          "the element count is 99000 (in chunk 0), on rank 0 100000; the tensors or their sizes are others");
    got.dtype = static_cast<std::uint8_t>(Dtype::f64);
    CHECK(disagreement(mine, got) == "the element type is float64, here float32");
    got = mine;
    got.count = 50000, got.algorithm = Algorithm::reduce_scatter;  // whose chunks may be shorter
    CHECK(disagreement(mine, got) == "the algorithm is reduce_scatter, here allgather");
    got.parameters = 3;
    CHECK(disagreement(mine, got) == "the parameters of the codec 3lc are others than here");
    got.call = mine.call ^ kNoCall;
    CHECK(disagreement(mine, got, "on rank 0") == "(or on rank 0) a node's ranks are in different calls");
  }

  TEST_CASE("ids that this build does not have are said as numbers") {
    Header mine, got;
    got.codec = 255;
    CHECK(disagreement(mine, got) == "the codec is 255, here 0");
    got.dtype = 254;
    CHECK(disagreement(mine, got) == "the element type is 254, here 0");
    got = mine;
    got.algorithm = static_cast<Algorithm>(253);
    CHECK(disagreement(mine, got) == "the algorithm is 253, here allgather");
    for (const CodecInfo& codec : codecs()) {
      got = mine;
      got.codec = codec.traits.wire_id;
      CHECK(disagreement(mine, got) == "the codec is " + std::string(codec.name) + ", here 0");
    }
  }

  TEST_CASE("a sentence names both ranks, and of rank 0 alone one") {
    CHECK(not_in_one("MPI_Reduce", 12, differing("the element count", 99, 100, kOnFirst)) ==
          "rank 12 and rank 0 are not in the same MPI_Reduce: on rank 12 the element count is 99, on rank 0 100");
    CHECK(not_in_one("MPI_Reduce", 0, "reserved header bits are set") ==
          "rank 0 is not in the same MPI_Reduce: on rank 0 reserved header bits are set");
  }

  TEST_CASE("ids of algorithms are those of the format, all of them") {
    const auto field = test::ids_of_field("algorithm"), headings = test::ids_of_headings("6");
    CHECK(field.size() >= 6);  // the table was found
    CHECK(field == headings);
    CHECK(algorithms().size() + 1 == field.size());
    std::set<std::string> names;
    std::vector<AlgorithmEntry> all(algorithms().begin(), algorithms().end());
    all.push_back(scattering());
    for (const auto& entry : all) {
      CAPTURE(entry.name);
      CHECK(names.insert(entry.name).second);
      CHECK((field.contains(entry.name) && field.at(entry.name) == static_cast<int>(entry.algorithm)));
    }
  }
}
