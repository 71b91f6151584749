#include "schedule/plan_file.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/file_text.hpp"
#include "core/json_text.hpp"
#include "schedule/plan_json.hpp"

namespace crimp {
namespace {

using nlohmann::json;
constexpr const char* kFormat = "crimp merge plans";
constexpr int kVersion = 1;
constexpr std::size_t kLongest = 64u << 20;  // bytes that are read
constexpr const char* kOther = "; give another name, or remove it";

std::vector<NamedTensor> sorted(std::vector<NamedTensor> tensors) {
  std::sort(tensors.begin(), tensors.end());
  return tensors;
}

SavedPlan plan_of(const json& from) {
  SavedPlan out;
  const std::uint64_t ranks = natural(from.at("ranks"));
  out.ranks = ranks <= INT32_MAX ? static_cast<int>(ranks) : 0;
  from.at("settings").get_to(out.settings);
  from.at("origin").get_to(out.origin);
  out.step_s = from.at("step_ms").get<double>() / 1e3;
  for (const json& tensor : from.at("tensors"))
    out.tensors.push_back({tensor.at(0).get<std::string>(), natural(tensor.at(1))});
  out.plan = plan_in(from, out.tensors.size());
  if (!(out.step_s > 0 && std::isfinite(out.step_s))) throw std::runtime_error("its step takes no time");
  const auto names = sorted(out.tensors);
  if (names.empty() || std::adjacent_find(names.begin(), names.end(),
                                          [](const auto& a, const auto& b) { return a.name == b.name; }) != names.end())
    throw std::runtime_error("it has no tensors, or one twice");
  return out;
}

json json_of(const SavedPlan& plan) {  // without its tensors
  json out{{"ranks", plan.ranks}, {"settings", plan.settings}, {"origin", plan.origin}, {"step_ms", 1e3 * plan.step_s}};
  put_plan(out, plan.plan);
  return out;
}

// All of a regular file; none: there is no such file. Throws why not.
std::string text_of(const std::string& path) {
  struct stat found;
  if (::lstat(path.c_str(), &found) != 0 && errno == ENOENT) return "";
  try {
    return file_text(path, kLongest, Links::refused);
  } catch (const std::runtime_error& e) {
    throw std::runtime_error(e.what() + std::string(kOther));
  }
}

}  // namespace

bool SavedPlan::is_for(const SavedPlan& other) const {
  return ranks == other.ranks && settings == other.settings && tensors.size() == other.tensors.size() &&
         sorted(tensors) == sorted(other.tensors);
}

PlanText::PlanText(std::string_view text) {
  if (text.empty()) return;
  const json all = parse_json(text);
  ours = false;
  if (all.is_discarded() || !all.is_object() || all.value("format", json()) != kFormat) {
    problem = std::string("is no file of merge plans, or damaged, and stays as it is") + kOther;
    return;
  }
  if (all.value("version", json()) != kVersion) {
    problem =
        fmt::format("has format version {}, this Crimp knows {}, and it stays as it is{}",
                    all.value("version", json()).dump(-1, ' ', true, json::error_handler_t::replace), kVersion, kOther);
    return;
  }
  ours = true;
  const json entries = all.value("plans", json());
  if (!entries.is_array()) problem = "has no list of plans; those found now will be saved in it";
  std::size_t number = 0;
  for (const json& entry : entries) {
    ++number;
    try {
      plans.push_back(plan_of(entry));
    } catch (const std::exception& e) {
      if (problem.empty())
        problem = fmt::format("has a plan that is left out (number {}: {}); the next one that is saved replaces it",
                              number, e.what());
    }
  }
}

// A line for each plan, and one for each of its tensors.
std::string PlanText::text() const {
  std::string out = fmt::format("{{\"format\":\"{}\",\"version\":{},\"plans\":[", kFormat, kVersion);
  for (const SavedPlan& plan : plans) {
    std::string entry = json_of(plan).dump();
    entry.back() = ',';
    out += (&plan == plans.data() ? "\n" : ",\n") + entry + "\"tensors\":[";
    for (const NamedTensor& t : plan.tensors)
      out += (&t == plan.tensors.data() ? "\n " : ",\n ") + json::array({t.name, t.bytes}).dump();
    out += "]}";
  }
  return out + "\n]}\n";
}

PlanFile::PlanFile(const std::string& name) : name_(name), path_(name) {
  std::error_code none;  // a relative name does not follow the working directory
  if (const auto absolute = std::filesystem::absolute(name, none); !none) path_ = absolute.string();
}

PlanText PlanFile::read() const {
  PlanText none("");
  try {
    return PlanText(text_of(path_));
  } catch (const std::exception& e) {
    none.ours = false;
    none.problem = e.what();
  }
  return none;
}

std::optional<SavedPlan> PlanFile::find(const SavedPlan& key, std::string& problem) const {
  PlanText text = read();
  problem = text.problem.empty() ? "" : what(text.problem);
  for (SavedPlan& plan : text.plans)
    if (plan.is_for(key)) return std::move(plan);
  return {};
}

std::string PlanFile::save(SavedPlan plan) const {
  PlanText text = read();
  if (!text.ours) return what(text.problem);
  std::erase_if(text.plans, [&](const SavedPlan& other) { return other.is_for(plan); });
  text.plans.insert(text.plans.begin(), std::move(plan));
  if (text.plans.size() > PlanText::kMost) text.plans.resize(PlanText::kMost);
  try {
    const std::string why = OutputFile(path_).write(text.text());
    return why.empty() ? why : "CRIMP_PLAN_FILE: " + why;
  } catch (const nlohmann::json::exception&) {
    return what("is not written: a tensor's name is no UTF-8");
  }
}

}  // namespace crimp
