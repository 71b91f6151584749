#include "collective/replay.hpp"

#include <algorithm>
#include <new>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "collective/algorithms.hpp"
#include "core/build_id.hpp"
#include "core/digest.hpp"
#include "core/error.hpp"
#include "core/file_text.hpp"
#include "core/json_text.hpp"

namespace crimp {
namespace {

using nlohmann::json;

constexpr const char* kAdvice =
    ". Give the file that CRIMP_REPORT wrote in the job to repeat, or leave CRIMP_REPLAY out";

[[noreturn]] void refuse(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::option_invalid, "CRIMP_REPLAY is '" + file + "', " + why + kAdvice);
}

// Of what is read inside; refuse() says it with the place.
struct Odd {
  std::string what;
};

std::uint64_t number(const json& of, const char* name, std::uint64_t most = ~std::uint64_t{0}) {
  const auto at = of.find(name);
  if (at == of.end() || !at->is_number_unsigned() || at->get<std::uint64_t>() > most)
    throw Odd{std::string("no '") + name + "' that is a number from 0" +
              (most + 1 ? " to " + std::to_string(most) : "")};
  return at->get<std::uint64_t>();
}

const std::string& text(const json& of, const char* name) {
  const auto at = of.find(name);
  if (at == of.end() || !at->is_string()) throw Odd{std::string("no text '") + name + "'"};
  return at->get_ref<const std::string&>();
}

bool flag(const json& of, const char* name) {
  const auto at = of.find(name);
  if (at == of.end() || !at->is_boolean()) throw Odd{std::string("no '") + name + "' that is true or false"};
  return at->get<bool>();
}

const json& list(const json& of, const char* name) {
  const auto at = of.find(name);
  if (at == of.end() || !at->is_array()) throw Odd{std::string("no list '") + name + "'"};
  return *at;
}

void read(const json& from, int& level) { level = static_cast<int>(number(from, "level", 65535)); }

void read(const json& from, Carriage& part) {
  const bool scatters = text(from, "algorithm") == scattering().name;
  const AlgorithmEntry* const entry = scatters ? &scattering() : find_algorithm(text(from, "algorithm"));
  if (!entry || entry->algorithm == Algorithm::hierarchical)
    throw Odd{"the unknown algorithm '" + text(from, "algorithm") + "'"};
  part = {entry->algorithm, flag(from, "nodes"), number(from, "chunk", std::uint64_t{1} << 31),
          static_cast<int>(number(from, "radix", 65536)), from.contains("halves") && flag(from, "halves")};
  if (part.nodes ? scatters : part.algorithm == Algorithm::node_sum)
    throw Odd{"an algorithm '" + text(from, "algorithm") + (part.nodes ? "' between nodes" : "' without nodes")};
  if (part.chunk_setting % kPieceElements != 0)
    throw Odd{"a 'chunk' that is no multiple of " + std::to_string(kPieceElements)};
}

void read(const json& from, CallDecision& call) {
  if (from.contains("passes")) {
    for (const PassReason reason : {PassReason::early, PassReason::slower, PassReason::memory})
      if (text(from, "passes") == name_of(reason)) call.pass = reason;
    if (!call.pass) throw Odd{"calls that pass for the unknown reason '" + text(from, "passes") + "'"};
    call.unseen = flag(from, "unseen");
    return;
  }
  for (const json& part : list(from, "parts")) read(part, call.parts.emplace_back());
  if (call.parts.empty()) throw Odd{"a call without parts"};
}

template <class Decision>
DecisionRuns<Decision> runs_of(const json& from) {
  DecisionRuns<Decision> of;
  of.calls = number(from, "calls");
  if (flag(from, "truncated")) of.ends = number(from, "ends");
  for (const json& one : list(from, "from")) {
    Decision decision{};
    read(one, decision);
    const std::uint64_t call = number(one, "call");
    if (call < (of.runs.empty() ? 1 : of.runs.back().from + 1) || call > of.calls)
      throw Odd{"calls that are not in order"};
    of.runs.push_back({call, std::move(decision)});
  }
  return of;
}

DecisionRecord record_of(const json& from) {
  DecisionRecord record;
  record.ranks = text(from, "ranks");
  record.number = number(from, "number");
  record.incomplete = flag(from, "incomplete");
  for (const json& one : list(from, "kinds")) {
    const std::string& kind = text(one, "kind");
    record.kinds.emplace(digest(kind), DecisionRecord::Kind{kind, runs_of<CallDecision>(one)});
  }
  for (const json& one : list(from, "levels")) record.levels.emplace(number(one, "from_bytes"), runs_of<int>(one));
  return record;
}

void add_plans(const json& rank, std::vector<PlanTurns>& to) {
  const json::json_pointer at("/horovod/merge/plans");
  if (!rank.contains(at)) return;
  try {
    for (const json& one : rank.at(at)) to.push_back(PlanTurns::parse(one.dump()));
  } catch (const std::runtime_error& e) {
    throw Odd{e.what()};
  }
}

// What decides nothing in a replay, or nothing about results; a profile's values are compared one by one.
bool free_to_differ(const Option& option) {
  const std::string_view name = option.name;
  return name == "CRIMP_PROFILE" || name == "CRIMP_ALGORITHM" || name == "CRIMP_QUALITY" ||
         name == "CRIMP_DELAY_TARGET" || name == "CRIMP_GAIN_FLOOR" || name == "CRIMP_HOLD_MS" ||
         (!option.agreed && name != "CRIMP_RESIDUAL_JUMP");
}

// Of the settings in an object of the file; null: it has none that is legal.
const std::string* algorithm_in(const json& settings) {
  const auto at = settings.is_object() ? settings.find("CRIMP_ALGORITHM") : settings.end();
  if (!settings.is_object() || at == settings.end() || !at->is_string()) return nullptr;
  const auto& name = at->get_ref<const std::string&>();
  return name == "auto" || find_algorithm(name) ? &name : nullptr;
}

// A replay's own CRIMP_ALGORITHM has decided nothing.
std::string recorded_algorithm(const json& file, const json& per_rank) {
  const std::string* found = nullptr;
  for (const json& rank : per_rank)
    if (!found && rank.is_object() && rank.contains(Replay::kRepeated)) found = algorithm_in(rank[Replay::kRepeated]);
  if (!found && file.contains("settings")) found = algorithm_in(file["settings"]);
  return found ? *found : std::string();
}

// "CRIMP_CODEC was '3lc', and is 'fp16'; ..."
std::string other_settings(const json& file, const Settings& settings) {
  const auto were = file.find("settings");
  std::string all;
  for (const Option& option : option_table()) {
    if (free_to_differ(option) || were == file.end() || !were->is_object()) continue;
    const auto was = were->find(option.name);
    if (was == were->end() || !was->is_string() || *was == option.get(settings)) continue;
    all += (all.empty() ? "" : "; ") + std::string(option.name) + " was '" + was->get<std::string>() + "', and is '" +
           option.get(settings) + "'";
  }
  return all;
}

// How much of the record is missing, and from where on.
void warn_of_gaps(const std::map<std::pair<std::string, std::uint64_t>, DecisionRecord>& records,
                  const std::string& file, std::uint64_t left_out, std::vector<std::string>& warnings) {
  std::uint64_t truncated = 0, incomplete = 0;
  std::string first;
  const auto look = [&](const DecisionRecord& record, std::uint64_t ends, const std::string& what) {
    if (ends > 0 && truncated++ == 0)
      first = "of the calls " + what + " on ranks " + record.ranks + " ends with call " + std::to_string(ends);
  };
  for (const auto& [_, record] : records) {
    incomplete += record.incomplete;
    for (const auto& [digest, kind] : record.kinds) look(record, kind.of.ends, "'" + kind.text + "'");
    for (const auto& [bytes, of] : record.levels) look(record, of.ends, "from " + std::to_string(bytes) + " bytes");
  }
  const std::string begin = "CRIMP_REPLAY: the record in '" + file + "' ";
  if (truncated)
    warnings.push_back(begin + first +
                       (truncated > 1 ? ", and " + std::to_string(truncated - 1) + " more end likewise" : "") +
                       "; later calls go on with the last decision");
  if (incomplete)
    warnings.push_back(begin +
                       "has gaps, where a rank lacked memory or there were too many kinds of calls: not every "
                       "call is repeated");
  if (left_out)
    warnings.push_back(begin + "does not have " + std::to_string(left_out) +
                       " communicators, of which there were many");
}

}  // namespace

