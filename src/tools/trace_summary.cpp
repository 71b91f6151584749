#include "trace_summary.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/error.hpp"
#include "core/json_text.hpp"
#include "input_file.hpp"

namespace crimp::tools {
namespace {

using nlohmann::json;

struct Interval {
  double begin, end;  // microseconds
  double length() const { return end - begin; }
};

// Puts them in order and joins those that touch.
void unite(std::vector<Interval>& all) {
  std::sort(all.begin(), all.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  std::vector<Interval> out;
  for (const Interval& i : all)
    if (!out.empty() && i.begin <= out.back().end) out.back().end = std::max(out.back().end, i.end);
    else out.push_back(i);
  all.swap(out);
}

double total(const std::vector<Interval>& all) {
  double sum = 0;
  for (const Interval& i : all) sum += i.length();
  return sum;
}

// Of `some`, what lies in `others`, which are united.
double within(const std::vector<Interval>& some, const std::vector<Interval>& others) {
  double sum = 0;
  for (const Interval& s : some) {
    auto o = std::lower_bound(others.begin(), others.end(), s.begin,
                              [](const Interval& other, double at) { return other.end <= at; });
    for (; o != others.end() && o->begin < s.end; ++o) sum += std::min(s.end, o->end) - std::max(s.begin, o->begin);
  }
  return sum;
}

class Reader {
 public:
  void event(const json& e) {
    const std::string ph = e.at("ph");
    const int rank = e.at("pid").get<int>() - 1;
    TraceSummary::Rank& of = out_.ranks[rank];
    if (ph == "M") {
      if (e.at("name") == "crimp_rank") about(of, e.at("args"));
      if (e.at("name") == "thread_name") threads_[{rank, e.at("tid")}] = thread_of(e.at("args").at("name"));
      return;
    }
    if (ph == "C" || ph == "i") return;
    const double ts = e.at("ts");
    const double end = ts + e.value("dur", 0.0);
    first_ = std::min(first_, ts), last_ = std::max(last_, end);
    if (ph == "e") {
      if (const auto begun = begun_.find(id(rank, e)); begun != begun_.end()) {
        call(rank, of, begun->second.first, {begun->second.second, ts});
        begun_.erase(begun);
      }
      return;
    }
    if (ph == "b") {
      begun_[id(rank, e)] = {e, ts};
      return;
    }
    if (ph != "X") return;
    const std::string track = e.at("cat");
    const Interval span{ts, end};
    const double s = 1e-6 * span.length();
    if (track == "calls") call(rank, of, e, span);
    else if (track == "encode") of.encode_s += s, encode_[rank].push_back(span);
    else if (track == "under way") under_way_[rank].push_back(span);
    else if (track == "decode") of.decode_s += s;
    else if (track == "passed to MPI") of.passed_s += s, ++of.passed;
    else if (track == "wire") wire_[rank].push_back({e.at("args").at("call"), e.at("tid"), span});
    else if (track == "wait") wait(rank, of, e.at("args"), s);
  }

  void head(const json& other) { out_.version = other.at("crimp"); }

  TraceSummary end() && {
    for (auto& [rank, of] : out_.ranks) {
      unite(under_way_[rank]);
      of.under_way_s = 1e-6 * total(under_way_[rank]);
      of.hidden_s = 1e-6 * within(encode_[rank], under_way_[rank]);
      for (const Wire& wire : wire_[rank])
        (give_wire(rank, wire) ? of.wire_s : of.asked_s) += 1e-6 * wire.span.length();
    }
    if (!out_.measured) estimate();
    for (auto& [_, tensors] : tensors_) out_.tensors.push_back(std::move(tensors));
    std::stable_sort(out_.tensors.begin(), out_.tensors.end(),
                     [](const auto& a, const auto& b) { return a.wire_s > b.wire_s; });
    out_.span_s = last_ > first_ ? 1e-6 * (last_ - first_) : 0;
    return std::move(out_);
  }

 private:
  struct Call {
    Interval span;
    std::optional<int> row;  // none: it is of no thread, as sums that do not block
    TraceSummary::Tensors* tensors;
  };
  struct Wire {
    std::uint32_t call;
    int row;
    Interval span;
  };

  // Of a row that the trace calls "wire, thread 3"; the first thread's have no number.
  static std::string thread_of(const std::string& row) {
    const std::size_t at = row.rfind(", thread ");
    return at == row.npos ? std::string() : row.substr(at);
  }

  static std::pair<int, std::string> id(int rank, const json& e) { return {rank, e.at("id2").at("local")}; }

  static void about(TraceSummary::Rank& of, const json& args) {
    of.host = args.at("host");
    of.uncertainty_us = args.at("clock").at("uncertainty_us");
    for (const auto& [_, n] : args.at("dropped").items()) of.dropped += n.get<std::uint64_t>();
  }

  void call(int rank, TraceSummary::Rank& of, const json& e, const Interval& span) {
    const json& args = e.at("args");
    const std::string name = e.at("name");
    // A sum that a thread carries is in the trace twice: from the program's call on, and as the thread's call.
    if (args.at("algorithm") == "") return;
    // Those of older versions do not know what of a call's bytes was for other ranks.
    const std::uint64_t bytes = args.contains("bytes_in") ? args["bytes_in"] : args.at("bytes"),
                        sent = args.at("sent_bytes");
    ++of.calls, of.bytes += bytes, of.sent_bytes += sent, of.calls_s += 1e-6 * span.length();
    TraceSummary::Tensors& tensors = tensors_[name];
    tensors.name = name;
    ++tensors.calls, tensors.bytes += bytes, tensors.sent_bytes += sent, tensors.calls_s += 1e-6 * span.length();
    const bool blocks = e.at("ph") == "X";
    calls_[{rank, args.at("call")}].push_back(
        {span, blocks ? std::optional<int>(e.at("tid")) : std::nullopt, &tensors});
    if (blocks && args.at("communicator") != "?")
      begins_[{args.at("communicator"), args.at("call")}].push_back({rank, span.begin});
  }

  // A wait for the network is of its thread's call with its number in which it lies: communicators have numbers of
  // their own. Of calls of no thread, of any such.
  bool give_wire(int rank, const Wire& wire) {
    const auto calls = calls_.find({rank, wire.call});
    if (calls == calls_.end()) return false;
    const auto lies_in = [&](const Call& c) {
      return c.span.begin <= wire.span.begin && wire.span.begin <= c.span.end;
    };
    const auto find = [&](auto&& has_row) {
      return std::find_if(calls->second.begin(), calls->second.end(),
                          [&](const Call& c) { return lies_in(c) && has_row(c); });
    };
    const std::string& thread = threads_[{rank, wire.row}];
    auto at = find([&](const Call& c) { return c.row && threads_[{rank, *c.row}] == thread; });
    if (at == calls->second.end()) at = find([](const Call& c) { return !c.row; });
    if (at == calls->second.end()) return false;
    at->tensors->wire_s += 1e-6 * wire.span.length();
    return true;
  }

  void wait(int rank, TraceSummary::Rank& of, const json& args, double s) {
    out_.measured = true;
    of.waited_s += s, ++of.meetings;
    if (!args.contains("last")) return;
    const int last = args.at("last");
    if (last == rank) ++of.last;
    else out_.ranks[last].late_s += 1e-6 * args.at("lost_us").get<double>();
  }

  // Who began a call last is who the others waited for, as far as clocks can tell.
  void estimate() {
    for (const auto& [_, ranks] : begins_) {
      if (ranks.size() < 2) continue;
      const auto last = std::max_element(ranks.begin(), ranks.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      TraceSummary::Rank& late = out_.ranks[last->first];
      ++late.last;
      for (const auto& [rank, begin] : ranks) {
        ++out_.ranks[rank].meetings;
        out_.ranks[rank].waited_s += 1e-6 * (last->second - begin);
        late.late_s += 1e-6 * (last->second - begin);
      }
    }
  }

  TraceSummary out_;
  double first_ = std::numeric_limits<double>::infinity(), last_ = 0;
  std::map<int, std::vector<Interval>> encode_, under_way_;
  std::map<int, std::vector<Wire>> wire_;
  std::map<std::pair<int, int>, std::string> threads_;  // of rows, by rank
  std::map<std::pair<int, std::uint32_t>, std::vector<Call>> calls_;
  std::map<std::pair<std::string, std::uint32_t>, std::vector<std::pair<int, double>>> begins_;
  std::map<std::pair<int, std::string>, std::pair<json, double>> begun_;
  std::map<std::string, TraceSummary::Tensors> tensors_;  // nodes stay where they are
};

}  // namespace

std::uint64_t TraceSummary::dropped() const {
  std::uint64_t all = 0;
  for (const auto& [_, rank] : ranks) all += rank.dropped;
  return all;
}

double TraceSummary::uncertainty_us() const {
  double most = 0;
  for (const auto& [_, rank] : ranks) most = std::max(most, rank.uncertainty_us);
  return most;
}

TraceSummary::RankSums<double> TraceSummary::mean() const {
  RankSums<double> sum;
  const auto d = [](std::uint64_t count) { return static_cast<double>(count); };
  for (const auto& [_, r] : ranks) {
    sum.calls += d(r.calls), sum.passed += d(r.passed), sum.bytes += d(r.bytes), sum.sent_bytes += d(r.sent_bytes);
    sum.calls_s += r.calls_s, sum.encode_s += r.encode_s, sum.wire_s += r.wire_s, sum.asked_s += r.asked_s,
        sum.under_way_s += r.under_way_s;
    sum.decode_s += r.decode_s, sum.passed_s += r.passed_s, sum.hidden_s += r.hidden_s, sum.waited_s += r.waited_s;
  }
  const std::size_t n = std::max<std::size_t>(ranks.size(), 1);
  for (double* s : {&sum.calls, &sum.passed, &sum.bytes, &sum.sent_bytes, &sum.calls_s, &sum.encode_s, &sum.wire_s,
                    &sum.asked_s, &sum.under_way_s, &sum.decode_s, &sum.passed_s, &sum.hidden_s, &sum.waited_s})
    *s /= static_cast<double>(n);
  return sum;
}

TraceSummary read_trace(const std::string& file) {
  const auto bad = [&](const std::string& why) { return Error(ErrorCode::argument_invalid, "'" + file + "' " + why); };
  std::ifstream in = input_file(file);
  if (!in) throw bad("cannot be read; legal is a file that CRIMP_TRACE wrote");
  Reader reader;
  bool events = false, headed = false, deep = false;
  std::string why;  // exceptions may not leave the parser's callback with what they are
  // Events are taken as they come, so that what is kept of a long trace is little.
  const auto take = [&](int depth, json::parse_event_t what, json& parsed) {
    if (depth > kMostNesting) return deep = true, false;
    if (what == json::parse_event_t::key && depth == 1) events = parsed == "traceEvents";
    if (what != json::parse_event_t::object_end || !(depth == 2 ? events : depth == 1)) return true;
    try {
      if (depth == 2) reader.event(parsed);
      else if (parsed.contains("crimp")) reader.head(parsed), headed = true;
    } catch (const json::exception&) {
      if (why.empty())
        why = "has an event that Crimp does not write: " +
              parsed.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 120);
    }
    return false;
  };
  const json rest = json::parse(in, take, false);
  if (deep || (rest.is_discarded() && why.empty())) why = "is no JSON, or not all of it";
  if (why.empty() && !headed) why = "is no trace of Crimp";
  if (!why.empty()) throw bad(why + "; legal is a file that CRIMP_TRACE wrote");
  return std::move(reader).end();
}

}  // namespace crimp::tools
