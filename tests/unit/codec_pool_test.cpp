// One codec for all texts that mean the same.
#include "codec/codec_pool.hpp"

#include <doctest/doctest.h>

#include "core/error.hpp"

using namespace crimp;

TEST_SUITE("codec_pool") {
  TEST_CASE("texts that mean the same are one codec, and only these") {
    CodecPool pool;
    const auto codec = pool.get("3lc");
    CHECK(pool.get(codec->spec()) == codec);
    CHECK(pool.get("3lc:s=1") == codec);
    CHECK(pool.get("3lc:s=1.5") != codec);
    CHECK(pool.get("fp16") != pool.get("bf16"));
    CHECK(CodecPool().get("3lc") != codec);
    CHECK_THROWS_AS(pool.get("3lcc"), Error);
    CHECK(pool.get("3lc") == codec);
  }
}