Replay Replay::read(const std::string& file, const Settings& settings, int ranks, std::vector<std::string>& warnings) {
  std::string content;
  try {
    content = file_text(file, kMostBytes);
  } catch (const std::runtime_error& e) {
    refuse(file, std::string("which ") + e.what());
  }
  return parse(file, content, settings, ranks, warnings);
}

Replay Replay::parse(const std::string& file, const std::string& content, const Settings& settings, int ranks,
                     std::vector<std::string>& warnings) {
  const json all = parse_json(content);
  if (all.is_discarded()) refuse(file, "which is no JSON, or ends too early");
  const auto per_rank = all.is_object() ? all.find("per_rank") : all.end();
  if (!all.is_object() || !all.contains("crimp") || per_rank == all.end() || !per_rank->is_array())
    refuse(file, "which is no report of Crimp's");
  Replay replay;
  std::uint64_t parts = 0, left_out = 0;
  try {
    if (const auto of = number(all, "ranks"); of != static_cast<std::uint64_t>(ranks))
      refuse(file,
             "the report of a job of " + std::to_string(of) + " ranks, and this job has " + std::to_string(ranks));
    int number_of_rank = -1;
    for (const json& rank : *per_rank) {
      ++number_of_rank;
      if (!rank.is_object() || !rank.contains("decisions")) continue;
      ++parts;
      left_out += number(rank, "decisions_left_out");
      for (const json& one : list(rank, "decisions")) {
        DecisionRecord record = record_of(one);
        const std::pair<std::string, std::uint64_t> key{record.ranks, record.number};
        if (!replay.of_.emplace(key, std::move(record)).second) throw Odd{"a communicator twice"};
      }
      add_plans(rank, replay.plans_[number_of_rank]);
    }
  } catch (const Odd& odd) {
    refuse(file, "whose decisions are not as Crimp writes them: it has " + odd.what);
  }
  if (parts == 0) refuse(file, "a report without decisions, of an older version");
  replay.digest_ = std::to_string(crimp::digest(content));
  replay.algorithm_ = recorded_algorithm(all, *per_rank);

  const std::string begin = "CRIMP_REPLAY: the job of '" + file + "' ";
  if (const auto build = all.find("build"); build != all.end() && *build != build_id())
    warnings.push_back(begin + "ran another build of Crimp, so that results may differ");
  if (const std::string others = other_settings(all, settings); !others.empty())
    warnings.push_back(begin + "had other settings, so that not every call may be in its record: " + others);
  const auto truncated = [](const auto& of_rank) {
    return std::any_of(of_rank.second.begin(), of_rank.second.end(), [](const auto& turns) { return turns.truncated; });
  };
  if (std::any_of(replay.plans_.begin(), replay.plans_.end(), truncated))
    warnings.push_back(begin + "changed merge plans more often than is kept: later steps go on with the last one");
  if (parts < per_rank->size())
    warnings.push_back(begin + "lacks the parts of " + std::to_string(per_rank->size() - parts) + " ranks");
  warn_of_gaps(replay.of_, file, left_out, warnings);
  return replay;
}

