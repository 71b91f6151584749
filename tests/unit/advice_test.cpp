// What `crimp plan` recommends, out of rows that are given; rates and times as they are typed.
#include "advice.hpp"

#include <doctest/doctest.h>

#include "codec/codec.hpp"
#include "quantities.hpp"

using namespace crimp;
using namespace crimp::tools;

TEST_SUITE("advice") {
  namespace {

  const std::string kTernary = make_codec("3lc")->spec(), kSparse = make_codec("3lc:s=1.75")->spec();

  std::vector<Forecast> rows(double plain, double halves, double ternary, double sparse) {
    std::vector<Forecast> all{{.codec = "none", .algorithm = "mpi", .merge = "all", .step_s = plain}};
    for (const auto& [codec, step_s] : {std::pair{std::string("fp16"), halves}, {kTernary, ternary}, {kSparse, sparse}})
      for (const char* algorithm : {"allgather", "auto"})
        all.push_back({.codec = codec, .algorithm = algorithm, .merge = "all", .step_s = step_s});
    return all;
  }

  }  // namespace

  TEST_CASE("the shortest step whose risk is small") {
    const Advice a = advise(rows(10, 6, 3, 2), {}, {});
    CHECK(a.pays);
    CHECK(a.taken.codec == kTernary);  // 3lc with s=1.75 lost 0.6 points of the CNN
    CHECK(a.gain == doctest::Approx(10. / 3));
    CHECK(a.over_halves == doctest::Approx(2));
    REQUIRE(a.risk);
    CHECK(a.risk->points <= 0);
    CHECK(a.line == "CRIMP_MERGE=auto crimp run -np 2 --codec 3lc -- ./your_program");
    const Advice bold = advise(rows(10, 6, 3, 2), {},
                               {.most_loss = 1, .caller = Caller::program, .threads = 4, .program = "./x", .ranks = 8});
    CHECK(bold.taken.codec == kSparse);
    CHECK(bold.line == "CRIMP_THREADS=4 crimp run -np 8 --codec 3lc:s=1.75 -- ./x");
  }

  TEST_CASE("16 bits, where stronger codecs gain hardly more") {
    CHECK(advise(rows(10, 5.1, 5, 5), {}, {}).taken.codec == "fp16");
    CHECK(advise(rows(10, 5.3, 5, 5), {}, {}).taken.codec == kTernary);
  }

  TEST_CASE("it does not pay") {
    const Advice a = advise(rows(10, 9.9, 9.8, 9.7), {.compute_s = 9.6}, {.program = "./train", .ranks = 4});
    CHECK(!a.pays);
    CHECK(a.taken.codec == "none");
    CHECK(a.gain == 1);
    CHECK(a.most_gain == doctest::Approx(10 / 9.6));
    CHECK(a.line == "mpirun -np 4 ./train");
    // What only gains with a loss that is not allowed does not count; nor what was not measured.
    CHECK(!advise(rows(10, 10, 10, 1), {}, {}).pays);
    auto unknown = rows(10, 10, 10, 10);
    unknown.push_back({.codec = "3lc:s=1.5,zero_run=1,entropy=0,scale=piece", .algorithm = "allgather", .step_s = 1});
    unknown.push_back({.codec = "3lc:s=1.5,zero_run=1,entropy=0,scale=piece", .algorithm = "auto", .step_s = 1});
    CHECK(!advise(unknown, {}, {}).pays);
  }

  TEST_CASE("risks are docs/quality.md's") {
    // fp32: 84.0 and 82.9.
    CHECK(risk_of("none", "mpi")->points == 0);
    CHECK(risk_of(kSparse, "two_shot")->points == doctest::Approx(82.9 - 78.8));
    CHECK(risk_of(kSparse, "allgather")->points == doctest::Approx(82.9 - 82.3));
    CHECK(risk_of(make_codec("dgc:ratio=0.001")->spec(), "two_shot")->diverged);
    CHECK(risk_of(kSparse, "one_shot")->points == risk_of(kSparse, "allgather")->points);  // the same bits
    CHECK(!risk_of(kTernary, "low_rank"));
    CHECK(!risk_of("no such codec", "allgather"));
    // What this build calls its codecs is what the table has.
    for (const char* codec :
         {"fp16", "8bit", "qsgd", "maxmin:bits=4", "thc", "1bit", "topk:ratio=0.01", "3lc", "3lc:s=1.75"}) {
      CAPTURE(codec);
      CHECK(risk_of(make_codec(codec)->spec(), "allgather"));
    }
    // Of auto the worst of those that it chooses from.
    std::vector<Forecast> all = rows(10, 6, 3, 2);
    all.push_back({.codec = kSparse, .algorithm = "two_shot", .step_s = 3});
    CHECK(risk_of(all[6], all)->points == doctest::Approx(4.1));
  }

  TEST_CASE("a codec's shortest text is the same codec") {
    CHECK(short_codec("none") == "none");
    for (const char* codec :
         {"fp16", "3lc", "3lc:entropy=1", "3lc:s=1.5,scale=tensor", "topk:ratio=0.2,value=f16", "dgc:ratio=0.01"}) {
      const std::string spec = make_codec(codec)->spec(), text = short_codec(spec);
      CAPTURE(text);
      CHECK(make_codec(text)->spec() == spec);
      CHECK(text.size() <= std::string(codec).size());
    }
  }

  TEST_CASE("rates and times") {
    for (const char* text : {"1G", "1g", "1gbit", "1Gbit/s", "1000M", "1e9", "1000000000", "1Gbps", "1 Gb/s"}) {
      CAPTURE(text);
      REQUIRE(parse_rate(text));
      CHECK(*parse_rate(text) == doctest::Approx(1e9));
    }
    CHECK(*parse_rate("2.5G") == doctest::Approx(2.5e9));
    CHECK(rate_text(999.4e6) == "999 Mbit/s");
    CHECK(rate_text(999.7e6) == "1 Gbit/s");
    CHECK(rate_text(999.7e9) == "1 Tbit/s");
    for (const char* text : {"1.25GB/s", "1.25 GBps", "1250MB", "1.25e9B"}) {  // bytes
      CAPTURE(text);
      REQUIRE(parse_rate(text));
      CHECK(*parse_rate(text) == doctest::Approx(1e10));
    }
    CHECK(*parse_rate("10GBit/s") == doctest::Approx(1e10));
    for (const char* text : {"", "G", "0", "-1G", "1X", "nan", "inf", "1e400", "1GG", "1G 2", "fast"}) {
      CAPTURE(text);
      CHECK(!parse_rate(text));
    }
    CHECK(*parse_time("50us") == doctest::Approx(5e-5));
    CHECK(*parse_time("50") == doctest::Approx(5e-5));
    CHECK(*parse_time("1.5 ms") == doctest::Approx(1.5e-3));
    CHECK(*parse_time("0") == 0);
    for (const char* text : {"", "us", "-1us", "5h", "nan"}) CHECK(!parse_time(text));
    CHECK(rate_text(1e8) == "100 Mbit/s");
    CHECK(rate_text(2.5e10) == "25 Gbit/s");
  }
}
