#include "mpi/state_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <utility>

#include "core/digest.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/wait_texts.hpp"

namespace crimp {
namespace {

constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kMostGenerations = std::uint64_t{1} << 60;
constexpr int kTries = 32;  // generations that are looked at

// Takes "123" and what follows it; false where there is none, or another way to write it.
bool take_number(std::string_view& text, std::uint64_t& to) {
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), to);
  const bool good = status == std::errc() && to <= kMostGenerations && (text[0] != '0' || end == text.data() + 1);
  if (good) text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return good;
}
bool take(std::string_view& text, std::string_view what) {
  const bool good = text.starts_with(what);
  if (good) text.remove_prefix(what.size());
  return good;
}

// Another for every job, by the clock and the process; nothing depends on it but that files are told apart.
std::int64_t new_set() {
  const std::int64_t from[2] = {std::chrono::system_clock::now().time_since_epoch().count(), ::getpid()};
  return static_cast<std::int64_t>(digest(from, sizeof from) >> 2);
}

}  // namespace

StateFiles::StateFiles(MPI_Comm comm, int rank, int size, const std::string& directory, const std::string& name,
                       StateFailures& failures)
    : comm_(comm), rank_(rank), size_(size), directory_(directory), name_(name), failures_(failures) {}

std::optional<StateFiles::File> StateFiles::parse(std::string_view entry, const std::string& name) {
  std::uint64_t generation = 0, rank = 0, ranks = 0;
  if (!take(entry, name) || !take(entry, ".") || !take_number(entry, generation) || !take(entry, ".") ||
      !take_number(entry, rank) || !take(entry, "-of-") || !take_number(entry, ranks) || entry != ".state")
    return {};
  if (generation == 0 || rank >= ranks || ranks > static_cast<std::uint64_t>(INT32_MAX)) return {};
  return File{generation, static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(ranks)};
}

std::string StateFiles::entry(const File& file) const {
  return name_ + "." + std::to_string(file.generation) + "." + std::to_string(file.rank) + "-of-" +
         std::to_string(file.ranks) + ".state";
}

void StateFiles::warn(const std::string& why) noexcept {
  if (std::exchange(failures_.told, true)) return;
  logged("saved state", [&] { log(LogLevel::warn, why); });
}

void StateFiles::count(bool saved) noexcept {
  if (!saved) {
    ++failures_.all, ++failures_.since;
    return;
  }
  failures_.told = false;
  if (const std::uint64_t failed = std::exchange(failures_.since, 0); failed && rank_ == 0)
    logged("saved state", [&] {
      log(LogLevel::info, "state is saved again, in '" + directory_.path() + "', after " + std::to_string(failed) +
                              (failed == 1 ? " attempt that" : " attempts that") + " failed");
    });
}

void StateFiles::prepare() noexcept {
  logged("saved state", [&] {
    if (const std::string why = directory_.make(); !why.empty())
      warn(why + "; no state is loaded from it, nor saved in it, unless it is there by then");
  });
}

std::vector<StateFiles::File> StateFiles::list() {
  std::vector<File> files;
  logged("saved state", [&] {
    std::vector<std::string> names, others;
    if (const std::string why = directory_.list(names, &others); !why.empty())
      warn(why + "; no state is loaded from it, nor saved in it");
    for (const std::string& n : names)
      if (const auto file = parse(n, name_)) files.push_back(*file);
    foreign_.clear();
    for (const std::string& n : others)
      if (const auto file = parse(n, name_)) foreign_.push_back(file->generation);
    std::sort(foreign_.begin(), foreign_.end());
  });
  return files;
}

std::vector<StateFiles::Candidate> StateFiles::candidates(const std::vector<File>& files) const {
  std::vector<Candidate> all;
  for (const File& f : files) {
    const bool known = std::any_of(
        all.begin(), all.end(), [&](const Candidate& c) { return c.generation == f.generation && c.ranks == f.ranks; });
    if (known || f.ranks / static_cast<std::uint32_t>(size_) > files.size()) continue;
    const Sources sources = sources_of(static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(size_), f.ranks);
    const bool there = std::all_of(sources.ranks.begin(), sources.ranks.end(), [&](std::uint32_t rank) {
      return std::any_of(files.begin(), files.end(), [&](const File& o) {
        return o.generation == f.generation && o.ranks == f.ranks && o.rank == rank;
      });
    });
    if (there) all.push_back({f.generation, f.ranks});
  }
  std::sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return a.generation != b.generation ? a.generation > b.generation : a.ranks > b.ranks;
  });
  return all;
}

