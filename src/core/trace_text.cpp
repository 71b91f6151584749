// What CRIMP_TRACE's file says. Formatting and JSON are slow to compile and called at the end: apart from the
// recording.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <unordered_map>

#include "core/build_id.hpp"
#include "core/settings.hpp"
#include "core/trace.hpp"

namespace crimp {
namespace {

// As a JSON string: in UTF-8, whatever it was.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The format's unit, without rounding.
std::string us(std::int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

constexpr const char* kTracks[] = {"wait", "calls", "encode", "wire", "under way", "decode", "passed to MPI", "other"};

// Rows of one track: in each of them spans follow one another or lie within one another. Given by their begins, longer
// ones first.
class Rows {
 public:
  std::size_t place(std::int64_t begin, std::int64_t end) {
    for (std::size_t row = 0;; ++row) {
      if (row == open_.size()) open_.emplace_back();
      auto& ends = open_[row];
      while (!ends.empty() && ends.back() <= begin) ends.pop_back();
      if (!ends.empty() && ends.back() < end) continue;
      ends.push_back(end);
      return row;
    }
  }

 private:
  std::vector<std::vector<std::int64_t>> open_;  // ends of the spans that have begun, the outermost first
};

}  // namespace

class TraceText {
 public:
  TraceText(const Trace& trace, const Trace::Rank& rank) : trace_(trace), rank_(rank), pid_(rank.rank + 1) {
    for (const std::string& text : trace.texts_) texts_.push_back(quoted(text));
    for (const std::string& text : trace.communicators_) communicators_.push_back(quoted(text));
  }

  std::string all() {
    about_rank();
    order();
    std::int64_t sent = 0;
    for (const Placed& p : placed_) {
      const Trace::Span& s = *p.span;
      if (s.kind == Trace::Kind::nonblocking) asynchronous(p);
      else complete(p);
      if (s.kind == Trace::Kind::call || s.kind == Trace::Kind::nonblocking) ended_.push_back(&p);
      if (s.kind == Trace::Kind::call) step(p);
    }
    std::stable_sort(ended_.begin(), ended_.end(), [](const Placed* a, const Placed* b) { return a->end < b->end; });
    for (const Placed* p : ended_) {
      const Trace::Detail& d = detail(*p->span);
      sent += static_cast<std::int64_t>(d.sent);
      event(R"("ph":"C","name":"bytes sent","ts":{},"args":{{"bytes":{}}})", us(p->end), sent);
      if (rated(d)) event(R"("ph":"C","name":"ratio","ts":{},"args":{{"ratio":{:.3f}}})", us(p->end), ratio(d));
    }
    for (const auto& [key, tid] : rows_) about_row(key, tid);
    return std::move(out_);
  }

 private:
  using Row = std::tuple<std::size_t, Trace::Track, std::size_t>;  // thread, track, row of it
  struct Placed {
    const Trace::Span* span;
    std::int64_t begin, end;
    const int* tid;  // of rows_
  };

