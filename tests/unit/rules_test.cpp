#include <doctest/doctest.h>

#include "core/error.hpp"
#include "core/settings.hpp"
#include "schedule/rules.hpp"

using namespace crimp;

TEST_SUITE("rules") {
  namespace {

  std::string codec_for(const Rules& rules, const std::string& name, std::uint64_t count) {
    const int i = rules.match(name, count);
    return i < 0 ? "-" : rules.all().at(static_cast<std::size_t>(i)).codecs.front();
  }

  }  // namespace

  TEST_CASE("patterns and sizes are read with spaces anywhere and empty rules nowhere") {
    const Rules rules("  *.bias = none ;; <4096=fp16;>= 2M = 3lc:s=1.5,zero_run=0 ; a[0-9]?=bf16;  ");
    REQUIRE(rules.all().size() == 4);
    CHECK(rules.all()[0].pattern == "*.bias");
    CHECK(rules.all()[0].codecs == std::vector<std::string>{"none"});
    CHECK(rules.all()[1].pattern == "");
    CHECK(rules.all()[1].below == 4096);
    CHECK(rules.all()[2].from == 2 << 20);
    CHECK(rules.all()[2].codecs == std::vector<std::string>{"3lc:s=1.5,zero_run=0"});
    CHECK(rules.all()[3].pattern == "a[0-9]?");
  }

  TEST_CASE("no rules match nothing") {
    for (const char* text : {"", "  ", ";", " ; ;"}) {
      CHECK(Rules(text).all().empty());
      CHECK(Rules(text).match("x", 1) == -1);
    }
    CHECK(Rules().match("x", 1) == -1);
  }

  TEST_CASE("the first match wins") {
    const Rules rules("*.head.*=none; <100=fp16; *.bias=bf16; >=1k=3lc");
    CHECK(codec_for(rules, "net.head.bias", 10) == "none");
    CHECK(codec_for(rules, "net.bias", 99) == "fp16");
    CHECK(codec_for(rules, "net.bias", 100) == "bf16");
    CHECK(codec_for(rules, "net.weight", 1023) == "-");
    CHECK(codec_for(rules, "net.weight", 1024) == "3lc");
  }

  TEST_CASE("patterns cover the whole name") {
    const Rules rules("bias=none; layer?=fp16; conv[12].*=bf16");
    CHECK(codec_for(rules, "net.bias", 1) == "-");
    CHECK(codec_for(rules, "bias", 1) == "none");
    CHECK(codec_for(rules, "layer1", 1) == "fp16");
    CHECK(codec_for(rules, "layer12", 1) == "-");
    CHECK(codec_for(rules, "conv2.weight", 1) == "bf16");
    CHECK(codec_for(rules, "conv3.weight", 1) == "-");
    CHECK(codec_for(Rules("*=none"), "allreduce/any.name", 1) == "none");  // a slash is no border
    CHECK(codec_for(Rules("*=none"), ".hidden", 1) == "none");
  }

  TEST_CASE("suffixes of sizes") {
    CHECK(Rules("<3=none").all()[0].below == 3);
    CHECK(Rules("<3k=none").all()[0].below == 3072);
    CHECK(Rules(">=3M=none").all()[0].from == 3 << 20);
    CHECK(Rules(">=3G=none").all()[0].from == 3ull << 30);
  }

  TEST_CASE("codecs to choose from") {
    const Rules rules("a=3lc | 8bit|fp16; *=none");
    CHECK(rules.all()[0].codecs == std::vector<std::string>{"3lc", "8bit", "fp16"});
    CHECK(rules.all()[1].codecs == std::vector<std::string>{"none"});
  }

  TEST_CASE("tensors may be summed exactly without momentum") {
    const Rules rules("*accuracy*= none:memory=none ; *=none; <5=3lc");
    CHECK(rules.all()[0].codecs == std::vector<std::string>{"none"});
    CHECK(rules.all()[0].plain);
    CHECK(rules.all()[1].codecs == std::vector<std::string>{"none"});
    CHECK_FALSE(rules.all()[1].plain);
    CHECK_FALSE(rules.all()[2].plain);
  }

  TEST_CASE("a bad rule is named with what is legal") {
    for (const char* bad : {"bias",
                            "=none",
                            "*.bias=",
                            "<=none",
                            "<x=none",
                            "<0=none",
                            ">5=none",
                            "<-1=none",
                            "<1T=none",
                            "<1kk=none",
                            "<1.5=none",
                            ">=",
                            ">=none",
                            ">=0=none",
                            "<99999999999999999999=none",
                            "<18446744073709551615M=none",
                            "<18014398509481984k=none",
                            "a=3lc|",
                            "a=|3lc",
                            "a=3lc||8bit",
                            "a=3lc|none",
                            "a=3lc|none:memory=none",
                            "a=none:memory=none|none:memory=none",
                            "a=none:",
                            "a=none:memory=residual",
                            "a=none:memory=none,s=1",
                            "a=1|2|3|4|5"}) {
      CAPTURE(std::string(bad));
      try {
        Rules rules(std::string("*=fp16; ") + bad + " ;<5=none");
        FAIL_CHECK("accepted");
      } catch (const Error& e) {
        CHECK(e.code() == ErrorCode::option_invalid);
        const std::string text = e.what();
        CHECK(text.find("CRIMP_RULES") != text.npos);
        CHECK(text.find(std::string("'") + bad + "'") != text.npos);
        CHECK(text.find("legal") != text.npos);
        CHECK(text.find("none:memory=none") != text.npos);
        CHECK(text.find("'*=fp16'") == text.npos);
      }
    }
  }

  TEST_CASE("the default rules judge the first tensor of a group by its name, the others by their sizes") {
    const Rules rules(Settings{}.rules);
    const std::string norm = "grouped_allreduce.0.norm.weight", bias = "grouped_allreduce.0.fc1.bias";
    for (const std::string& first : {norm, bias}) {
      CHECK(codec_for(rules, first + "_1of14", 262144) == "none");
      CHECK(codec_for(rules, first + "_1of1", 262144) == "none");
      for (const char* place : {"_2of14", "_3of14", "_14of14", "_10of10"}) {
        CHECK(codec_for(rules, first + place, 262144) == "-");
        CHECK(codec_for(rules, first + place, 1024) == "-");
        CHECK(codec_for(rules, first + place, 1023) == "none");
      }
    }
    CHECK(codec_for(rules, "grouped_allreduce.0.fc1.weight_1of14", 262144) == "-");
    // No places in a group.
    for (const char* place : {"", "_0of14", "_15of14", "_of14", "_2of", "_2of14x", "_2 of14", "_-2of14", "_3", "_2o14",
                              "_99999999999999999999of3"})
      CHECK(codec_for(rules, norm + place, 262144) == "none");
    CHECK(codec_for(rules, "allreduce.0.norm.weight_2of3", 262144) == "none");
    CHECK(codec_for(rules, "grouped_allreduce.bn_stats_2of8", 2048) == "none");  // a program's own name means all
    CHECK(codec_for(rules, "grouped_norm", 262144) == "none");
    CHECK(codec_for(rules, "0.norm.weight", 262144) == "none");
  }

  TEST_CASE("a user's rules match the names of a group's tensors as they are") {
    const Rules rules("*norm*=none; *bias=none; *_2of3=fp16; *[nN]orm*=bf16");
    CHECK(codec_for(rules, "grouped_allreduce.norm.weight_2of3", 262144) == "none");
    CHECK(codec_for(rules, "grouped_allreduce.fc.bias_1of3", 262144) == "-");
    CHECK(codec_for(rules, "grouped_allreduce.metrics_2of3", 262144) == "fp16");
    const Rules more(Settings{}.rules + "; *embed*=8bit");
    CHECK(codec_for(more, "grouped_allreduce.norm.weight_2of3", 262144) == "none");
  }

  TEST_CASE("the default rules keep biases, norms and small tensors exact") {
    const Rules rules(Settings{}.rules);
    for (const char* name :
         {"allreduce.layer1.0.conv1.bias", "allreduce.bn1.weight", "layer4.1.bn2.bias", "encoder.norm.weight",
          "h.3.LayerNorm_layernorm.weight", "downsample.batchnorm.weight", "encoder.layer.3.output.LayerNorm.weight",
          "transformer.h.3.ln_1.weight", "transformer.ln_f.weight", "layer1.0.BatchNorm2d_1.weight"})
      CHECK(codec_for(rules, name, 1 << 20) == "none");
    for (const char* name :
         {"allreduce.conv1.weight", "fc.weight", "transformer.h.0.attn.c_attn.weight", "embedding"}) {
      CHECK(codec_for(rules, name, 1024) == "-");
      CHECK(codec_for(rules, name, 1023) == "none");
    }
  }
}
