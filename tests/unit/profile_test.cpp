#include "core/profile.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "codec/codec.hpp"
#include "collective/codec_rules.hpp"
#include "core/settings.hpp"
#include "core/settings_text.hpp"

using namespace crimp;

TEST_SUITE("profile") {
  namespace {

  Settings read(const std::vector<std::string>& entries, std::span<const SettingText> otherwise = {},
                std::size_t complaints = 0) {
    std::vector<const char*> environment;
    for (const auto& e : entries) environment.push_back(e.c_str());
    environment.push_back(nullptr);
    std::vector<Complaint> all;
    const Settings settings = read_settings(environment.data(), all, otherwise);
    CHECK(all.size() == complaints);
    return settings;
  }

  const Option& option(std::string_view name) {
    return *std::find_if(option_table().begin(), option_table().end(), [&](const Option& o) { return name == o.name; });
  }

  }  // namespace

  TEST_CASE("a profile's settings are options that ranks agree on, with legal values, and codecs that are there") {
    for (const Profile& profile : profiles()) {
      CAPTURE(std::string(profile.name));
      CHECK(find_profile(profile.name) == &profile);
      CHECK(profile.settings.size() > 0);
      const Settings settings = read({std::string("CRIMP_PROFILE=") + profile.name});
      CHECK(settings.profile == profile.name);
      for (const ProfileSetting& of : profile.settings) {
        CAPTURE(std::string(of.name));
        const auto found = std::find_if(option_table().begin(), option_table().end(),
                                        [&](const Option& o) { return o.name == std::string_view(of.name); });
        REQUIRE(found != option_table().end());
        CHECK(found->agreed);
        CHECK(std::string(of.name) != "CRIMP_PROFILE");
        Settings one;
        CHECK(found->set(one, of.value));
        CHECK(found->get(settings) == found->get(one));
      }
      CodecRules rules;
      rules.read(settings, [](const std::string& why) { FAIL_CHECK(why); });
      CHECK(rules.any());
      CHECK(std::string(option("CRIMP_PROFILE").legal).find(profile.name) != std::string::npos);
    }
    CHECK(find_profile("off") == nullptr);
    CHECK(find_profile("") == nullptr);
  }

  TEST_CASE("safe holds nothing back, and its summing twice is within its quality") {
    const Settings settings = read({"CRIMP_PROFILE=safe"});
    const auto codec = make_codec(settings.codec);
    CHECK_FALSE(codec->feedback().kept());
    CHECK(codec->error_of_two_encodings() <= settings.quality);
    CHECK(settings.control == "off");
  }

  TEST_CASE("the others keep residuals, and aggressive starts on a level of its ladder") {
    for (const char* name : {"balanced", "aggressive"})
      CHECK(make_codec(read({std::string("CRIMP_PROFILE=") + name}).codec)->feedback().kept());
    const Settings settings = read({"CRIMP_PROFILE=aggressive"});
    CHECK(settings.control == "delay");
    CodecRules rules;
    rules.read(settings, [](const std::string&) {});
    REQUIRE_FALSE(rules.ladder().empty());
    CHECK(rules.ladder()[static_cast<std::size_t>(rules.ladder_start())]->spec() == make_codec(settings.codec)->spec());
  }

  TEST_CASE("what says a setting itself wins over a profile, in whatever order it stands") {
    CHECK(read({"CRIMP_PROFILE=balanced", "CRIMP_CODEC=bf16"}).codec == "bf16");
    CHECK(read({"CRIMP_CODEC=auto", "CRIMP_PROFILE=balanced"}).codec == "auto");  // its default, said
    CHECK(read({"CRIMP_PROFILE=off"}).codec == "auto");
    std::string path = (std::filesystem::temp_directory_path() / "crimp-test-XXXXXX").string();
    REQUIRE(::mkdtemp(path.data()));
    const std::string file = path + "/crimp.conf", config = "CRIMP_CONFIG=" + file;
    const auto write = [&](const std::string& text) { std::ofstream(file) << text; };
    write("CRIMP_CODEC=fp32\n");
    CHECK(read({"CRIMP_PROFILE=balanced", config}).codec == "fp32");
    CHECK(read({"CRIMP_PROFILE=balanced", config, "CRIMP_CODEC=bf16"}).codec == "bf16");
    // A profile in the file; the variable's is another one.
    write("CRIMP_PROFILE=aggressive\nCRIMP_CODEC=8bit\n");
    CHECK(read({config}).control == "delay");
    CHECK(read({config}).codec == "8bit");
    CHECK(read({config, "CRIMP_PROFILE=safe"}).control == "off");
    CHECK(read({config, "CRIMP_PROFILE=safe"}).codec == "8bit");
    std::filesystem::remove_all(path);
  }

  TEST_CASE("a rank that was told nothing has the profile of rank 0, and what rank 0 said itself") {
    const Settings first = read({"CRIMP_PROFILE=aggressive", "CRIMP_CODEC=3lc:s=1.5"});
    const auto options = options_in(settings_text(first));
    const Settings other = read({}, options);
    CHECK(other.profile == "aggressive");
    CHECK(settings_text(other) == settings_text(first));
    // One that was told the same profile has what rank 0 has, too; with another profile they differ, which names it.
    CHECK(settings_text(read({"CRIMP_PROFILE=aggressive"}, options)) == settings_text(first));
    const Settings differs = read({"CRIMP_PROFILE=safe"}, options);
    CHECK(settings_difference(settings_text(first), settings_text(differs), 1)
              .find("CRIMP_PROFILE is 'aggressive' on rank 0 and 'safe' on rank 1") != std::string::npos);
  }

  TEST_CASE("an unknown profile is illegal, and changes nothing") {
    const Settings settings = read({"CRIMP_PROFILE=fast"}, {}, 1);
    CHECK(settings_text(settings) == settings_text(Settings{}));
    CHECK(read({"CRIMP_PROFILE="}, {}, 1).profile == "off");
  }

  TEST_CASE("both forms of the list have every setting") {
    for (const Profile& profile : profiles())
      for (const ProfileSetting& of : profile.settings) {
        const std::string text = std::string(of.name) + "=" + of.value;
        CHECK(profiles_as_text().find(text) != std::string::npos);
        CHECK(profiles_as_markdown().find("`" + text + "`") != std::string::npos);
      }
  }
}
