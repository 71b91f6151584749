#include "schedule/plan_file.hpp"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/compare.hpp"

using namespace crimp;
using namespace crimp::test;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_SUITE("plan_file") {
  namespace {

  // A new directory with a file's name in it.
  struct Scratch {
    fs::path directory;
    std::string path;
    Scratch() {
      std::string name = (fs::temp_directory_path() / "crimp-test-XXXXXX").string();
      REQUIRE(::mkdtemp(name.data()));
      directory = name;
      path = (directory / "plans.json").string();
    }
    ~Scratch() { fs::remove_all(directory); }
    void write(const std::string& text) const { std::ofstream(path) << text; }
    std::string read() const {
      std::stringstream text;
      text << std::ifstream(path).rdbuf();
      return text.str();
    }
  };

  SavedPlan plan() {
    SavedPlan p;
    p.ranks = 4;
    p.settings = "CRIMP_CODEC=3lc";
    p.tensors = {{"c.weight", 400}, {"b.\"quoted\"", 40}, {"a\n", 4}, {"caf\u00e9", 4000}};
    p.plan = {true, {{1, 3}, {0, 2, 1}}};
    p.step_s = 0.0125;
    p.origin = "y=2";
    return p;
  }

  std::string found(const PlanFile& file, const SavedPlan& key) {
    std::string problem;
    const auto plan = file.find(key, problem);
    CHECK(problem == "");
    if (!plan) return "none";
    return plan->origin;
  }

  std::string problem_of(const PlanFile& file, const SavedPlan& key = plan()) {
    std::string problem;
    CHECK_FALSE(file.find(key, problem));
    return problem;
  }

  }  // namespace

  TEST_CASE("what was saved is found, whole") {
    const Scratch scratch;
    const PlanFile file(scratch.path);
    CHECK(found(file, plan()) == "none");
    REQUIRE(file.save(plan()) == "");
    std::string problem;
    const auto again = PlanFile(scratch.path).find(plan(), problem);
    CHECK(problem == "");
    REQUIRE(again);
    CHECK(again->tensors == plan().tensors);
    CHECK(again->plan == plan().plan);
    CHECK(again->step_s == doctest::Approx(plan().step_s));
    CHECK(again->origin == "y=2");
    CHECK(again->settings == plan().settings);
    CHECK(again->ranks == 4);
    CHECK(std::distance(fs::directory_iterator(scratch.directory), {}) == 1);
    const json all = json::parse(scratch.read());
    CHECK(all["version"] == 1);
    CHECK(all["plans"][0]["cuts"] == json{1, 3});
    CHECK(all["plans"][0]["codecs"] == json{0, 2, 1});
  }

  TEST_CASE("tensors in another order are the same tensors, and the file's order is told") {
    const Scratch scratch;
    const PlanFile file(scratch.path);
    REQUIRE(file.save(plan()) == "");
    SavedPlan key = plan();
    std::swap(key.tensors[0], key.tensors[3]);
    std::string problem;
    const auto again = file.find(key, problem);
    REQUIRE(again);
    CHECK(again->tensors == plan().tensors);
  }

  TEST_CASE("other tensors, ranks or settings have plans of their own, and a new one replaces only its own") {
    const Scratch scratch;
    const PlanFile file(scratch.path);
    REQUIRE(file.save(plan()) == "");
    SavedPlan ranks = plan(), settings = plan(), bytes = plan(), name = plan(), fewer = plan();
    ranks.ranks = 2;
    settings.settings += " CRIMP_ALGORITHM=two_shot";
    bytes.tensors[1].bytes = 44;
    name.tensors[1].name = "d";
    fewer.tensors.pop_back();
    fewer.plan.groups = {{1}, {}};
    for (SavedPlan* other : {&ranks, &settings, &bytes, &name, &fewer}) {
      CHECK(found(file, *other) == "none");
      other->origin = "its own";
      REQUIRE(file.save(*other) == "");
      CHECK(found(file, *other) == "its own");
      CHECK(found(file, plan()) == "y=2");
    }
    ranks.origin = "newer";
    REQUIRE(file.save(ranks) == "");
    CHECK(found(file, ranks) == "newer");
    CHECK(found(file, bytes) == "its own");
    CHECK(json::parse(scratch.read())["plans"].size() == 6);
  }

  TEST_CASE("the newest plans are kept") {
    const Scratch scratch;
    const PlanFile file(scratch.path);
    SavedPlan p = plan();
    for (p.ranks = 2; p.ranks < 2 + static_cast<int>(PlanText::kMost) + 3; ++p.ranks) REQUIRE(file.save(p) == "");
    CHECK(json::parse(scratch.read())["plans"].size() == PlanText::kMost);
    p.ranks = 4;
    CHECK(found(file, p) == "none");
    p.ranks = 5;
    CHECK(found(file, p) == "y=2");
  }

  // The text with so deep a value in place of a member's that printing or copying it takes the stack.
  std::string nested(const std::string& key, const std::string& value, std::string text) {
    const std::size_t at = text.find('"' + key + "\":" + value);
    REQUIRE(at != text.npos);
    return text.replace(at + key.size() + 3, value.size(), std::string(300'000, '[') + std::string(300'000, ']'));
  }

  TEST_CASE("an empty file is a new one, and keeps its mode") {
    const Scratch scratch;
    const PlanFile file(scratch.path);
    scratch.write("");
    fs::permissions(scratch.path, fs::perms(0640));
    CHECK(found(file, plan()) == "none");
    CHECK(file.save(plan()) == "");
    CHECK(found(file, plan()) == "y=2");
    CHECK(fs::status(scratch.path).permissions() == fs::perms(0640));
  }

  TEST_CASE("a file that is not ours stays as it is, and the reason names it") {
    const Scratch scratch;
    const PlanFile file(scratch.path);
    file.save(plan());
    const std::string whole = scratch.read();
    json newer = json::parse(whole);
    newer["version"] = 2;
    for (const std::string& text :
         {std::string("my thesis"), std::string("{}"), std::string("[]"), std::string("{\"format\": 7}"),
          std::string("\0\xff", 2), whole.substr(0, whole.size() - 5), newer.dump(), std::string(100'000, '['),
          std::string("{\"format\": \"crimp merge plans\"}"), nested("version", "1", whole),
          nested("origin", "\"y=2\"", whole), nested("format", "\"crimp merge plans\"", whole)}) {
      CAPTURE(text.substr(0, 80));
      scratch.write(text);
      const std::string problem = problem_of(file);
      CHECK(has(problem, "CRIMP_PLAN_FILE: '" + scratch.path + "' "));
      CHECK(has(problem, "give another name, or remove it"));
      CHECK(file.save(plan()) == problem);
      CHECK(scratch.read() == text);
    }
    scratch.write(newer.dump());
    CHECK(has(problem_of(file), "has format version 2, this Crimp knows 1"));
  }

  TEST_CASE("a plan that makes no sense is left out, others stay, and the next one that is saved replaces it") {
    const Scratch scratch;
    const PlanFile file(scratch.path);
    SavedPlan other = plan();
    other.ranks = 8;
    REQUIRE(file.save(other) == "");
    REQUIRE(file.save(plan()) == "");
    const json whole = json::parse(scratch.read());
    const auto with = [&](const char* key, const json& value) {
      json all = whole;
      all["plans"][0][key] = value;
      return all;
    };
    for (const auto& [all, why] :
         {std::pair{with("cuts", {1, 4}), "it has cuts beyond its tensors"},
          {with("cuts", {3, 1}), "its cuts do not rise"},
          {with("cuts", {1, 1}), "its cuts do not rise"},
          {with("cuts", {0}), "its cuts do not rise"},
          {with("cuts", {-1}), "a number is not a natural one"},
          {with("cuts", {1.5}), "a number is not a natural one"},
          {with("cuts", {1ull << 32}), "it has cuts beyond its tensors"},
          {with("cuts", "1"), "natural"},
          {with("holds", false), "it has cuts, and holds nothing"},
          {with("codecs", {0, 1}), "it has not as many codecs as groups"},
          {with("codecs", {0, 1, 4}), "it has codecs beyond a rule's"},
          {with("codecs", {0, 1, -1}), "natural"},
          {with("codecs", 1), "it has not as many codecs as groups"},
          {with("step_ms", 0), "its step takes no time"},
          {with("step_ms", "1"), "left out"},
          {with("tensors", json::array()), "cuts beyond"},
          {with("tensors", json::parse(R"([["a",1],["b",2],["c",3],["a",4]])")), "it has no tensors, or one twice"},
          {with("tensors", json::parse(R"([["a"]])")), "left out"},
          {with("settings", nullptr), "left out"},
          {with("ranks", -4), "natural"}}) {
      const std::string text = all.dump();
      CAPTURE(text);
      scratch.write(text);
      const std::string problem = problem_of(file);
      CHECK(has(problem, "CRIMP_PLAN_FILE: '" + scratch.path + "' has a plan that is left out (number 1: "));
      CHECK(has(problem, why));
      std::string also;
      CHECK(file.find(other, also));
      CHECK(file.save(plan()) == "");
      CHECK(json::parse(scratch.read()) == whole);
    }
    json none = whole;
    none["plans"] = "none";
    scratch.write(none.dump());
    CHECK(has(problem_of(file), "has no list of plans"));
    CHECK(file.save(plan()) == "");
    CHECK(found(file, plan()) == "y=2");
  }

  TEST_CASE("links are not followed, nothing but regular files is opened, what cannot be read or written is said") {
    const Scratch scratch;
    const PlanFile file(scratch.path);
    const std::string target = (scratch.directory / "target").string();
    for (const bool exists : {false, true}) {
      if (exists) REQUIRE(PlanFile(target).save(plan()) == "");
      fs::create_symlink(target, scratch.path);
      CHECK(has(problem_of(file), "is a link, which is not followed"));
      CHECK(has(file.save(plan()), "is a link, which is not followed"));
      CHECK(fs::exists(target) == exists);
      fs::remove(scratch.path);
    }
    REQUIRE(::mkfifo(scratch.path.c_str(), 0600) == 0);
    CHECK(has(problem_of(file), "is no regular file"));
    CHECK(has(file.save(plan()), "is no regular file"));
    fs::remove(scratch.path);
    CHECK(has(problem_of(PlanFile(scratch.directory.string())), "is no regular file"));
    CHECK(has(problem_of(PlanFile("/dev/stdout")), "is "));
    CHECK(has(problem_of(PlanFile("/proc/self/mem")), "cannot be read: Input/output error"));
    const PlanFile nowhere((scratch.directory / "none" / "plans.json").string());
    CHECK(problem_of(nowhere) == "");
    CHECK(has(nowhere.save(plan()), "CRIMP_PLAN_FILE: '"));
    CHECK(has(nowhere.save(plan()), "cannot be written: No such file or directory"));
    SavedPlan latin = plan();
    latin.tensors[0].name = "caf\xe9";
    CHECK(has(file.save(latin), "is not written: a tensor's name is no UTF-8"));
    CHECK_FALSE(fs::exists(scratch.path));
    if (::geteuid() == 0) return;  // root may read all
    REQUIRE(file.save(plan()) == "");
    fs::permissions(scratch.path, fs::perms::none);
    CHECK(has(problem_of(file), "cannot be read: Permission denied"));
  }

  TEST_CASE("a relative name does not follow the working directory") {
    const Scratch scratch;
    const fs::path before = fs::current_path();
    fs::current_path(scratch.directory);
    const PlanFile file("plans.json");
    fs::current_path(before);
    CHECK(file.save(plan()) == "");
    CHECK(fs::exists(scratch.path));
  }
}
