#include "horovod/record.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "schedule/plan_json.hpp"

namespace crimp::horovod {
namespace {

#define CRIMP_ITEM(name, text) #name,
constexpr const char* kUnexplainedNames[] = {CRIMP_UNEXPLAINED(CRIMP_ITEM)};
constexpr const char* kReleaseNames[] = {CRIMP_RELEASES(CRIMP_ITEM)};
#undef CRIMP_ITEM
#define CRIMP_ITEM(name, text) text,
constexpr const char* kUnexplainedTexts[] = {CRIMP_UNEXPLAINED(CRIMP_ITEM)};
constexpr const char* kReleaseTexts[] = {CRIMP_RELEASES(CRIMP_ITEM)};
#undef CRIMP_ITEM

// "3 this, 4 that" of those that are not 0.
template <class Counts, class Texts>
std::string list(const Counts& counts, const Texts& texts) {
  std::string out;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i]) out += (out.empty() ? "" : ", ") + fmt::format("{} {}", counts[i], texts[i]);
  return out;
}

template <class Counts, class Names>
nlohmann::json object(const Counts& counts, const Names& names) {
  nlohmann::json out;
  for (std::size_t i = 0; i < counts.size(); ++i) out[names[i]] = counts[i];
  return out;
}

// Both numbers are of one time: of the trials, or of the windows behind them.
std::string step_text(const SearchRecord& of) {
  if (of.windows)
    return fmt::format("{:.2f} ms under {}, without a plan {:.2f}, in windows of {} steps", 1e3 * of.windows->under_s,
                       of.chosen.plan.holds ? "it" : "the best plan", 1e3 * of.windows->without_s,
                       MergeTrials::kWindow);
  const std::string chosen = fmt::format("{:.2f} ms", 1e3 * of.chosen.step_s);
  if (!of.chosen.plan.holds) return chosen;
  return chosen + fmt::format(", without a plan {:.2f}", of.tried.empty() ? 0.0 : 1e3 * of.tried.front().step_s);
}

}  // namespace

std::uint64_t Record::unexplained_calls() const {
  return std::accumulate(unexplained.begin(), unexplained.end(), std::uint64_t{0});
}

void Record::add(const Record& other) {
  explained += other.explained;
  heals += other.heals;
  merged_calls += other.merged_calls;
  merged_tensors += other.merged_tensors;
  for (std::size_t i = 0; i < unexplained.size(); ++i) unexplained[i] += other.unexplained[i];
  for (std::size_t i = 0; i < releases.size(); ++i) releases[i] += other.releases[i];
  const auto tensors = [](const auto& sizes) { return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}); };
  if (tensors(other.groups) > tensors(groups)) {
    groups = other.groups;
    unmerged = other.unmerged;
  }
  if (other.search && (!search || other.search->tensors > search->tensors)) search = other.search;
  plans.insert(plans.end(), other.plans.begin(), other.plans.end());
}

std::string SearchRecord::line() const {
  const auto& [cuts, codecs] = chosen.plan.groups;
  std::string what = "no plan, as none gained a hundredth of the step on it";
  if (chosen.plan.holds)
    what = cuts.empty()
               ? fmt::format("{} tensors in one group", tensors)
               : fmt::format("{} tensors in {} groups (cuts={})", tensors, cuts.size() + 1, fmt::join(cuts, ","));
  if (!codecs.empty()) {  // counted from 1, as people do
    std::vector<int> numbers;
    for (const auto codec : codecs) numbers.push_back(codec + 1);
    what += fmt::format(", which have codec {} of those that CRIMP_RULES leave", fmt::join(numbers, ","));
  }
  if (searches == 0)
    return fmt::format("CRIMP_MERGE=auto: {}, the plan of an earlier run, by CRIMP_PLAN_FILE; a step took {:.2f} ms",
                       what, 1e3 * chosen.step_s);
  return fmt::format("CRIMP_MERGE=auto: {}; a step takes {}, found in {} steps", what, step_text(*this), steps);
}

std::string Record::json() const {
  nlohmann::json merge{{"groups", groups},
                       {"unmerged", unmerged},
                       {"calls", merged_calls},
                       {"tensors", merged_tensors},
                       {"releases", object(releases, kReleaseNames)}};
  if (search) {
    const auto tried = [](const SearchRecord::Tried& t) {
      nlohmann::json out{{"origin", t.origin}, {"step_ms", 1e3 * t.step_s}, {"steps", t.steps}};
      put_plan(out, t.plan);
      return out;
    };
    merge["search"] = {{"settled", search->settled},
                       {"searches", search->searches},
                       {"steps", search->steps},
                       {"chosen", tried(search->chosen)},
                       {"tried", nlohmann::json::array()}};
    for (const auto& t : search->tried) merge["search"]["tried"].push_back(tried(t));
    if (search->trace.steps) merge["search"]["trace"] = nlohmann::json::parse(search->trace.json());
  }
  for (const PlanTurns& turns : plans) merge["plans"].push_back(nlohmann::json::parse(turns.json()));
  const nlohmann::json out{{"explained", explained},
                           {"unexplained", unexplained_calls()},
                           {"unexplained_why", object(unexplained, kUnexplainedNames)},
                           {"heals", heals},
                           {"merge", merge}};
  return out.dump();
}

std::string Record::clause() const {
  std::string text =
      fmt::format("Horovod: the tensors of {} of {} data calls known", explained, explained + unexplained_calls());
  if (const std::string why = list(unexplained, kUnexplainedTexts); !why.empty())
    text += fmt::format(" (unknown: {}; {} times known again)", why, heals);
  if (!groups.empty()) {
    text += fmt::format(", {} tensors merged into {} calls by a plan of {} groups", merged_tensors, merged_calls,
                        groups.size());
    if (const std::string until = list(releases, kReleaseTexts); !until.empty())
      text += fmt::format(" (held until: {})", until);
    if (unmerged) text += fmt::format(", {} of its tensors merged no more", unmerged);
  }
  if (search && search->settled) text += "; " + search->line();
  return text;
}

}  // namespace crimp::horovod
