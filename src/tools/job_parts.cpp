#include "job_parts.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

extern char** environ;

namespace crimp::tools {
namespace {

namespace fs = std::filesystem;

// LD_PRELOAD is searched from left to right. Libraries that are there already stay in front: sanitizers insist on it,
// and a profiler there sees every call and reaches Crimp through PMPI_Allreduce. Only an MPI library itself must come
// behind, or it would hide Crimp.
std::string preload(const std::string& library, const std::string& existing) {
  std::vector<std::string> all;
  std::size_t at = 0;
  while (at < existing.size()) {
    const std::size_t end = std::min(existing.find_first_of(": ", at), existing.size());
    if (end > at) all.push_back(existing.substr(at, end - at));
    at = end + 1;
  }
  std::erase(all, library);
  const auto is_mpi = [](const std::string& path) {
    const std::string name = fs::path(path).filename().string();
    return name.starts_with("libmpi.so") || name.starts_with("libmpich.so") || name.starts_with("libmpi_");
  };
  all.insert(std::find_if(all.begin(), all.end(), is_mpi), library);
  std::string text;
  for (const auto& path : all) text += (text.empty() ? "" : ":") + path;
  return text;
}

// Takes what sets LD_PRELOAD out of Hydra's options, and lists the other names that they set.
std::string take_hydra_preload(Arguments& options, std::vector<std::string>& exported, std::string found) {
  // -genv NAME VALUE, and -genv NAME=VALUE.
  for (std::size_t i = 0; i + 1 < options.size(); ++i) {
    if (options[i] != "-genv" && options[i] != "-env") continue;
    const std::size_t equals = options[i + 1].find('=');
    const std::string name = options[i + 1].substr(0, equals);
    const bool together = equals != std::string::npos;
    if (name != "LD_PRELOAD") {
      exported.push_back(name);
      continue;
    }
    if (!together && i + 2 >= options.size()) break;
    found = together ? options[i + 1].substr(equals + 1) : options[i + 2];
    const auto at = options.begin() + static_cast<std::ptrdiff_t>(i);
    options.erase(at, at + (together ? 2 : 3));
    --i;
  }
  return found;
}

// Takes `-x LD_PRELOAD=...` out of mpirun's options, and lists the names that other -x options export. `found`: what is
// preloaded without.
std::string take_preload(Arguments& options, std::vector<std::string>& exported, LauncherKind kind, std::string found) {
  if (kind == LauncherKind::hydra) return take_hydra_preload(options, exported, found);
  if (kind == LauncherKind::slurm) return found;
  for (std::size_t i = 0; i + 1 < options.size(); ++i) {
    if (options[i] != "-x") continue;
    const std::string value = options[i + 1];
    if (value.substr(0, value.find('=')) == "LD_PRELOAD") {
      if (value.starts_with("LD_PRELOAD=")) found = value.substr(std::strlen("LD_PRELOAD="));
      options.erase(options.begin() + static_cast<std::ptrdiff_t>(i),
                    options.begin() + static_cast<std::ptrdiff_t>(i) + 2);
      --i;
    } else {
      exported.push_back(value.substr(0, value.find('=')));
      ++i;
    }
  }
  return found;
}

// What gives the ranks these variables: Open MPI's -x, Hydra's -genv (of one program alone -env), and `env` in front of
// a program that Slurm starts, whose own list would end at the first comma of a value.
Arguments as_options(const std::vector<std::string>& settings, LauncherKind kind, const char* of_hydra) {
  Arguments options;
  if (kind == LauncherKind::slurm) options.push_back("/usr/bin/env");  // without a PATH, too (srun --export=NONE)
  for (const auto& setting : settings)
    if (kind == LauncherKind::slurm) options.push_back(setting);
    else if (kind == LauncherKind::hydra) {
      const std::size_t equals = setting.find('=');
      options.insert(options.end(), {of_hydra, setting.substr(0, equals), setting.substr(equals + 1)});
    } else options.insert(options.end(), {"-x", setting});
  return options;
}

}  // namespace

std::vector<std::string> settings_among(const Arguments& options, bool of_all) {
  std::vector<std::string> found;
  for (std::size_t i = 1; i < options.size(); ++i) {
    const bool of_hydra = options[i - 1] == "-genv" || (options[i - 1] == "-env" && !of_all);
    if (!options[i].starts_with("CRIMP_") || (options[i - 1] != "-x" && !of_hydra)) continue;
    if (options[i].find('=') != std::string::npos) found.push_back(options[i]);
    else if (of_hydra && i + 1 < options.size()) found.push_back(options[i] + "=" + options[i + 1]);
  }
  return found;
}

std::vector<Part> parts_of(Arguments options, const Arguments& words) {
  const auto is_program = [](const std::string& word) {
    std::error_code none;
    const std::string file = word.starts_with('-') ? "" : in_path(word);
    return fs::is_regular_file(file, none) && ::access(file.c_str(), X_OK) == 0;
  };
  std::vector<Part> parts{{std::move(options), {}}};
  bool in_program = true;
  for (const std::string& word : words) {
    if (word == ":") {
      parts.emplace_back();
      in_program = false;
      continue;
    }
    in_program = in_program || is_program(word);
    (in_program ? parts.back().program : parts.back().options).push_back(word);
  }
  return parts;
}

Arguments with_preloads(std::vector<Part> parts, const std::string& library, const std::string& mpi,
                        LauncherKind kind) {
  const char* const inherited = std::getenv("LD_PRELOAD");
  std::string existing = inherited ? inherited : "";
  std::vector<std::string> all = settings_among(parts.front().options);
  for (char** entry = environ; *entry; ++entry)
    if (std::string_view(*entry).starts_with("CRIMP_")) all.emplace_back(*entry);
  Arguments words;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Part& part = parts[i];
    std::vector<std::string> names;
    const std::string own = take_preload(part.options, names, kind, existing);
    if (i == 0) existing = own;
    const bool told = i > 0 && kind == LauncherKind::hydra;
    std::vector<std::string> settings;
    if (!told || own != existing) settings.push_back("LD_PRELOAD=" + preload(library, own + ":" + mpi));
    for (const std::string& text : told ? Arguments() : all) {
      const std::string name = text.substr(0, text.find('='));
      if (std::count(names.begin(), names.end(), name)) continue;
      settings.push_back(text);
      names.push_back(name);
    }
    const Arguments ours = as_options(settings, kind, told ? "-env" : "-genv");
    if (i > 0) words.push_back(":");
    // Of a part whose program was not found the options are all of it.
    if (i > 0) words.insert(words.end(), ours.begin(), ours.end());
    words.insert(words.end(), part.options.begin(), part.options.end());
    if (i == 0) words.insert(words.end(), ours.begin(), ours.end());
    words.insert(words.end(), part.program.begin(), part.program.end());
  }
  return words;
}

}  // namespace crimp::tools
