// stoch8: the facts of its format, each on its own.
#include <doctest/doctest.h>

#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("stoch8") {
  TEST_CASE("levels and zeros are sent as they are, after the largest magnitude") {
    const auto codec = make_codec("stoch8:levels=4");
    CHECK(encode(*codec, {1.0f, -0.5f, 0.0f, -2.0f, 1.5f}) == piece_of({2.0f}, {130, 127, 128, 124, 131}));
    CHECK(encode(*codec, {0.0f, -0.0f}) == piece_of({0.0f}, {128, 128}));
    CHECK(through(*codec, {1.0f, -0.5f, 0.0f, -2.0f, 1.5f}) == std::vector<float>{1.0f, -0.5f, 0.0f, -2.0f, 1.5f});
  }

  TEST_CASE("what lies between two levels becomes each as often as it is near") {
    const auto codec = make_codec("stoch8:levels=1");
    int above = 0;
    for (std::uint32_t step = 0; step < 4000; ++step) above += encode(*codec, {1.0f, 0.25f}, {0, step, 0})[5] == 129;
    CHECK(above > 1000 - 5 * 28);  // five standard deviations of 4000 draws
    CHECK(above < 1000 + 5 * 28);
  }

  TEST_CASE("malformed pieces are refused") {
    const auto codec = make_codec("stoch8:levels=4");
    const Bytes good = piece_of({2.0f}, {130, 127});
    CHECK_FALSE(refuses(*codec, good, 2, [](Bytes&) {}));
    CHECK(refuses(*codec, good, 2, [](Bytes& b) { b.push_back(128); }));
    CHECK(refuses(*codec, good, 2, [](Bytes& b) { b[4] = 123; }));
    CHECK(refuses(*codec, good, 2, [](Bytes& b) { b[5] = 133; }));
    CHECK(refuses(*codec, good, 2, [](Bytes& b) { b[3] = 0xc0; }));
    CHECK(refuses(*codec, good, 2, [](Bytes& b) { b[3] = 0x7f, b[2] = 0x80; }));
  }

  TEST_CASE("levels are in the parameter word and have a range") {
    CHECK(make_codec("stoch8")->spec() == "stoch8:levels=127");
    CHECK(make_codec("stoch8:levels=7")->parameter_word() == 7);
    for (const char* bad : {"0", "128", "1.5"})
      CHECK(has(refusal(std::string("stoch8:levels=") + bad), "legal is a whole number, 1 to 127"));
  }
}
