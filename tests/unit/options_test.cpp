#include <doctest/doctest.h>

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "core/nearest.hpp"
#include "core/settings.hpp"
#include "core/settings_text.hpp"
#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("options") {
  namespace {

  Settings read(const std::vector<std::string>& entries, std::vector<Complaint>* complaints = nullptr) {
    std::vector<const char*> environment;
    for (const auto& e : entries) environment.push_back(e.c_str());
    environment.push_back(nullptr);
    std::vector<Complaint> all;
    const Settings settings = read_settings(environment.data(), all);
    if (complaints) {
      *complaints = all;
    } else {
      for (const auto& c : all) FAIL_CHECK(c.text);
    }
    return settings;
  }

  const Option& option(const std::string& name) {
    for (const Option& o : option_table())
      if (name == o.name) return o;
    throw std::invalid_argument(name);
  }

  struct Scratch {
    std::string path = (std::filesystem::temp_directory_path() / "crimp-test-XXXXXX").string();
    Scratch() { REQUIRE(::mkdtemp(path.data())); }
    ~Scratch() { std::filesystem::remove_all(path); }
    std::string file(const char* name) const { return path + "/" + name; }
  };

  // A legal value of every option that is not its default.
  const std::pair<const char*, const char*> kOther[] = {
      {"CRIMP_CONFIG", "/dev/null"},
      {"CRIMP_ENABLE", "0"},
      {"CRIMP_CODEC", "3lc:s=1.5"},
      {"CRIMP_UNKNOWN_LAYOUT", "none"},
      {"CRIMP_ERROR_FEEDBACK", "off"},
      {"CRIMP_MIN_COUNT", "4k"},
      {"CRIMP_CHUNK", "1M"},
      {"CRIMP_RADIX", "direct"},
      {"CRIMP_SIMD", "AVX2"},
      {"CRIMP_PERIODS", "5"},
      {"CRIMP_THREADS", "4"},
      {"CRIMP_CHECKSUM", "no"},
      {"CRIMP_LOG", "debug"},
      {"CRIMP_REPORT", "r.json"},
      {"CRIMP_REPLAY", "r.json"},
      {"CRIMP_TRACE", "t.json"},
      {"CRIMP_RESIDUAL", "8bit"},
      {"CRIMP_STATE_DIR", "state"},
      {"CRIMP_STATE_INTERVAL", "100"},
      {"CRIMP_CHECK", "c.txt"},
      {"CRIMP_ALGORITHM", "two_shot"},
      {"CRIMP_NODE_SIZE", "2"},
      {"CRIMP_PROGRESS", "thread"},
      {"CRIMP_QUALITY", "any"},
      {"CRIMP_HELP", "1"},
      {"CRIMP_RULES", "*=fp16"},
      {"CRIMP_MERGE", "y=2"},
      {"CRIMP_PLAN_FILE", "p.json"},
      {"CRIMP_HOLD_MS", "50"},
      {"CRIMP_CONTROL", "delay"},
      {"CRIMP_LADDER", "fp16; 8bit"},
      {"CRIMP_DELAY_TARGET", "5ms"},
      {"CRIMP_GAIN_FLOOR", "0.25"},
      {"CRIMP_STALL_S", "3"},
      {"CRIMP_CUDA_PLUGIN", "off"},
      {"CRIMP_CUDA_AWARE", "1"},
      {"CRIMP_RESIDUAL_JUMP", "100"},
      {"CRIMP_SKEW", "1"},
      {"CRIMP_PROFILE", "safe"},
      {"CRIMP_STATUS", "live"},
  };

  }  // namespace

  TEST_CASE("a file of settings holds where the environment is silent, and rank 0 where both are") {
    const Scratch scratch;
    const std::string file = scratch.file("crimp.conf");
    const auto write = [&](const std::string& text) { std::ofstream(file, std::ios::binary) << text; };
    const std::string config = "CRIMP_CONFIG=" + file;
    write(
        "\xef\xbb\xbf# of the cluster\n\n  CRIMP_CODEC = 3lc:s=1.5,entropy=1\t\r\nCRIMP_THREADS=3\nCRIMP_RULES=*a b*=fp16; <9=none\n"
        "CRIMP_THREADS=2\nCRIMP_REPORT=");
    const Settings settings = read({"CRIMP_MIN_COUNT=5", config});
    const char* const said[] = {"CRIMP_MIN_COUNT=5", config.c_str(), "CRIMP_THREAD=1", nullptr};
    CHECK(place_in_file(settings, said, "CRIMP_THREADS is 'x'") == " (line 6 of " + file + ")");
    CHECK(place_in_file(settings, said, "CRIMP_CODEC: no such") == " (line 3 of " + file + ")");
    CHECK(place_in_file(settings, said, "CRIMP_MIN_COUNT is") == "");
    CHECK(place_in_file(settings, said, "CRIMP_CHUNK") == "");
    CHECK(place_in_file({}, said, "CRIMP_CODEC") == "");
    CHECK(settings.codec == "3lc:s=1.5,entropy=1");
    CHECK(settings.threads == 2);
    CHECK(settings.rules == "*a b*=fp16; <9=none");
    CHECK(settings.min_count == 5);
    CHECK(settings.config == file);
    CHECK(read({config, "CRIMP_CODEC=fp16", "CRIMP_THREADS=1"}).codec == "fp16");
    // What does not count need not be legal.
    write("CRIMP_THREADS=0\nCRIMP_CHUNK=minus\nCRIMP_THREADS=2\n");
    CHECK(read({config, "CRIMP_CHUNK=1M"}).threads == 2);
    write("CRIMP_CODEC=3lc:s=1.5,entropy=1\nCRIMP_THREADS=2\n");

    Settings first;
    first.codec = "fp16";
    first.min_count = 7;
    first.threads = 9;
    first.chunk = 20480;
    const auto options = options_in(settings_text(first));
    std::vector<Complaint> none;
    const char* const environment[] = {config.c_str(), "CRIMP_MIN_COUNT=5", nullptr};
    const Settings both = read_settings(environment, none, options);
    CHECK(none.empty());
    CHECK(both.codec == "3lc:s=1.5,entropy=1");
    CHECK(both.min_count == 5);
    CHECK(both.chunk == 20480);
    CHECK(both.threads == 2);  // no matter of rank 0's
    CHECK(settings_text(read_settings(nullptr, none, options)) == settings_text(first));
    // Another build may mean something else by them.
    std::string other = settings_text(first);
    const auto build = other.find("the build of Crimp") + 19;
    other[build] = other[build] == '0' ? '1' : '0';
    CHECK(options_in(other).empty());
    CHECK(options_in("").empty());
    CHECK(options_in(other.substr(0, 40)).empty());
  }

  TEST_CASE("where Crimp is installed, as a module says it, is no unknown setting") {
    std::vector<Complaint> all;
    read({"CRIMP_ROOT=/opt/crimp"}, &all);
    CHECK(all.empty());
    read({"CRIMP_ROOTS=/opt/crimp"}, &all);
    CHECK(all.size() == 1);
  }

  TEST_CASE("what is wrong with a file of settings is said with its line, and Crimp stays off") {
    const Scratch scratch;
    const std::string file = scratch.file("crimp.conf");
    const auto complaint = [&](const std::string& text) {
      std::ofstream(file, std::ios::binary) << text;
      std::vector<Complaint> all;
      read({"CRIMP_CONFIG=" + file}, &all);
      REQUIRE(all.size() == 1);
      return (all[0].illegal ? "illegal: " : "") + all[0].text;
    };
    CHECK(complaint("CRIMP_CODEC=3lc\ncodec=3lc\n") ==
          "illegal: CRIMP_CONFIG is '" + file +
              "': line 2 is 'codec=3lc', legal is: CRIMP_NAME=value, # comment, or nothing");
    CHECK(complaint("CRIMP_CODEC 3lc").find("line 1 is 'CRIMP_CODEC 3lc', legal is") != std::string::npos);
    CHECK(complaint("\n\nCRIMP_CHUNK=minus").starts_with("illegal: CRIMP_CHUNK is 'minus' in line 3 of " + file));
    CHECK(
        complaint("CRIMP_CODECS=3lc").starts_with("CRIMP_CODECS in line 1 of " + file + " is not a setting of Crimp"));
    CHECK(complaint("CRIMP_CONFIG=other").find("one file cannot name another") != std::string::npos);
    CHECK(complaint(std::string("CRIMP_CODEC=3\0lc", 15)).find("line 1") != std::string::npos);
    CHECK(complaint(std::string((1 << 20) + 1, '#')).find("longer than 1 MiB") != std::string::npos);
    for (const char* const bad : {"/no/such/file", "/dev/zero", "/"}) {
      std::vector<Complaint> all;
      read({std::string("CRIMP_CONFIG=") + bad}, &all);
      REQUIRE(all.size() == 1);
      CHECK(all[0].illegal);
      CHECK(all[0].text.starts_with("CRIMP_CONFIG is '" + std::string(bad) + "': it "));
    }
    std::vector<Complaint> all;
    read({"CRIMP_CONFIG="}, &all);
    CHECK(all.empty());
  }

  TEST_CASE("every default is legal and reads back as itself") {
    for (const Option& o : option_table()) {
      CAPTURE(std::string(o.name));
      Settings settings;
      CHECK(o.set(settings, o.default_value()));
      CHECK(o.get(settings) == o.default_value());
      CHECK(std::string(o.name).starts_with("CRIMP_"));
      CHECK(*o.help);
      CHECK(*o.legal);
    }
    CHECK(settings_text(read({})) == settings_text(Settings{}));
  }

  TEST_CASE("a value that is set reads back and changes the compared text exactly where ranks must agree") {
    std::size_t known = 0;
    for (const auto& other : kOther) {
      const char *const name = other.first, *const value = other.second;
      CAPTURE(std::string(name));
      const Option& o = option(name);
      const Settings settings = read({std::string(name) + "=" + value});
      CHECK(o.get(settings) != o.default_value());
      Settings again;
      CHECK(o.set(again, o.get(settings)));
      CHECK(o.get(again) == o.get(settings));
      CHECK((settings_text(settings) != settings_text(Settings{})) == o.agreed);
      ++known;
    }
    // A new option needs a line in kOther.
    CHECK(known + (option_table().back().name == std::string("CRIMP_FAULT")) == option_table().size());
    for (const char* mine : {"CRIMP_THREADS", "CRIMP_LOG", "CRIMP_REPORT", "CRIMP_TRACE", "CRIMP_HELP"})
      CHECK_FALSE(option(mine).agreed);
  }

  TEST_CASE("CRIMP_STATUS: words for on and off, and names") {
    CHECK(read({"CRIMP_STATUS=1"}).status == "stderr");
    CHECK(read({"CRIMP_STATUS=0"}).status == "off");
    CHECK(read({"CRIMP_STATUS=job.status"}).status == "job.status");
  }

  TEST_CASE("CRIMP_QUALITY: words and factors") {
    CHECK(read({"CRIMP_QUALITY=exact"}).quality == 1);
    CHECK(read({"CRIMP_QUALITY=1"}).quality == 1);
    CHECK(read({"CRIMP_QUALITY=2.5"}).quality == 2.5);
    CHECK(read({"CRIMP_QUALITY=any"}).quality > 1e300);
    CHECK(option("CRIMP_QUALITY").get(read({"CRIMP_QUALITY=2.5"})) == "2.5");
  }

  TEST_CASE("an illegal value is refused with its name, the value and what is legal") {
    const std::pair<const char*, const char*> bad[] = {
        {"CRIMP_ENABLE", "maybe"},     {"CRIMP_ENABLE", ""},
        {"CRIMP_CODEC", ""},           {"CRIMP_UNKNOWN_LAYOUT", ""},
        {"CRIMP_MIN_COUNT", "0"},      {"CRIMP_MIN_COUNT", "-1"},
        {"CRIMP_MIN_COUNT", "1T"},     {"CRIMP_MIN_COUNT", "17179869184G"},
        {"CRIMP_CHUNK", "10239"},      {"CRIMP_RADIX", "1"},
        {"CRIMP_CHUNK", "1073741825"}, {"CRIMP_PERIODS", "1"},
        {"CRIMP_PERIODS", "1001"},     {"CRIMP_THREADS", "0"},
        {"CRIMP_THREADS", "257"},      {"CRIMP_THREADS", "2 "},
        {"CRIMP_CHECKSUM", "2"},       {"CRIMP_LOG", "Info"},
        {"CRIMP_CUDA_AWARE", "maybe"}, {"CRIMP_CUDA_PLUGIN", ""},
        {"CRIMP_HELP", "y"},           {"CRIMP_MIN_COUNT", "99999999999999999999"},
        {"CRIMP_MIN_COUNT", "k"},      {"CRIMP_MIN_COUNT", "1.5"},
        {"CRIMP_MIN_COUNT", "4kk"},    {"CRIMP_RESIDUAL_JUMP", "1"},
        {"CRIMP_RESIDUAL_JUMP", "-2"}, {"CRIMP_MIN_COUNT", "k"},
        {"CRIMP_MIN_COUNT", "1.5"},    {"CRIMP_MIN_COUNT", "4kk"},
        {"CRIMP_QUALITY", "0.9"},      {"CRIMP_QUALITY", "codec"},
        {"CRIMP_QUALITY", "inf"},      {"CRIMP_QUALITY", "nan"},
        {"CRIMP_QUALITY", "2x"},       {"CRIMP_PROFILE", "fast"},
        {"CRIMP_PROFILE", ""},         {"CRIMP_STATUS", ""},
    };
    for (const auto& setting : bad) {
      const char *const name = setting.first, *const value = setting.second;
      std::vector<Complaint> complaints;
      const Settings settings = read({std::string(name) + "=" + value}, &complaints);
      CAPTURE(std::string(name));
      CAPTURE(std::string(value));
      REQUIRE(complaints.size() == 1);
      CHECK(complaints[0].illegal);
      CHECK(has(complaints[0].text, name));
      CHECK(has(complaints[0].text, std::string("'") + value + "'"));
      CHECK(has(complaints[0].text, option(name).legal));
      CHECK(option(name).get(settings) == option(name).default_value());
    }
  }

  TEST_CASE("an unknown name is reported with the nearest one and changes nothing") {
    std::vector<Complaint> complaints;
    const Settings settings =
        read({"CRIMP_CODECS=3lc", "CRIMP_ENTIRELY_ELSEWHERE=1", "PATH=/bin", "CRIMPY=1", "CRIMP_THREADS"}, &complaints);
    REQUIRE(complaints.size() == 2);
    CHECK_FALSE(complaints[0].illegal);
    CHECK(has(complaints[0].text, "CRIMP_CODECS"));
    CHECK(has(complaints[0].text, "'CRIMP_CODEC'"));
    CHECK(has(complaints[1].text, "CRIMP_ENTIRELY_ELSEWHERE"));
    CHECK_FALSE(has(complaints[1].text, "did you mean"));
    CHECK(settings_text(settings) == settings_text(Settings{}));
    std::vector<Complaint> none;
    CHECK(settings_text(read_settings(nullptr, none)) == settings_text(Settings{}));
  }

  TEST_CASE("suffixes and the whole range") {
    CHECK(read({"CRIMP_MIN_COUNT=64k"}).min_count == 65536);
    CHECK(read({"CRIMP_MIN_COUNT=2M"}).min_count == 2u << 20);
    CHECK(read({"CRIMP_MIN_COUNT=4294967296G"}).min_count == std::uint64_t{1} << 62);
    CHECK(read({"CRIMP_CHUNK=40960"}).chunk == 40960);
    CHECK(read({}).radix == 0);
    CHECK(read({"CRIMP_RADIX=direct"}).radix == 1);
    CHECK(read({"CRIMP_RADIX=2"}).radix == 2);
    CHECK(read({"CRIMP_CHUNK=40961"}).chunk == 51200);
    CHECK(read({"CRIMP_CHUNK=1G"}).chunk % 10240 == 0);
    CHECK(read({"CRIMP_CODEC=a=b"}).codec == "a=b");
    CHECK(read({"CRIMP_LOG=off"}).log == LogLevel::off);
  }

  TEST_CASE("both tables list every option with its default and what is legal") {
    const std::string text = options_as_text(), markdown = options_as_markdown();
    for (const Option& o : option_table()) {
      CHECK(has(text, std::string(o.name) + "="));
      CHECK(has(text, std::string("legal: ") + o.legal));
      CHECK(has(markdown, std::string("| `") + o.name + "` |"));
    }
    // A row has four cells, whatever bars its texts have.
    std::string plain;
    int bars = 0;
    for (std::size_t i = 0; i < markdown.size(); ++i) {
      const bool escaped = markdown[i] == '\\' && markdown[i + 1] == '|';
      if (escaped) ++i;
      bars += !escaped && markdown[i] == '|';
      plain += markdown[i];
      if (markdown[i] != '\n') continue;
      CHECK(bars == 5);
      bars = 0;
    }
    CHECK(has(markdown, "| `CRIMP_MIN_COUNT` | `16384` |"));
    CHECK(has(markdown, "| `CRIMP_REPORT` | unset |"));
    CHECK(has(option("CRIMP_CODEC").help, std::string("auto: ") + kHorovodCodec + " under Horovod"));
    for (const Option& o : option_table()) CHECK(has(plain, std::string("| ") + o.help + " |\n"));
    CHECK(std::count(markdown.begin(), markdown.end(), '\n') == static_cast<std::ptrdiff_t>(option_table().size()) + 2);
  }

  TEST_CASE("nearest name") {
    const std::vector<std::string> names{"none", "fp16", "bf16", "3lc"};
    CHECK(nearest("fp15", names) == "fp16");
    CHECK(nearest("bp16", names).size() == 4);
    CHECK(nearest("3lcc", names) == "3lc");
    CHECK(nearest("topk", names) == "");
    CHECK(nearest("", names) == "");
    CHECK(did_you_mean("nonee", names) == ", did you mean 'none'?");
    CHECK(joined(names) == "none, fp16, bf16, 3lc");
  }
}
