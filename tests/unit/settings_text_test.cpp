#include "core/settings_text.hpp"

#include <doctest/doctest.h>

#include "core/build_id.hpp"
#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("settings_text") {
  namespace {

  std::string entry(const std::string& name, const std::string& value) { return name + '\0' + value + '\0'; }
  std::string rules_differ(const std::string& a, const std::string& b) {
    return settings_difference(entry("CRIMP_RULES", a), entry("CRIMP_RULES", b), 3);
  }

  }  // namespace

  TEST_CASE("values are compared to their last byte") {
    Settings a, b;
    a.rules = std::string(5000, 'x') + "=fp16";
    b.rules = std::string(5000, 'x') + "=bf16";
    CHECK(settings_text(a) != settings_text(b));
    CHECK(settings_text(a) != settings_text(a, false));
    b.rules = a.rules;
    CHECK(settings_text(a) == settings_text(b));
    b.threads = 7, b.report = "elsewhere";
    CHECK(settings_text(a) == settings_text(b));
  }

  TEST_CASE("short values are shown whole") {
    CHECK(rules_differ("*=fp16", "*=none") == "CRIMP_RULES is '*=fp16' on rank 0 and '*=none' on rank 3");
    CHECK(rules_differ("", "*=none") == "CRIMP_RULES is '' on rank 0 and '*=none' on rank 3");
    const std::string sixty(59, 'a');
    CHECK(rules_differ(sixty + "b", sixty + "c") ==
          "CRIMP_RULES is '" + sixty + "b' on rank 0 and '" + sixty + "c' on rank 3");
  }

  TEST_CASE("of long values what surrounds the first difference") {
    const std::string common(100, 'a'), rest(100, 'z');
    CHECK(rules_differ(common + "1" + rest, common + "2" + rest) ==
          "CRIMP_RULES is '..." + std::string(20, 'a') + "1" + std::string(39, 'z') + "...' on rank 0 and '..." +
              std::string(20, 'a') + "2" + std::string(39, 'z') + "...' on rank 3 (from character 101 on)");
    // One is the beginning of the other.
    const std::string shown = "'..." + std::string(20, 'a');
    CHECK(has(rules_differ(common, common + "=none"), shown + "' on rank 0 and " + shown + "=none' on rank 3"));
    // Different from the start.
    CHECK(has(rules_differ("1" + rest, "2" + rest), "is '1" + std::string(59, 'z') + "...' on rank 0 and '2"));
    CHECK(has(rules_differ("a\nb", "a\tc"), "'a?b' on rank 0 and 'a?c'"));
  }

  TEST_CASE("everything that differs is named, also what another version has or has not") {
    const std::string both = entry("legal", "1") + entry("CRIMP_CODEC", "3lc");
    const std::string text = settings_difference(both + entry("CRIMP_OLD", "1") + entry("CRIMP_CHUNK", "1"),
                                                 both + entry("CRIMP_NEW", "1") + entry("CRIMP_CHUNK", "2"), 1);
    CHECK(text ==
          "CRIMP_OLD is not known to Crimp on rank 1; CRIMP_CHUNK is '1' on rank 0 and '2' on rank 1; "
          "CRIMP_NEW is not known to Crimp on rank 0");
    // What it was before stands beside it, a setting that was refused does not: the text has its default.
    const auto of = [](const char* legal, const char* codec) {
      return entry("build", codec) + entry("legal", legal) + entry("CRIMP_CODEC", codec);
    };
    CHECK(settings_difference(of("1", "3lc"), of("0", "auto"), 1) ==
          "build is '3lc' on rank 0 and 'auto' on rank 1; a setting on rank 1 is illegal");
    CHECK(has(settings_difference(of("0", "auto"), of("1", "3lc"), 1), "; a setting on rank 0 is illegal"));
    CHECK_FALSE(has(settings_difference(of("0", "auto"), of("1", "3lc"), 1), "CRIMP_CODEC"));
    CHECK(settings_difference(of("0", "auto"), of("0", "3lc"), 1) ==
          "build is 'auto' on rank 0 and '3lc' on rank 1; a rank has an illegal setting");
    CHECK(settings_difference(both, "", 1) != "");
    CHECK_FALSE(settings_difference(both, both, 1).empty());
    CHECK(has(settings_difference(settings_text({}), "something\nelse entirely", 1), "not known"));
  }

  TEST_CASE("the build is part of it") {
    const std::string id = build_id();
    CHECK(id.size() == 16);
    CHECK(id.find_first_not_of("0123456789abcdef") == id.npos);
    CHECK(has(settings_text({}), id));
    CHECK(has(settings_text({}), CRIMP_VERSION));

    std::string text = settings_text({});
    CHECK(of_this_build(text));
    CHECK_FALSE(options_in(text).empty());
    CHECK_FALSE(of_this_build(""));
    CHECK_FALSE(of_this_build(std::string_view(text).substr(0, text.find(id) + 3)));
    char& digit = text[text.find(id)];
    digit = digit == '0' ? '1' : '0';
    CHECK_FALSE(of_this_build(text));
    CHECK(options_in(text).empty());
  }
}
