#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "codec/codec.hpp"
#include "codec/spec.hpp"
#include "core/error.hpp"
#include "support/piece.hpp"
#include "support/wire_format.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("codec_spec") {
  namespace {

  bool has_all(const std::string& text, std::initializer_list<const char*> parts) {
    bool all = true;
    for (const char* part : parts)
      if (text.find(part) == text.npos) {
        FAIL_CHECK("'" << std::string(part) << "' is missing in: " << text);
        all = false;
      }
    return all;
  }

  }  // namespace

  TEST_CASE("wire ids are those of the format, all of them, and in order") {
    const Ids field = ids_of_field("codec"), headings = ids_of_headings("4");
    CHECK(field.size() >= 24);  // the table was found
    CHECK(field == headings);
    CHECK(codecs().size() == field.size());
    int last = 0;
    for (const auto& info : codecs()) {
      CAPTURE(info.name);
      const std::string name(info.name);
      CHECK(name == info.traits.name);
      CHECK(field.contains(name));
      CHECK((field.contains(name) && field.at(name) == info.traits.wire_id));
      CHECK(info.traits.wire_id > last);
      last = info.traits.wire_id;
      CHECK(!info.summary.empty());
    }
    CHECK(last < 255);  // ids rise from 1 on: no two are the same
  }

  TEST_CASE("every codec's canonical text makes an equal codec") {
    std::vector<std::string> specs{"3lc:s=1.75", "3lc:zero_run=0", "3lc:s=1.25,zero_run=1",
                                   "3lc:zero_run=0,s=1.9999999", "3lc:s=1.1"};
    for (const auto& info : codecs()) {
      specs.emplace_back(info.name);
      std::string all(info.name);
      for (const auto& p : info.parameters)
        all += (all.size() == info.name.size() ? ":" : ",") + std::string(p.key) + "=" + value_text(p, p.default_value);
      CHECK(make_codec(all)->spec() == make_codec(info.name)->spec());
    }
    for (const auto& spec : specs) {
      CAPTURE(spec);
      const auto codec = make_codec(spec), again = make_codec(codec->spec());
      CHECK(again->spec() == codec->spec());
      CHECK(again->parameter_word() == codec->parameter_word());
      CHECK(again->traits().fixed_size == codec->traits().fixed_size);
      CHECK(again->feedback().kind == codec->feedback().kind);
    }
    CHECK(make_codec("3lc")->spec() == "3lc:s=1,zero_run=1,entropy=0,scale=piece");
    CHECK(make_codec("3lc")->parameter_word() == 1);
    CHECK(make_codec("3lc:zero_run=0")->parameter_word() == 0);
    CHECK(make_codec("3lc:zero_run=0")->traits().fixed_size);
    CHECK_FALSE(make_codec("3lc")->traits().fixed_size);
    CHECK(make_codec("3lc:entropy=1")->parameter_word() == 3);
    has_all(refusal("3lc:entropy=1,zero_run=0"), {"entropy is '1'", "0 where zero_run=0"});
  }

  TEST_CASE("an unknown codec is refused with the nearest name and all legal ones") {
    has_all(refusal("3lcc"), {"'3lcc'", "did you mean '3lc'?", "fp32", "fp16", "bf16", "crimp info"});
    has_all(refusal("fp15:x=1"), {"did you mean 'fp16'?"});
    has_all(refusal(""), {"''", "fp32, fp16, bf16, 3lc"});
    has_all(refusal("FP16"), {"fp16"});
    has_all(refusal(":s=1"), {"':s=1'"});
  }

  TEST_CASE("an unknown parameter is refused with the legal ones") {
    has_all(refusal("3lc:sparsity=1"), {"'sparsity=1'", "s (0.25 <= s < 2)", "zero_run (0 or 1)"});
    has_all(refusal("3lc:s"), {"'s'", "key=value"});
    for (const char* s : {"3lc:,s=1", "3lc:s=1,", "3lc:s=1,,entropy=1", "3lc:", "fp16:"})
      has_all(refusal(s), {s, "''"});
    has_all(refusal("fp16:s=1"), {"'s=1'", "legal: memory (none, residual, momentum or average)"});
  }

  TEST_CASE("an illegal value is refused with its name, itself and what is legal") {
    for (const char* s : {"2", "0.249", "-1", "nan", "inf", "2.5", "1.9999999999"})
      has_all(refusal(std::string("3lc:s=") + s), {"s is '", s, "0.25 <= s < 2"});
    for (const char* s : {"", "one", "1x", " 1", "1e-400"})
      has_all(refusal(std::string("3lc:s=") + s), {"s is '", s, "a number"});
    for (const char* z : {"2", "yes", ""})
      has_all(refusal(std::string("3lc:zero_run=") + z), {"zero_run is '", z, "0 or 1"});
  }

  TEST_CASE("a parameter that is given twice is refused, whatever its values") {
    has_all(refusal("3lc:s=1,s=1.9"), {"'3lc:s=1,s=1.9'", "s is given twice", "once"});
    has_all(refusal("fp16:memory=none,memory=none"), {"memory is given twice"});
    has_all(refusal("dgc:momentum=0.5,ratio=0.1,momentum=0.9"), {"momentum is given twice"});
    CHECK(make_codec("fp16:memory=residual")->spec() == "fp16:memory=residual");
  }

  TEST_CASE("none is no codec, and the refusal says which words are") {
    for (const char* text : {"none", "none:memory=none", "none:memory=residual"})
      has_all(refusal(text), {text, "none is no codec", "none alone", "fp32"});
    CHECK(make_codec("fp32")->traits().wire_id == 1);
    CHECK(make_codec("fp32:memory=residual")->spec() == "fp32:memory=residual");
  }

  // The row is the only source: what it says of a range, a step or words is what is refused, at its ends and between.
  TEST_CASE("every parameter of every codec is refused outside its row, and nowhere within") {
    for (const auto& info : codecs())
      for (const auto& row : info.parameters) {
        const auto text = [&](const std::string& value) {
          return std::string(info.name) + ":" + std::string(row.key) + "=" + value;
        };
        CAPTURE(text(""));
        CHECK(!row.help.empty());
        has_all(refusal(text("what")), {row.words.empty() ? "a number" : legal_text(row).c_str()});
        for (const auto& word : row.words)
          CHECK(make_codec(text(std::string(word)) + (word == "1" && row.key == "entropy" ? ",zero_run=1" : ""))
                    ->spec()
                    .find(row.key) != std::string::npos);
        if (!row.words.empty()) continue;
        const double step = row.step == 0 ? 0.001 * std::fabs(row.most) : row.step;
        for (const double beyond : {row.least - step, row.most + step})
          has_all(refusal(text(value_text(row, beyond))), {legal_text(row).c_str()});
        if (row.step > 1) has_all(refusal(text(spec_number(row.least + 1))), {"a multiple of"});
        if (row.step == 1) has_all(refusal(text(spec_number(row.least + 0.5))), {"a whole number"});
        if (!row.also.empty()) continue;
        for (const auto& [bound, open] : {std::pair{row.least, row.above_least}, {row.most, row.below_most}}) {
          if (!open)
            CHECK(make_codec(text(value_text(row, bound)) + (row.key == "zero_run" ? ",entropy=0" : ""))
                      ->spec()
                      .find(value_text(row, bound)) != std::string::npos);
          else has_all(refusal(text(value_text(row, bound))), {legal_text(row).c_str()});
        }
      }
  }

  TEST_CASE("a row says what is legal as a sentence does") {
    CHECK(legal_text({.key = "x", .least = 0.25, .most = 2, .below_most = true}) == "0.25 <= x < 2");
    CHECK(legal_text({.key = "x", .least = 0, .most = 1, .above_least = true}) == "0 < x <= 1");
    CHECK(legal_text({.key = "x", .least = 0, .most = 0x1p100}) == "0 <= x <= 2^100");
    CHECK(legal_text({.key = "x", .least = -14, .most = -2, .step = 1}) == "a whole number, -14 to -2");
    CHECK(legal_text({.key = "x", .least = 128, .most = 10240, .step = 128}) == "a multiple of 128, 128 to 10240");
    CHECK(legal_text({.key = "x", .least = 3, .most = 62, .step = 1, .also = "above 31 even"}) ==
          "a whole number, 3 to 62, above 31 even");
    CHECK(legal_text(flag_parameter("", true, "")) == "0 or 1");
    CHECK(legal_text(kMemory) == "none, residual, momentum or average");
  }

  TEST_CASE("kernels and host code read what the text says, and a parameter that a codec does not have is an error") {
    CHECK(make_codec("thc:bits=3,g=17")->parameter(Parameter<int>{{.key = "g"}}) == 17);
    CHECK(make_codec("3lc:s=1.1")->parameter(Parameter<float>{{.key = "s"}}) == 1.1f);
    CHECK(make_codec("3lc")->parameter(Parameter<bool>{{.key = "zero_run"}}));
    CHECK(make_codec("3lc:scale=tensor")->parameter(kScaleOf) == ScaleOf::tensor);
    try {
      make_codec("topk")->parameter(Parameter<float>{{.key = "ration"}});
      FAIL("a key that is not there has a value");
    } catch (const Error& e) {
      has_all(e.what(), {"topk", "no parameter ration"});
    }
    CHECK_THROWS_AS(make_codec("natural")->parameter(kScaleOf), Error);
  }

  // A float32 holds whole numbers up to 2^24.
  TEST_CASE("large whole numbers stay what they are in canonical texts") {
    for (const char* min : {"16777217", "268435455", "268435454"}) {
      const auto codec = make_codec(std::string("powersgd:min=") + min);
      has_all(codec->spec(), {min});
      CHECK(make_codec(codec->spec())->parameter_word() == codec->parameter_word());
    }
    CHECK(make_codec("dgc:warmup=100000")->spec() == make_codec("dgc:warmup=1e+05")->spec());
  }

  TEST_CASE("a zero has no sign in canonical texts") {
    CHECK(make_codec("threshold:v=-0")->spec() == make_codec("threshold:v=0")->spec());
    CHECK(make_codec("threshold:v=-0")->parameter_word() == make_codec("threshold:v=0")->parameter_word());
  }

  TEST_CASE("numbers in texts read back as the same float") {
    for (const double x : {1.0, 1.5, 1.75, 1.1, 1.9999999, 0.1})
      CHECK(std::strtof(spec_number(x).c_str(), nullptr) == static_cast<float>(x));
    CHECK(spec_number(1.0) == "1");
    CHECK(spec_number(1.75) == "1.75");
  }

  TEST_CASE("error codes have names and texts of their own") {
    std::set<std::string> names;
    for (const ErrorCode code : {
#define CRIMP_ITEM(name, text) ErrorCode::name,
             CRIMP_ERRORS(CRIMP_ITEM)
#undef CRIMP_ITEM
         }) {
      CHECK(names.insert(name_of(code)).second);
      CHECK(*text_of(code));
    }
    CHECK(std::string(name_of(ErrorCode::payload_corrupt)) == "payload_corrupt");
    CHECK(std::string(name_of(static_cast<ErrorCode>(99))) == "unknown");
  }
}