void StateFiles::least(std::span<std::int64_t> numbers) const {
  std::vector<std::int64_t> out(numbers.size());
  MPI_Request request;
  check_mpi(PMPI_Iallreduce(numbers.data(), out.data(), static_cast<int>(numbers.size()), MPI_INT64_T, MPI_MIN, comm_,
                            &request),
            "MPI_Iallreduce");
  wait_for(request, rank_, size_, [&] { return "on " + name_of(comm_) + " to agree on what is saved of it"; });
  std::copy(out.begin(), out.end(), numbers.begin());
}

void StateFiles::agree_on_next(const std::vector<File>& files) {
  std::uint64_t newest = 0;
  for (const File& f : files) newest = std::max(newest, f.generation);
  newest_ = newest;
  // Where all may make files, another user's keep their names: those in a row behind the newest are passed by.
  for (const std::uint64_t taken : foreign_) newest += taken == newest + 1;
  std::int64_t numbers[2] = {-static_cast<std::int64_t>(newest), rank_ == 0 ? new_set() : kNone};
  least(numbers);
  next_ = static_cast<std::uint64_t>(-numbers[0]) + 1;
  set_ = static_cast<std::uint64_t>(numbers[1]);
}

void StateFiles::look() { agree_on_next(list()); }

bool StateFiles::read(const Candidate& of, SavedState& to, std::string& problem) const {
  const Sources sources = sources_of(static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(size_), of.ranks);
  Redistribution sum(sources.values);
  for (const std::uint32_t rank : sources.ranks) {
    const std::string name = entry({of.generation, rank, of.ranks});
    const auto file = directory_.open(name, problem);
    if (!file) return false;
    try {
      SavedState state = read_state(*file);
      if (state.header.rank != rank || state.header.ranks != of.ranks || state.header.generation != of.generation)
        throw StateError("is another rank's or generation's than its name says");
      if (rank != sources.ranks[0] &&
          (state.header.set != to.header.set || state.header.sequence != to.header.sequence))
        throw StateError("does not belong to the other ranks' files");
      to.header = state.header;
      if (of.ranks == static_cast<std::uint32_t>(size_)) to = std::move(state);
      else sum.add(std::move(state));
    } catch (const std::exception& e) {
      problem = "'" + directory_.path() + "/" + name + "' " + e.what();
      return false;
    }
  }
  if (of.ranks != static_cast<std::uint32_t>(size_)) to = sum.take();
  return true;
}

