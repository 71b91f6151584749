#include <doctest/doctest.h>

#include "horovod/response_cache.hpp"

using crimp::horovod::Response;
using crimp::horovod::ResponseCache;

TEST_SUITE("horovod_cache") {
  namespace {

  Response named(const std::string& name, std::int64_t size = 1) {
    Response r;
    r.names = {name};
    r.sizes = {size};
    return r;
  }

  std::string at(const ResponseCache& cache, std::size_t bit) {
    return cache.peek(bit) ? cache.peek(bit)->names.front() : "-";
  }

  std::string all(const ResponseCache& cache) {
    std::string text;
    for (std::size_t b = 0; b < cache.bits(); ++b) {
      text += at(cache, b);
      if (cache.peek(b)) CHECK(cache.bit(at(cache, b)) == b);
    }
    return text;
  }

  void put_all(ResponseCache& cache, const std::string& names) {
    for (const char c : names) cache.put(named(std::string(1, c)));
  }

  }  // namespace

  TEST_CASE("new entries take the next bits") {
    ResponseCache cache(10);
    put_all(cache, "abc");
    CHECK(all(cache) == "abc");
    CHECK(cache.peek(3) == nullptr);
    CHECK(cache.use(3) == nullptr);
  }

  TEST_CASE("an entry put again keeps its bit and has the new content") {
    ResponseCache cache(3);
    put_all(cache, "abc");
    cache.put(named("a", 7));
    CHECK(all(cache) == "abc");
    CHECK(cache.peek(0)->sizes.front() == 7);
    cache.put(named("d"));  // b is the oldest now
    CHECK(all(cache) == "adc");
  }

  TEST_CASE("at capacity the least recently used gives its bit away") {
    ResponseCache cache(3);
    put_all(cache, "abc");
    CHECK(cache.use(0)->names.front() == "a");
    cache.put(named("d"));
    CHECK(all(cache) == "adc");
    cache.peek(2);  // looking is not using
    cache.put(named("e"));
    CHECK(all(cache) == "ade");
    put_all(cache, "fgh");
    CHECK(all(cache) == "fgh");
    CHECK(cache.bits() == 3);
  }

  TEST_CASE("erased entries leave holes until bits are dealt again from the least recently used") {
    ResponseCache cache(10);
    put_all(cache, "abcde");
    cache.use(0);
    cache.erase(2);
    CHECK(all(cache) == "ab-de");
    CHECK(cache.use(2) == nullptr);
    cache.erase(2);
    cache.erase(99);
    cache.put(named("f"));  // holes are not filled
    CHECK(all(cache) == "ab-def");
    cache.deal_bits_again();
    CHECK(all(cache) == "bdeaf");
  }

  TEST_CASE("bits stay as they are where nothing was erased") {
    ResponseCache cache(10);
    put_all(cache, "abc");
    cache.use(0);
    cache.deal_bits_again();
    CHECK(all(cache) == "abc");
    cache.erase(1);
    cache.deal_bits_again();
    CHECK(all(cache) == "ca");
    cache.use(0);
    cache.deal_bits_again();
    CHECK(all(cache) == "ca");
  }

  TEST_CASE("an erased entry makes room before others are evicted") {
    ResponseCache cache(3);
    put_all(cache, "abc");
    cache.erase(1);
    cache.put(named("d"));
    CHECK(all(cache) == "a-cd");
    cache.put(named("e"));  // full again: a goes
    CHECK(all(cache) == "e-cd");
    cache.deal_bits_again();
    CHECK(all(cache) == "cde");
  }

  TEST_CASE("all erased, cleared and no capacity") {
    ResponseCache cache(2);
    put_all(cache, "ab");
    cache.erase(0);
    cache.erase(1);
    cache.deal_bits_again();
    CHECK(cache.bits() == 0);
    put_all(cache, "cde");
    CHECK(all(cache) == "ed");
    cache.erase(0);
    cache.clear();
    CHECK(cache.bits() == 0);
    put_all(cache, "d");  // as if it had never been there
    CHECK(all(cache) == "d");
    cache.clear();
    put_all(cache, "x");
    cache.deal_bits_again();
    CHECK(all(cache) == "x");
    ResponseCache none(0);
    put_all(none, "ab");
    CHECK(none.bits() == 0);
    CHECK(none.peek(0) == nullptr);
  }
}
