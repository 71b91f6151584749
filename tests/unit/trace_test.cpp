// What CRIMP_TRACE's file says: JSON whatever names are, spans of a track one after another or within one another.
#include "core/trace.hpp"

#include <doctest/doctest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/settings.hpp"

using namespace crimp;
using nlohmann::json;
using std::chrono::nanoseconds;

TEST_SUITE("trace") {
  namespace {

  Clock::time_point at(std::int64_t us) { return Clock::time_point(std::chrono::microseconds(us)); }

  Trace::Rank rank_of(int rank, const char* host = "here") { return {rank, host, {}}; }

  json file_of(const std::vector<std::string>& ranks) { return json::parse(trace_file(Settings(), ranks)); }
  json events_of(const Trace& trace, const Trace::Rank& rank = rank_of(0)) {
    return file_of({trace.events(rank)})["traceEvents"];
  }

  std::vector<json> named(const json& events, const std::string& name) {
    std::vector<json> out;
    for (const json& e : events)
      if (e["name"] == name) out.push_back(e);
    return out;
  }

  // Nanoseconds of the format's microseconds, which have three decimals.
  std::int64_t ns(const json& us) { return std::llround(1000 * us.get<double>()); }

  // What is wrong with it, by the format's rules; empty: nothing.
  std::string defect(const json& events) {
    std::map<std::pair<int, int>, std::vector<std::int64_t>> open;
    std::map<std::pair<int, int>, std::int64_t> last;
    std::map<std::string, std::string> asynchronous;  // by id, its name
    std::set<std::pair<int, int>> rows, used;
    for (const json& e : events) {
      const std::string ph = e.at("ph");
      if (!e.at("name").is_string() || !e.at("pid").is_number_integer() || e["pid"] == 0)
        return "no name or pid: " + e.dump();
      if (ph == "M") {
        if (e["name"] == "thread_name" && !rows.insert(std::pair<int, int>{e["pid"], e.at("tid")}).second)
          return "two names for one row";
        continue;
      }
      if (ns(e.at("ts")) < 0) return "before the beginning: " + e.dump();
      if (ph == "C") continue;
      const std::pair<int, int> row{e["pid"], e.at("tid")};
      used.insert(row);
      if (ph == "i") continue;
      if (ph == "b" || ph == "e") {
        const std::string id = e["pid"].dump() + "." + e.at("id2").at("local").get<std::string>();
        if (ph == "b" && !asynchronous.emplace(id, e["name"]).second) return "an id begins twice: " + id;
        if (ph == "e" && asynchronous[id] != e["name"]) return "an id ends that is not its name's: " + id;
        continue;
      }
      if (ph != "X") return "an unknown kind: " + e.dump();
      const std::int64_t begin = ns(e["ts"]), end = begin + ns(e.at("dur"));
      if (end < begin) return "ends before it begins: " + e.dump();
      if (begin < last[row]) return "out of order: " + e.dump();
      last[row] = begin;
      auto& ends = open[row];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty() && end > ends.back()) return "overlaps another: " + e.dump();
      ends.push_back(end);
    }
    for (const auto& row : used)
      if (!rows.contains(row)) return "a row without a name";
    return "";
  }

  Trace::Call call_of(std::string_view label, std::uint32_t communicator = 0) {
    return {.label = label,
            .communicator = communicator,
            .call = 7,
            .dtype = "float32",
            .elements = 100,
            .bytes = 800,
            .record = {.codec = "fp16",
                       .layout = "named",
                       .algorithm = "allgather",
                       .why = "forced",
                       .bytes_in = 400,
                       .sent_bytes = 100,
                       .received_bytes = 300}};
  }
  Trace::Call nonblocking(std::string_view label, std::uint32_t communicator = 0) {
    Trace::Call call = call_of(label, communicator);
    call.blocks = false;
    return call;
  }

  }  // namespace

  TEST_CASE("the validator finds what it looks for") {
    const auto x = [](int tid, int ts, int dur) {
      return json{{"ph", "X"}, {"name", "n"}, {"pid", 1}, {"tid", tid}, {"ts", ts}, {"dur", dur}};
    };
    const json name{{"ph", "M"}, {"name", "thread_name"}, {"pid", 1}, {"tid", 5}};
    CHECK(defect({name, x(5, 0, 10), x(5, 2, 8), x(5, 10, 1)}) == "");
    CHECK(defect({name, x(5, 0, 10), x(5, 2, 9)}).starts_with("overlaps"));
    CHECK(defect({name, x(5, 3, 1), x(5, 2, 1)}).starts_with("out of order"));
    CHECK(defect({name, x(6, 0, 1)}) == "a row without a name");
    CHECK(defect({name, x(5, -1, 1)}).starts_with("before"));
  }

  TEST_CASE("a rank is a process, a track a thread, both named and sorted") {
    Trace trace;
    trace.add("encode", 3, 1, at(10), at(20));
    trace.add("wire", 3, 1, at(20), at(50));
    trace.add("norms", 3, 2, at(50), at(55));
    trace.passed("not a sum", 17, at(60), at(70));
    trace.waited(0, 3, 2, 5e-6, at(1), at(9));
    const json events = events_of(trace, rank_of(3, "node\"7"));
    CHECK(defect(events) == "");
    CHECK(named(events, "process_name")[0]["args"]["name"] == "rank 3 on node\"7");
    CHECK(named(events, "process_sort_index")[0]["args"]["sort_index"] == 3);
    std::map<int, std::string> tracks;
    for (const json& e : named(events, "thread_name")) tracks[e["tid"]] = e["args"]["name"];
    std::map<int, int> order;
    for (const json& e : named(events, "thread_sort_index")) order[e["tid"]] = e["args"]["sort_index"];
    const auto one = [&](const char* name) { return named(events, name).at(0); };
    CHECK(tracks[one("encode")["tid"]] == "encode");
    CHECK(one("norms")["tid"] == one("encode")["tid"]);
    CHECK(tracks[one("wire")["tid"]] == "wire");
    CHECK(tracks[one("not a sum")["tid"]] == "passed to MPI");
    CHECK(tracks[one("wait")["tid"]] == "wait");
    CHECK(order[one("wait")["tid"]] < order[one("encode")["tid"]]);
    CHECK(order[one("encode")["tid"]] < order[one("wire")["tid"]]);
    CHECK(one("wire")["ts"] == 20);
    CHECK(one("wire")["dur"] == 30);
    CHECK(one("wire")["args"] == json{{"call", 3}, {"chunk", 1}});
    CHECK(one("wait")["args"]["last"] == 2);
    CHECK(one("wait")["args"]["lost_us"] == 5);
    CHECK(one("not a sum")["args"]["elements"] == 17);
  }

  TEST_CASE("names in any encoding, with all that JSON escapes") {
    Trace trace;
    const std::vector<std::pair<std::string, std::string>> names = {
        {R"(a "quoted" \ name)", R"(a "quoted" \ name)"},
        {"tab\tnewline\nbell\a" + std::string(1, '\0') + "nul", "tab\tnewline\nbell\a" + std::string(1, '\0') + "nul"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"caf\xe9", "caf\xef\xbf\xbd"},
        {"cut \xe2\x82", "cut \xef\xbf\xbd"},
        {"", ""}};
    for (const auto& [name, _] : names) trace.call(call_of(name), at(1), at(2));
    trace.call(nonblocking("\"\xff"), at(1), at(2));
    const json events = events_of(trace, rank_of(0, "h\xe9\"st"));
    CHECK(defect(events) == "");
    for (const auto& [_, name] : names) CHECK(named(events, name).size() == 1);
    CHECK(named(events, "\"\xef\xbf\xbd").size() == 2);
    CHECK(named(events, "process_name")[0]["args"]["name"] == "rank 0 on h\xef\xbf\xbd\"st");
  }

  TEST_CASE("what overlaps goes to a further row, what nests stays") {
    Trace trace;
    trace.add("under way", 0, 0, at(0), at(10));
    trace.add("under way", 0, 1, at(5), at(15));   // overlaps
    trace.add("under way", 0, 2, at(6), at(8));    // in both
    trace.add("under way", 0, 3, at(10), at(20));  // behind the first
    trace.add("under way", 0, 4, at(7), at(7));    // nothing long
    const json events = events_of(trace);
    CHECK(defect(events) == "");
    std::map<int, int> row;
    for (const json& e : named(events, "under way")) row[e["args"]["chunk"]] = e["tid"];
    CHECK(row[0] != row[1]);
    CHECK(row[0] == row[2]);
    CHECK(row[0] == row[3]);
    std::set<std::string> tracks;
    for (const json& e : named(events, "thread_name")) tracks.insert(e["args"]["name"]);
    CHECK(tracks == std::set<std::string>{"under way", "under way (2)"});
  }

  TEST_CASE("threads have rows of their own") {
    Trace trace;
    trace.add("encode", 0, 0, at(0), at(10));
    std::thread([&] { trace.add("encode", 1, 0, at(5), at(15)); }).join();
    const std::uint32_t world = trace.communicator("0-1");
    trace.waited(world, 0, 2, 0, at(1), at(2));
    std::thread([&] { trace.waited(world, 1, -1, 0, at(3), at(4)); }).join();  // the same communicator's last
    const json events = events_of(trace);
    CHECK(defect(events) == "");
    std::set<std::string> tracks;
    for (const json& e : named(events, "thread_name")) tracks.insert(e["args"]["name"]);
    CHECK(tracks == std::set<std::string>{"encode", "encode, thread 2", "wait"});
    CHECK_FALSE(named(events, "wait").at(1)["args"].contains("last"));
  }

  TEST_CASE("a call says what was done; counters add up; a sum that does not block may overlap others") {
    Trace trace;
    const std::uint32_t world = trace.communicator("0-3"), again = trace.communicator("0-3");
    trace.call(call_of("w + 2 more", world), at(10), at(30));
    trace.call(nonblocking("v", again), at(20), at(50));
    trace.call(nonblocking("u"), at(25), at(40));
    const json events = events_of(trace);
    CHECK(defect(events) == "");
    const json args = named(events, "w + 2 more").at(0)["args"];
    CHECK(args["communicator"] == "0-3 #0");
    CHECK(args["codec"] == "fp16");
    CHECK(args["algorithm"] == "allgather");
    CHECK(args["why"] == "forced");
    CHECK(args["dtype"] == "float32");
    CHECK(args["ratio"] == 4);
    CHECK(args["bytes"] == 800);
    CHECK(args["bytes_in"] == 400);
    CHECK(args["call"] == 7);
    CHECK(named(events, "v").at(0)["args"]["communicator"] == "0-3 #1");
    CHECK(named(events, "v").at(0)["ts"] == 20);
    CHECK(named(events, "v").at(1)["ts"] == 50);
    std::vector<int> sent;
    for (const json& e : named(events, "bytes sent")) sent.push_back(e["args"]["bytes"]);
    CHECK(sent == std::vector<int>{100, 200, 300});
  }

  TEST_CASE("a step begins where one of its calls comes again") {
    Trace trace;
    const char* const calls[] = {"a", "b", "a", "b", "b", "a"};
    for (int i = 0; i < 6; ++i)
      trace.call(call_of(calls[i], trace.communicator("0") * 0 + 1), at(10 * i), at(10 * i + 5));
    Trace::Call unknown = call_of("100 x float32", 1);
    unknown.record.layout = "unknown";
    for (int i = 6; i < 9; ++i) trace.call(unknown, at(10 * i), at(10 * i + 5));
    std::vector<int> begins;
    for (const json& e : events_of(trace))
      if (e["ph"] == "i") begins.push_back(e["ts"]);
    CHECK(begins == std::vector<int>{0, 20, 40});
  }

  TEST_CASE("so many spans are kept, and what is dropped is said") {
    Trace trace;
    for (int i = 0; i < (1 << 18) + 5; ++i) trace.passed("not a sum", 1, at(i), at(i));
    trace.add("encode", 0, 0, at(0), at(1));
    const json events = events_of(trace);
    CHECK(named(events, "not a sum").size() == 1 << 18);
    CHECK(named(events, "encode").size() == 1);  // others have room of their own
    const json dropped = named(events, "crimp_rank").at(0)["args"]["dropped"];
    CHECK(dropped["passed"] == 5);
    CHECK(dropped["work"] == 0);
  }

  TEST_CASE("many ranks share what one file may have") {
    Trace of_few(16), of_many(64);
    for (Trace* trace : {&of_few, &of_many}) {
      for (int i = 0; i < (1 << 16) + 7; ++i) trace->passed("not a sum", 1, at(i), at(i));
      const json dropped = named(events_of(*trace), "crimp_rank").at(0)["args"]["dropped"];
      CHECK(dropped["passed"] == (trace == &of_many ? 7 : 0));
    }
  }

  TEST_CASE("more names than are kept end the names, not the calls") {
    Trace trace;
    for (int i = 0; i < (1 << 15) + 10; ++i) trace.call(call_of("t" + std::to_string(i)), at(i), at(i + 1));
    const json events = events_of(trace);
    CHECK(named(events, "t0").size() == 1);
    CHECK(named(events, "(one of more names than are kept)").size() >= 10);
  }

  TEST_CASE("a rank that could not make its events leaves a file of the others'") {
    Trace trace;
    trace.add("encode", 0, 0, at(0), at(1));
    const json file = file_of({"", trace.events(rank_of(1)), "   "});
    CHECK(file["otherData"]["ranks"] == 3);
    CHECK(file["otherData"]["settings"].contains("CRIMP_CODEC"));
    CHECK(named(file["traceEvents"], "encode").size() == 1);
    CHECK(file_of({"", ""})["traceEvents"].empty());
  }

  TEST_CASE("times of another clock are put on rank 0's") {
    // Rank 0 shows what this one shows and 1000 us, and a hundred millionths more a second; it was called 0 at 2000 us.
    ClockLine line;
    line.origin_ns = 2'000'000;
    const auto sample = [](std::int64_t us) { return ClockSample{1000 * us, 1'000'000 + us / 10, 500}; };
    line.first = sample(0);
    line.last = sample(10'000'000);
    CHECK(line.at(at(1'000'000)) == 1'000'000'000 + 1'000'000 + 100'000 - 2'000'000);
    CHECK(line.uncertainty_ns() == 500);
    CHECK(std::abs(1e6 * line.drift() - 100) < 0.01);
    CHECK(line.at(at(0)) == 0);  // nothing is before the beginning
    // Samples close to one another say no drift: the better one counts, and what they leave is uncertain.
    line.last = ClockSample{1'000'000, 1'090'000, 100'000};
    CHECK(line.drift() == 0);
    CHECK(line.at(at(500'000)) == 500'000'000 + 1'000'000 - 2'000'000);
    CHECK(line.uncertainty_ns() == 100'000 + 90'000);
    // Asked at 100, answered at 160, rank 0 showing 500 in between: 370 +- 30.
    const ClockSample one = ClockSample::of(100, 500, 160);
    CHECK(one.offset_ns == 370);
    CHECK(one.uncertainty_ns == 30);
    std::optional<ClockSample> best = one;
    ClockSample::keep_better(best, ClockSample::of(0, 5, 200));
    CHECK(best->uncertainty_ns == 30);
    ClockSample::keep_better(best, ClockSample::of(0, 5, 10));
    CHECK(best->uncertainty_ns == 5);
  }

  TEST_CASE("a file's events are on the clock of rank 0") {
    Trace trace;
    trace.add("encode", 0, 0, at(3000), at(3500));
    Trace::Rank rank = rank_of(1);
    rank.clock.origin_ns = 1'000'000;
    rank.clock.first = ClockSample{0, 250'500, 40'000};
    const json events = events_of(trace, rank);
    CHECK(named(events, "encode").at(0)["ts"] == 2250.5);
    CHECK(named(events, "encode").at(0)["dur"] == 500);
    const json clock = named(events, "crimp_rank").at(0)["args"]["clock"];
    CHECK(clock["offset_us"] == 250.5);
    CHECK(clock["uncertainty_us"] == 40);
  }
}