std::string Replay::repeated_json() const { return json{{"CRIMP_ALGORITHM", algorithm_}}.dump(); }

const DecisionRecord* Replay::find(const std::string& ranks, std::uint64_t number) const {
  const auto at = of_.find({ranks, number});
  return at == of_.end() ? nullptr : &at->second;
}

namespace {

template <class Cursors>
auto find_cursor(Cursors& cursors, std::uint64_t key) {
  const auto at = std::lower_bound(cursors.begin(), cursors.end(), key,
                                   [](const auto& cursor, std::uint64_t wanted) { return cursor.key < wanted; });
  return at == cursors.end() || at->key != key ? nullptr : &*at;
}

// The run of the cursor's next call.
template <class Cursor>
std::size_t next_run(const Cursor& cursor) {
  const auto& runs = cursor.of->runs;
  std::size_t run = cursor.run;
  while (run + 1 < runs.size() && runs[run + 1].from <= cursor.calls + 1) ++run;
  return run;
}

// The decision of the next call.
template <class Cursors>
auto next(Cursors& cursors, std::uint64_t key, bool& beyond) -> decltype(&cursors.front().of->runs.front().decision) {
  auto* const cursor = find_cursor(cursors, key);
  if (!cursor) return nullptr;
  const auto& runs = cursor->of->runs;
  cursor->run = next_run(*cursor);
  const std::uint64_t call = ++cursor->calls;
  if (call < runs.front().from) return nullptr;
  beyond = call > (cursor->of->ends ? cursor->of->ends : cursor->of->calls);
  return &runs[cursor->run].decision;
}

}  // namespace

ReplayedCalls::ReplayedCalls(const DecisionRecord* record) {
  if (!record) return;
  for (const auto& [key, kind] : record->kinds)
    if (!kind.of.runs.empty()) kinds_.push_back({key, &kind.of});
  for (const auto& [key, of] : record->levels)
    if (!of.runs.empty()) levels_.push_back({key, &of});
}

ReplayedCalls::Call ReplayedCalls::call(std::uint64_t kind) {
  bool beyond = false;
  const CallDecision* const decision = next(kinds_, kind, beyond);
  return {decision, !decision ? Repeat::missing : beyond ? Repeat::beyond : Repeat::recorded};
}

bool ReplayedCalls::passes_unseen(std::uint64_t kind) const {
  const auto* const cursor = find_cursor(kinds_, kind);
  return cursor && cursor->of->runs[next_run(*cursor)].decision.unseen;
}

std::optional<int> ReplayedCalls::level(std::uint64_t class_bytes, int levels) {
  bool beyond = false;
  const int* const level = next(levels_, class_bytes, beyond);
  return level && *level < levels ? std::optional(*level) : std::nullopt;
}

}  // namespace crimp