std::optional<SavedState> StateFiles::load(const char* then) {
  const std::vector<File> files = list();
  agree_on_next(files);
  std::vector<Candidate> mine;
  logged("saved state", [&] {
    mine = candidates(files);
    if (!foreign_.empty() && rank_ == 0)
      log(LogLevel::warn, "of '" + directory_.path() + "/" + name_ + "' " + std::to_string(foreign_.size()) +
                              " files are links or the like, or another user's, and do not count");
  });
  std::uint64_t below = kMostGenerations + 1;
  for (int tries = 0; tries < kTries; ++tries) {
    const auto next = std::find_if(mine.begin(), mine.end(), [&](const Candidate& c) { return c.generation < below; });
    std::int64_t proposed[1] = {next == mine.end() ? 0 : static_cast<std::int64_t>(next->generation)};
    least(proposed);
    if (proposed[0] == 0) break;
    below = static_cast<std::uint64_t>(proposed[0]);
    const auto found =
        std::find_if(mine.begin(), mine.end(), [&](const Candidate& c) { return c.generation == below; });
    SavedState state;
    std::string problem = "its files are not all there";
    bool good = false;
    if (found != mine.end()) try {
        good = read(*found, state, problem);
      } catch (const std::exception& e) {
        problem = e.what();
      }
    const std::int64_t ranks = good ? state.header.ranks : 0, sequence = good ? state.header.sequence : 0,
                       set = good ? static_cast<std::int64_t>(state.header.set) : 0;
    std::int64_t agreed[7] = {good, ranks, -ranks, set, -set, sequence, -sequence};
    least(agreed);
    const bool whole = agreed[0] == 1 && agreed[1] == -agreed[2] && agreed[3] == -agreed[4] && agreed[5] == -agreed[6];
    if (whole) {
      if (const std::uint64_t newest = newest_; newest > below && rank_ == 0)
        logged("saved state", [&] {
          log(LogLevel::warn, "generation " + std::to_string(newest) + " of '" + directory_.path() + "/" + name_ +
                                  "' is not whole: generation " + std::to_string(below) + " is loaded in its place");
        });
      return state;
    }
    if (!good)
      logged("saved state", [&] {
        log(LogLevel::warn, "generation " + std::to_string(below) + " of '" + directory_.path() + "/" + name_ +
                                "' is not loaded on any rank: " + problem);
      });
  }
  if (next_ > 1 && rank_ == 0)
    logged("saved state", [&] {
      log(LogLevel::warn,
          "of '" + directory_.path() + "/" + name_ + "', up to generation " + std::to_string(next_ - 1) +
              ", no generation is whole for these ranks (a rank's file is missing, cannot be read, or is not this user's): nothing is loaded, " +
              then);
    });
  return {};
}

bool StateFiles::write(std::uint32_t sequence, const std::vector<TensorView>& tensors,
                       const std::vector<SavedExtents>& extents) noexcept {
  std::string why;
  bool fit = true;
  const bool tried = logged("saved state", [&] {
    if (next_ > kMostGenerations) {
      why = "generation " + std::to_string(next_ - 1) + " of '" + directory_.path() + "/" + name_ +
            "' is there, behind which no number is legal";
      return;
    }
    const StateHeader header{static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(size_), next_, set_,
                             sequence};
    why = directory_.write(entry({next_, header.rank, header.ranks}),
                           [&](const PrivateDirectory::Put& put) { fit = write_state(header, tensors, extents, put); });
  });
  if (!why.empty())
    warn(why + "; nothing is saved" + (next_ > kMostGenerations ? " until its files are removed" : "") +
         ", and what was saved before stays. Further failures are not said until something is saved");
  const bool done = tried && why.empty();
  if (done && !fit && rank_ == 0 && !std::exchange(failures_.left_out, true))
    logged("saved state", [] {
      log(LogLevel::warn, "nothing is saved of tensors whose names are longer than 65535 bytes, but of all others");
    });
  return done;
}

void StateFiles::remove_older(std::uint64_t than) noexcept {
  logged("saved state", [&] {
    std::vector<std::string> names;
    static_cast<void>(directory_.list(names));
    for (const std::string& n : names) {
      const auto file = parse(n, name_);
      if (file && file->generation < than &&
          file->rank % static_cast<std::uint32_t>(size_) == static_cast<std::uint32_t>(rank_))
        directory_.remove(n);
    }
    if (rank_ == 0) directory_.remove_unfinished();
  });
}

bool StateFiles::save(bool complete, std::uint32_t sequence, const std::vector<TensorView>& tensors,
                      const std::vector<SavedExtents>& extents) {
  const bool mine = complete && write(sequence, tensors, extents);
  std::int64_t all[1] = {mine};
  least(all);
  if (all[0]) remove_older(next_);
  else if (mine)
    logged("saved state", [&] {
      directory_.remove(entry({next_, static_cast<std::uint32_t>(rank_), static_cast<std::uint32_t>(size_)}));
    });
  ++next_;
  count(all[0] != 0);
  return all[0] != 0;
}

bool StateFiles::save_alone(std::uint32_t sequence, const std::vector<TensorView>& tensors,
                            const std::vector<SavedExtents>& extents) noexcept {
  const bool done = write(sequence, tensors, extents);
  ++next_;
  count(done);
  return done;
}

}  // namespace crimp
