#include "collective/frame.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <vector>

using namespace crimp;

TEST_SUITE("frame") {
  namespace {

  Header second_stage() {
    Header h;
    h.codec = 4;
    h.count = 100;
    h.stage = 1;
    return h;
  }

  std::vector<std::uint8_t> bytes_from(std::size_t count, std::uint8_t first) {
    std::vector<std::uint8_t> bytes(count);
    std::iota(bytes.begin(), bytes.end(), first);
    return bytes;
  }

  }  // namespace

  TEST_CASE("a header says its body's bytes and hash, and nothing else changes") {
    Header h = second_stage();
    seal(h, {}, true);
    CHECK(h.body_hash == 0x2d06800538d394c2);  // XXH3-64 of no bytes, as its author publishes it
    CHECK(h.body_bytes == 0);
    auto body = bytes_from(128, 7);
    const auto before = body;
    seal(h, body, true);
    CHECK(h.body_bytes == 128);
    CHECK(body == before);
    const std::uint64_t hash = h.body_hash;
    seal(h, body, false);
    CHECK(h.body_hash == 0);
    h.body_hash = hash;
    Header same = second_stage();
    same.body_bytes = 128;
    same.body_hash = hash;
    CHECK(std::memcmp(&h, &same, sizeof h) == 0);
  }

  TEST_CASE("every altered byte of a body is found where it was hashed, and only there") {
    Header hashed = second_stage(), trusting = hashed;
    auto body = bytes_from(192, 0);
    seal(hashed, body, true);
    seal(trusting, body, false);
    CHECK(defect(hashed, body) == "");
    for (auto& byte : body) {
      byte ^= 1;
      CHECK(defect(hashed, body) == "its checksum is wrong");
      CHECK(defect(hashed, body, false) == "");
      CHECK(defect(trusting, body) == "");
      byte ^= 1;
    }
  }

  TEST_CASE("a body of another length than is due is not read") {
    Header h = second_stage();
    auto body = bytes_from(192, 0);
    seal(h, body, true);
    CHECK(defect(h, std::span(body).first(128)) == "it has 192 bytes, 128 are due");
    CHECK(defect(h, {static_cast<const std::uint8_t*>(nullptr), 64}) == "it has 192 bytes, 64 are due");
  }

  TEST_CASE("a sender without a body says so, and why depends on when") {
    Header h = second_stage();
    h.flags = kFlagCorrupt;
    CHECK(defect(h, {}).find("met a corrupt payload") != std::string::npos);
    h.stage = 0;
    CHECK(defect(h, {}).find("its device failed") == 0);
  }

  TEST_CASE("a frame is its header and its body, and both are checked") {
    auto frame = bytes_from(64 + 128, 3);
    const auto before = frame;
    seal_frame(second_stage(), frame, true);
    Header h;
    std::memcpy(&h, frame.data(), sizeof h);
    CHECK(h.body_bytes == 128);
    CHECK(h.count == 100);
    CHECK(std::equal(frame.begin() + 64, frame.end(), before.begin() + 64));
    CHECK(frame_defect(second_stage(), frame) == "");
    for (std::size_t i = 0; i < frame.size(); ++i) {
      if (i >= 48 && i < 56) continue;  // the sender's times
      auto other = frame;
      other[i] ^= 0x40;
      CAPTURE(i);
      CHECK(frame_defect(second_stage(), other) != "");
    }
    Header other = second_stage();
    other.chunk = 1;
    CHECK(frame_defect(other, frame) == "the chunk number is 0, here 1");
    CHECK(frame_defect(second_stage(), std::span(frame).first(128)) == "it has 128 bytes, 64 are due");
  }
}