  template <class... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), "{}{{\"pid\":{},", out_.empty() ? "" : ",\n", pid_);
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '}';
  }

  const Trace::Detail& detail(const Trace::Span& s) const { return trace_.details_[s.of]; }
  static bool rated(const Trace::Detail& d) { return d.bytes_in && d.sent; }
  static double ratio(const Trace::Detail& d) { return static_cast<double>(d.bytes_in) / static_cast<double>(d.sent); }

  void about_rank() {
    const std::string host = quoted(rank_.host);
    event(R"("ph":"M","name":"process_name","args":{{"name":{}}})",
          quoted(fmt::format("rank {} on {}", rank_.rank, rank_.host)));
    event(R"("ph":"M","name":"process_sort_index","args":{{"sort_index":{}}})", rank_.rank);
    const auto& dropped = trace_.dropped_;
    event(
        R"("ph":"M","name":"crimp_rank","args":{{"rank":{},"host":{},"clock":{{"offset_us":{:.3f},"uncertainty_us":{:.3f},"drift_ppm":{:.3f}}},"dropped":{{"work":{},"calls":{},"nonblocking":{},"passed":{},"waits":{}}}}})",
        rank_.rank, host, static_cast<double>(rank_.clock.offset_ns()) / 1e3,
        static_cast<double>(rank_.clock.uncertainty_ns()) / 1e3, 1e6 * rank_.clock.drift(), dropped[0], dropped[1],
        dropped[2], dropped[3], dropped[4]);
  }

  // Spans by their begins, each in a row of its track.
  void order() {
    placed_.reserve(trace_.spans_.size());
    for (const Trace::Span& s : trace_.spans_) {
      const std::int64_t begin = rank_.clock.at(s.begin);
      placed_.push_back({&s, begin, std::max(begin, rank_.clock.at(s.end)), nullptr});
    }
    // Threads are numbered as they appear in the recording, where the program's first one mostly comes first.
    std::unordered_map<std::uint64_t, std::size_t> threads;
    // The last wait of a communicator is added at its end, by whatever thread: all are drawn as the first one's.
    std::map<std::uint32_t, std::uint64_t> waits;
    const auto thread_of = [&](const Trace::Span& s) {
      return s.kind == Trace::Kind::waited ? waits.emplace(s.communicator, s.thread).first->second : s.thread;
    };
    for (const Placed& p : placed_) threads.emplace(thread_of(*p.span), threads.size());
    std::stable_sort(placed_.begin(), placed_.end(), [](const Placed& a, const Placed& b) {
      return std::pair(a.begin, -a.end) < std::pair(b.begin, -b.end);
    });
    std::map<std::pair<std::size_t, Trace::Track>, Rows> rows;
    for (Placed& p : placed_) {
      const std::pair track{threads.at(thread_of(*p.span)), p.span->track};
      const bool alone = p.span->kind != Trace::Kind::nonblocking;
      const std::size_t row = alone ? rows[track].place(p.begin, p.end) : 0;
      p.tid = &rows_.emplace(Row{track.first, track.second, row}, 0).first->second;
    }
    // Perfetto draws rows in the order of their numbers.
    int number = pid_ * 1000;
    for (auto& [_, tid] : rows_) tid = number++;
  }

  void about_row(const Row& key, int tid) {
    const auto [thread, track, row] = key;
    std::string name = kTracks[static_cast<std::size_t>(track)];
    if (row) name += fmt::format(" ({})", row + 1);
    if (thread) name += fmt::format(", thread {}", thread + 1);
    event(R"("tid":{},"ph":"M","name":"thread_name","args":{{"name":"{}"}})", tid, name);
    event(R"("tid":{},"ph":"M","name":"thread_sort_index","args":{{"sort_index":{}}})", tid,
          1000 * thread + 100 * static_cast<std::size_t>(track) + std::min<std::size_t>(row, 99));
  }

  std::string args(const Trace::Span& s) const {
    switch (s.kind) {
      case Trace::Kind::work: return fmt::format(R"("call":{},"chunk":{})", s.call, s.chunk);
      case Trace::Kind::passed: return fmt::format(R"("elements":{})", s.of);
      case Trace::Kind::waited:
        return fmt::format(R"("call":{},"communicator":{}{},"lost_us":{})", s.call, communicator(s),
                           s.chunk < 0 ? "" : fmt::format(R"(,"last":{})", s.chunk),
                           us(static_cast<std::int64_t>(s.of)));
      default: break;
    }
    const Trace::Detail& d = detail(s);
    return fmt::format(
        R"("call":{},"communicator":{},"dtype":"{}","elements":{},"bytes":{},"bytes_in":{},"codec":{},"algorithm":{},"why":{},"tensors":"{}","sent_bytes":{},"received_bytes":{}{})",
        s.call, communicator(s), d.dtype, d.elements, d.bytes, d.bytes_in, texts_[d.codec], quoted(d.algorithm),
        quoted(d.why), d.layout, d.sent, d.received, rated(d) ? fmt::format(R"(,"ratio":{:.3f})", ratio(d)) : "");
  }

  std::string communicator(const Trace::Span& s) const {
    return s.communicator ? communicators_.at(s.communicator - 1) : R"("?")";
  }

  std::string name(const Trace::Span& s) const {
    if (s.kind == Trace::Kind::call || s.kind == Trace::Kind::nonblocking) return texts_[detail(s).label];
    return quoted(s.name);
  }

  void complete(const Placed& p) {
    event(R"("tid":{},"ph":"X","cat":"{}","name":{},"ts":{},"dur":{},"args":{{{}}})", *p.tid,
          kTracks[static_cast<std::size_t>(p.span->track)], name(*p.span), us(p.begin), us(p.end - p.begin),
          args(*p.span));
  }

  void asynchronous(const Placed& p) {
    const std::uint64_t id = ++asynchronous_;  // of this process
    const std::string what = name(*p.span);
    event(R"("tid":{},"ph":"b","cat":"nonblocking","id2":{{"local":"{}"}},"name":{},"ts":{},"args":{{{}}})", *p.tid, id,
          what, us(p.begin), args(*p.span));
    event(R"("tid":{},"ph":"e","cat":"nonblocking","id2":{{"local":"{}"}},"name":{},"ts":{})", *p.tid, id, what,
          us(p.end));
  }

  // A step is over when one of its calls comes again (schedule/step_recorder.hpp). Horovod's calls differ from step to
  // step.
  void step(const Placed& p) {
    const Trace::Detail& d = detail(*p.span);
    const std::string_view layout = d.layout;
    if (layout != "named" && layout != "periodic") return;
    auto& [calls, steps] = steps_[p.span->communicator];
    if (!calls.empty() && calls.insert({d.label, d.elements, d.codec}).second) return;
    calls.clear();
    calls.insert({d.label, d.elements, d.codec});
    event(R"("tid":{},"ph":"i","s":"p","name":"step {}","ts":{})", *p.tid, ++steps, us(p.begin));
  }

  const Trace& trace_;
  const Trace::Rank& rank_;
  const int pid_;  // 0 is no process to Perfetto
  std::string out_;
  std::vector<std::string> texts_, communicators_;
  std::vector<Placed> placed_;
  std::vector<const Placed*> ended_;
  std::map<Row, int> rows_;
  std::uint64_t asynchronous_ = 0;
  struct Steps {
    std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint32_t>> calls;
    std::uint64_t count = 0;
  };
  std::map<std::uint32_t, Steps> steps_;
};

std::string Trace::events(const Rank& rank) const {
  std::lock_guard lock(mutex_);
  return TraceText(*this, rank).all();
}

std::string trace_file(const Settings& settings, const std::vector<std::string>& of_ranks) {
  nlohmann::ordered_json head{{"crimp", CRIMP_VERSION}, {"build", build_id()}, {"ranks", of_ranks.size()}};
  for (const Option& option : option_table()) head["settings"][option.name] = option.get(settings);
  std::string out = "{\"displayTimeUnit\":\"ms\",\"otherData\":" +
                    head.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + ",\"traceEvents\":[";
  for (const std::string& events : of_ranks)
    if (events.find('{') != events.npos) out += (out.back() == '[' ? "\n" : ",\n") + events;
  return out + "\n]}\n";
}

}  // namespace crimp
