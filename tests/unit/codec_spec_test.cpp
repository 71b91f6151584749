#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "codec/spec.hpp"
#include "codec/codec.hpp"
#include "core/error.hpp"
#include "support/piece.hpp"

using namespace crimp;
using namespace crimp::test;

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

TEST_SUITE("codec_spec") {
  TEST_CASE("wire ids are those of the format and in order") {
    const std::pair<const char*, int> expected[] = {{"none", 1}, {"fp16", 2}, {"bf16", 3}, {"3lc", 4}};
    std::size_t i = 0;
    int last = 0;
    for (const auto& info : codecs()) {
      CHECK(info.name == info.traits.name);
      CHECK(info.traits.wire_id > last);
      last = info.traits.wire_id;
      CHECK(find_codec(info.traits.wire_id) == &info);
      CHECK(!info.summary.empty());
      if (i < std::size(expected)) {
        CHECK(info.name == expected[i].first);
        CHECK(info.traits.wire_id == expected[i].second);
      }
      ++i;
    }
    CHECK(i >= std::size(expected));
    CHECK(find_codec(0) == nullptr);
    CHECK(find_codec(255) == nullptr);
  }

  TEST_CASE("every codec's canonical text makes an equal codec") {
    std::vector<std::string> specs{"3lc:s=1.75", "3lc:zero_run=0", "3lc:s=1.25,zero_run=1", "3lc:zero_run=0,s=1.9999999", "3lc:s=1.1"};
    for (const auto& info : codecs()) {
      specs.emplace_back(info.name);
      std::string all(info.name);
      for (const auto& p : info.parameters) all += (all.size() == info.name.size() ? ":" : ",") + std::string(p.key) + "=" + std::string(p.default_value);
      CHECK(make_codec(all)->spec() == make_codec(info.name)->spec());
    }
    for (const auto& spec : specs) {
      CAPTURE(spec);
      const auto codec = make_codec(spec), again = make_codec(codec->spec());
      CHECK(again->spec() == codec->spec());
      CHECK(again->parameter_word() == codec->parameter_word());
      CHECK(again->traits().fixed_size == codec->traits().fixed_size);
      CHECK(again->memory().kind == codec->memory().kind);
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
    has_all(refusal("3lcc"), {"'3lcc'", "did you mean '3lc'?", "none", "fp16", "bf16", "crimp info"});
    has_all(refusal("fp15:x=1"), {"did you mean 'fp16'?"});
    has_all(refusal(""), {"''", "none, fp16, bf16, 3lc"});
    has_all(refusal("FP16"), {"fp16"});
    has_all(refusal(":s=1"), {"':s=1'"});
  }

  TEST_CASE("an unknown parameter is refused with the legal ones") {
    has_all(refusal("3lc:sparsity=1"), {"'sparsity=1'", "s (0.25 <= s < 2)", "zero_run (0 or 1)"});
    has_all(refusal("3lc:s"), {"'s'", "key=value"});
    has_all(refusal("3lc:,s=1"), {"''"});
    has_all(refusal("fp16:s=1"), {"'s=1'", "legal: memory (none, residual, momentum or average)"});
  }

  TEST_CASE("an illegal value is refused with its name, itself and what is legal") {
    for (const char* s : {"2", "0.249", "-1", "nan", "inf", "2.5", "1.9999999999"}) has_all(refusal(std::string("3lc:s=") + s), {"s is '", s, "0.25 <= s < 2"});
    for (const char* s : {"", "one", "1x", " 1", "1e-400"}) has_all(refusal(std::string("3lc:s=") + s), {"s is '", s, "a number"});
    for (const char* z : {"2", "yes", ""}) has_all(refusal(std::string("3lc:zero_run=") + z), {"zero_run is '", z, "0 or 1"});
  }

  TEST_CASE("numbers in texts read back as the same float") {
    for (const double x : {1.0, 1.5, 1.75, 1.1, 1.9999999, 0.1}) CHECK(std::strtof(spec_number(x).c_str(), nullptr) == static_cast<float>(x));
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
