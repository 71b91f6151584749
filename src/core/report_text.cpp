// What a report says. Formatting and JSON are slow to compile and called at the end: apart from the counting.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/build_id.hpp"
#include "core/report.hpp"
#include "core/settings.hpp"

namespace crimp {
namespace {

std::string bytes_text(std::uint64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (b >= 1e9) return fmt::format("{:.2f} GB", b * 1e-9);
  if (b >= 1e6) return fmt::format("{:.2f} MB", b * 1e-6);
  return fmt::format("{:.1f} kB", b * 1e-3);
}

// One rank's object of the report.
nlohmann::ordered_json rank_object(const std::string& text) {
  auto object = nlohmann::ordered_json::parse(text, nullptr, false);
  if (object.is_discarded()) object = {{"error", "this rank could not make its part of the report"}};
  return object;
}

// What is not known is counted, never taken for 0 seconds. of_all: codecs, so that each call counts once.
nlohmann::json time_object(const TimeRecord& r, bool of_all) {
  using nlohmann::json;
  const TimeRecord::Otherwise& measured = r.plain_measured;
  const TimeRecord::Otherwise& predicted = r.plain_predicted;
  const auto calls_of = [&](const auto& of) { return of_all ? of.calls - of.again : of.calls; };
  const auto plain = [&](const TimeRecord::Otherwise& of) {
    return json{{"calls", calls_of(of)}, {"took_s", of.took_s}, {"own_s", of.own_s}, {"plain_s", of.s}};
  };
  const auto rest = [&](const TimeRecord::Otherwise& known) {
    return json{{"calls", calls_of(r) - calls_of(known)},
                {"took_s", r.calls == known.calls ? 0.0 : r.took_s - known.took_s}};
  };
  TimeRecord::Otherwise without = measured;
  without += predicted;
  return {
      {"calls", calls_of(r)},
      {"elements", r.elements},
      {"took_s", r.took_s},
      {"best",
       {{"calls", calls_of(r.best)},
        {"took_s", r.best.took_s},
        {"own_s", r.best.own_s},
        {"best_s", r.best.s},
        {"regret_s", r.best.own_s - r.best.s},
        {"unknown", rest(r.best)}}},
      {"without_crimp", {{"measured", plain(measured)}, {"predicted", plain(predicted)}, {"unknown", rest(without)}}}};
}

// Of all ranks whose part has it: numbers of the same place added.
void add_numbers(nlohmann::ordered_json& to, const nlohmann::ordered_json& more) {
  if (to.is_null()) to = nlohmann::ordered_json::object();
  for (const auto& [key, value] : more.items())
    if (value.is_object()) add_numbers(to[key], value);
    else if (value.is_number_unsigned()) to[key] = to.value(key, std::uint64_t{0}) + value.get<std::uint64_t>();
    else if (value.is_number()) to[key] = to.value(key, 0.0) + value.get<double>();
}

// Where and when the ranks ran, of those that say so. Clocks of hosts differ by anything: both ends are the first
// one's, and the end that of the rank that took longest.
nlohmann::ordered_json job_object(const std::vector<nlohmann::ordered_json>& timelines, std::size_t nodes) {
  nlohmann::ordered_json out{
      {"program", ""}, {"started", 0.0}, {"ended", 0.0}, {"nodes", 0}, {"hosts", nlohmann::ordered_json::object()}};
  for (const auto& of : timelines) {
    if (of.is_null()) continue;
    if (out["program"] == "") out["program"] = of.at("program"), out["started"] = of.at("started");
    const double took_s = of.at("ended").get<double>() - of.at("started").get<double>();
    out["ended"] = std::max(out["ended"].get<double>(), out["started"].get<double>() + took_s);
    auto& ranks = out["hosts"][of.at("host").get<std::string>()];
    ranks = ranks.is_null() ? 1 : ranks.get<int>() + 1;
  }
  out["nodes"] = nodes ? nodes : out["hosts"].size();
  return out;
}

}  // namespace

std::string Report::summary() const {
  std::lock_guard lock(mutex_);
  std::string text;
  if (all_.calls == 0) {
    text = "rank 0 compressed no call";  // others may, in communicators without it
  } else {
    std::string codecs;
    for (const auto& [codec, sum] : by_codec_)
      codecs += (codecs.empty() ? "" : ", ") + fmt::format("{} with {}", sum.calls, codec);
    std::string how;
    for (const auto& [algorithm, sum] : by_algorithm_)
      how += fmt::format("{}{} by {}", how.empty() ? "" : ", ", sum.calls, algorithm);
    const std::string moved = all_.bytes_in
                                  ? fmt::format("{} in, {} sent by rank 0 ({:.1f}x less)", bytes_text(all_.bytes_in),
                                                bytes_text(all_.sent), all_.ratio())
                                  : fmt::format("rank 0 only received, and sent {} of headers", bytes_text(all_.sent));
    text = fmt::format("{} calls compressed ({}; {}): {}, in {:.2f} s (encode {:.2f}, wire {:.2f}, decode {:.2f})",
                       all_.calls, codecs, how, moved, all_.total, all_.encode, all_.wire, all_.decode);
    if (skew_.calls) text += fmt::format(", and before that waiting {:.2f} s for ranks that came later", all_.wait);
  }
  std::string passes;
  for (std::size_t i = 0; i < passes_.size(); ++i)
    if (const std::uint64_t n = passes_[i])
      passes += (passes.empty() ? "" : ", ") + fmt::format("{} {}", n, text_of(static_cast<PassReason>(i)));
  if (!passes.empty()) text += "; passed through: " + passes;
  if (!excluded_.empty())
    text += fmt::format("; {}{} tensors summed exactly by CRIMP_RULES", excluded_unlisted_ ? "more than " : "",
                        excluded_.size());
  if (sequence_.tensors) text += fmt::format("; {} unnamed tensors known by their values", sequence_.tensors);
  if (sequence_.ambiguous)
    text +=
        fmt::format("; {} kinds of calls whose tensors could not be told apart had no residuals", sequence_.ambiguous);
  if (sequence_.withdrawn)
    text += fmt::format("; {} times tensors were not what they had been known for", sequence_.withdrawn);
  if (sequence_.forgotten)
    text += fmt::format("; {} times a tensor that was known by its values was forgotten", sequence_.forgotten);
  if (ruled_ && first_name_.empty())
    text += "; CRIMP_RULES was not used, as no call that was compressed named its tensors";
  else if (!idle_rules_.empty()) {
    const std::size_t shown = std::min<std::size_t>(idle_rules_.size(), 3);
    text += fmt::format(
        "; no tensor that was compressed came to '{}'{} of CRIMP_RULES: no name matches, or an earlier rule took it (the first name was '{}')",
        fmt::join(idle_rules_.begin(), idle_rules_.begin() + static_cast<std::ptrdiff_t>(shown), "', '"),
        idle_rules_.size() > shown ? fmt::format(" and {} other patterns", idle_rules_.size() - shown) : "",
        first_name_);
  }
  if (state_.failed)
    text += fmt::format("; state could not be saved {} of {} times", state_.failed, state_.failed + state_.saved);
  if (state_.saving_s > 0) text += fmt::format("; saving state at intervals took {:.2f} s", state_.saving_s);
  if (state_.restored || state_.never_asked_for)
    text += fmt::format("; state of {} tensors restored, of {} never asked for", state_.restored - state_.unfit,
                        state_.never_asked_for);
  if (state_.unfit) text += fmt::format("; state of {} tensors did not fit them any more", state_.unfit);
  std::uint64_t changes = 0;
  for (const ControlRecord& control : controls_) changes += control.changes;
  if (!controls_.empty()) text += fmt::format("; CRIMP_CONTROL changed codecs {} times", changes);
  if (const auto n = repeats_[static_cast<std::size_t>(Repeat::missing)].load())
    text += fmt::format("; {} calls that the record of CRIMP_REPLAY does not have", n);
  if (const auto n = repeats_[static_cast<std::size_t>(Repeat::beyond)].load())
    text += fmt::format("; {} calls beyond the record of CRIMP_REPLAY", n);
  for (const auto& [name, section] : sections_)
    if (!section.clause.empty()) text += "; " + section.clause;
  if (device_calls_) text += fmt::format("; {} in device memory", device_calls_);
  for (const auto& [why, n] : through_host_)
    text += fmt::format("; {} of device memory through host memory ({})", n, why);
  if (const auto n = staged_.load())
    text += fmt::format("; {} passed with buffers copied from and to device memory", n);
  if (const auto n = errors_.load()) text += fmt::format("; {} calls failed", n);
  if (const auto n = unrecorded_.load()) text += fmt::format("; {} notes missing here for want of memory", n);
  return text;
}

std::string Report::json() const {
  std::lock_guard lock(mutex_);
  using nlohmann::json;
  const auto sum = [this](const Sum& s) {
    json of{{"calls", s.calls},   {"bytes_in", s.bytes_in}, {"sent_bytes", s.sent}, {"received_bytes", s.received},
            {"ratio", s.ratio()}, {"encode_s", s.encode},   {"wire_s", s.wire},     {"decode_s", s.decode},
            {"total_s", s.total}};
    if (skew_.calls) of["wait_s"] = s.wait;  // ahead of the calls; without CRIMP_SKEW nobody knows
    return of;
  };
  json out = sum(all_);
  for (const auto& [codec, s] : by_codec_) out["codecs"][codec] = sum(s);
  for (const auto& [algorithm, s] : by_algorithm_) {
    json& to = out["algorithms"][algorithm] = sum(s);
    to["why"] = reasons_.at(algorithm);
    if (s.predicted > 0) to["predicted_s"] = s.predicted, to["plain_predicted_s"] = s.plain;
  }
  for (const auto& [layout, s] : by_layout_) out["layouts"][layout] = sum(s);
  for (const auto& [log2, s] : by_size_) out["size_classes"][std::to_string(std::uint64_t{1} << log2)] = sum(s);
  TimeRecord times;
  for (const auto& [_, of] : times_) times += of;
  out["time"] = time_object(times, true);
  out["time"]["classes"] = json::array();
  for (const auto& [of, record] : times_) {
    json one = time_object(record, false);
    one["codec"] = of.first;
    one["from_elements"] = of.second;
    out["time"]["classes"].push_back(std::move(one));
  }
  for (std::size_t i = 0; i < passes_.size(); ++i)
    out["passed_through"][name_of(static_cast<PassReason>(i))] = passes_[i].load();
  out["excluded"] = {{"calls", excluded_calls_}, {"unlisted_calls", excluded_unlisted_}, {"tensors", json::array()}};
  for (const auto& [name, e] : excluded_)
    out["excluded"]["tensors"].push_back({{"name", name}, {"elements", e.elements}, {"calls", e.calls}});
  out["unnamed"] = {{"tensors", sequence_.tensors},
                    {"ambiguous", sequence_.ambiguous},
                    {"foreign", sequence_.foreign},
                    {"withdrawn", sequence_.withdrawn},
                    {"forgotten", sequence_.forgotten}};
  for (const ControlRecord& control : controls_) {
    json one{{"ladder", control.ladder},
             {"changes", control.changes},
             {"classes", json::array()},
             {"decisions", json::array()}};
    for (const auto& c : control.classes)
      one["classes"].push_back(
          {{"from_bytes", c.bytes}, {"calls", c.calls}, {"level", c.level}, {"calls_at_level", c.calls_at}});
    for (const auto& d : control.decisions)
      one["decisions"].push_back({{"call", d.call},
                                  {"from_bytes", d.bytes},
                                  {"from", d.from},
                                  {"to", d.to},
                                  {"why", d.why},
                                  {"wait_us", d.wait_us},
                                  {"target_us", d.target_us}});
    out["control"].push_back(std::move(one));
  }
  std::vector<json> decisions;
  for (const std::string& of_one : decisions_) decisions.push_back(json::parse(of_one));
  std::sort(decisions.begin(), decisions.end(), [](const json& a, const json& b) {
    return std::pair(a["ranks"], a["number"]) < std::pair(b["ranks"], b["number"]);
  });
  out["decisions"] = std::move(decisions);
  out["decisions_left_out"] = decisions_left_out_;
  out["steps"] = json::array();
  for (const std::string& of_one : steps_) out["steps"].push_back(json::parse(of_one));
  const auto repeats = [&](Repeat how) { return repeats_[static_cast<std::size_t>(how)].load(); };
  out["replay"] = {{"calls", repeats(Repeat::recorded)},
                   {"calls_beyond", repeats(Repeat::beyond)},
                   {"calls_missing", repeats(Repeat::missing)}};
  out["state"] = {{"saved", state_.saved},
                  {"failed", state_.failed},
                  {"restored", state_.restored},
                  {"unfit", state_.unfit},
                  {"never_asked_for", state_.never_asked_for},
                  {"saving_s", state_.saving_s}};
  for (const auto& [name, section] : sections_) out[name] = json::parse(section.json);
  if (ruled_) out["rules"] = {{"idle", idle_rules_}, {"first_tensor", first_name_}};
  if (skew_.calls)
    out["skew"] = {
        {"calls", skew_.calls}, {"waited_s", skew_.waited_s}, {"late_s", skew_.late_s}, {"last", skew_.last}};
  out["device"] = {{"calls", device_calls_}, {"through_host", through_host_}, {"passed_staged", staged_.load()}};
  out["networks_measured"] = measured_.load();
  out["errors"] = errors_.load();
  out["unrecorded"] = unrecorded_.load();
  out["residual_bytes"] = residual_bytes_.load();
  if (history_) out["timeline"] = json::parse(history_->json());
  return out.dump(-1, ' ', false, json::error_handler_t::replace);  // names come from the program, in any encoding
}

std::string Report::of_job(const Settings& settings, int ranks, const std::string& simd, const char* status,
                           const std::vector<std::string>& of_ranks, std::size_t nodes) {
  nlohmann::ordered_json out{{"crimp", CRIMP_VERSION}, {"build", build_id()}, {"ranks", ranks}, {"simd", simd}};
  for (const Option& option : option_table()) out["settings"][option.name] = option.get(settings);
  out["status"] = status;
  std::vector<nlohmann::ordered_json> timelines;
  out["time"] = nlohmann::ordered_json::object();
  nlohmann::ordered_json skew;
  for (const auto& text : of_ranks) {
    auto rank = rank_object(text);
    if (const auto of_rank = rank.find("skew"); of_rank != rank.end()) {
      nlohmann::ordered_json row{{"rank", &text - of_ranks.data()}};
      row.update(*of_rank);
      skew["per_rank"].push_back(std::move(row));
    }
    if (const auto time = rank.find("time"); time != rank.end()) add_numbers(out["time"], *time);
    timelines.emplace_back();
    if (const auto timeline = rank.find("timeline"); timeline != rank.end()) {
      timelines.back() = std::move(*timeline);
      // Of the first rank of each communicator alone (mpi/tensor_notes.hpp).
      if (const auto tensors = timelines.back().find("tensors"); tensors != timelines.back().end()) {
        rank["tensors"] = std::move(*tensors);
        timelines.back().erase("tensors");
      }
      rank.erase("timeline");
    }
    out["per_rank"].push_back(std::move(rank));
  }
  if (!skew.is_null()) out["skew"] = std::move(skew);
  out["job"] = job_object(timelines, nodes);
  // File names and patterns may be in any encoding; JSON is UTF-8.
  const auto dump = [](const nlohmann::ordered_json& of, int indent) {
    return of.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  };
  std::string text = dump(out, 2);
  text.resize(text.size() - 2);  // "\n}"
  text += ",\n  \"timeline\": [";
  for (std::size_t r = 0; r < timelines.size(); ++r) text += (r ? ",\n    " : "\n    ") + dump(timelines[r], -1);
  return text + "\n  ]\n}\n";
}

}  // namespace crimp
