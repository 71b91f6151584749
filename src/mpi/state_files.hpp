// The files in which the ranks of a communicator save what they keep of its tensors: one for each rank and generation,
//
//   DIRECTORY/NAME.GENERATION.RANK-of-RANKS.state
//
// A set of files is whole where all of them are there and belong together; the newest whole one is loaded. Nothing says
// so in a file of its own: every rank reads and checks what it needs, and all ranks agree. So the directory may be one
// for all ranks or each host's own (where the same number of ranks is loaded), and a job that ended between two ranks'
// files leaves the generation before, which is removed only when all ranks have written the next one.
//
// What is no regular file of this user's is none of them, whatever its name: it is neither loaded, counted nor removed.
//
// What a rank cannot read or write is one warning, and the next one only after something was saved: all ranks then have
// what they had.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collective/saved_state.hpp"
#include "core/private_directory.hpp"

namespace crimp {

// What could not be saved, of files that may be another StateFiles' each time.
struct StateFailures {
  bool told = false;        // by this rank; further ones are not, until something is saved
  std::uint64_t all = 0;    // saves that failed on some rank
  std::uint64_t since = 0;  // of these, those since the last good one
  bool left_out = false;    // told by rank 0: of tensors whose names are too long
};

class StateFiles {
 public:
  // `name` is equal on all ranks. Nothing is opened yet. `failures` outlives this.
  StateFiles(MPI_Comm comm, int rank, int size, const std::string& directory, const std::string& name, StateFailures&);

  // Makes the directory, or says now that nothing can be saved in it.
  void prepare() noexcept;
  // Collective: agrees with the directory on the generations that are there, and reads the newest whole one, of however
  // many ranks. Nothing on all ranks alike where there is none; where some are there, that is said with what it means,
  // `then`. Throws Error{transport_failed}.
  std::optional<SavedState> load(const char* then);
  // Collective: so much of load() as save() needs.
  void look();
  // This rank's files of generations before `than`, which all ranks have found to be needless.
  void remove_older(std::uint64_t than) noexcept;
  // After load() or look(). Collective: the next generation; what is older goes when all ranks have written it. False
  // on all ranks alike where one of them could not. Throws Error{transport_failed}.
  // complete: false where this rank lacks memory to say what there is; then nothing is saved.
  bool save(bool complete, std::uint32_t sequence, const std::vector<TensorView>&, const std::vector<SavedExtents>&);
  // The same without the others: nothing is agreed and nothing removed. All ranks do it between the same save()s.
  bool save_alone(std::uint32_t sequence, const std::vector<TensorView>&, const std::vector<SavedExtents>&) noexcept;

 private:
  struct File {
    std::uint64_t generation;
    std::uint32_t rank, ranks;
  };
  struct Candidate {
    std::uint64_t generation;
    std::uint32_t ranks;
  };
  static std::optional<File> parse(std::string_view entry, const std::string& name);
  std::string entry(const File&) const;
  std::vector<File> list();  // and `foreign_`
  std::vector<Candidate> candidates(
      const std::vector<File>&) const;  // of which this rank's part is there, newest first
  bool read(const Candidate&, SavedState& to, std::string& problem) const;
  bool write(std::uint32_t sequence, const std::vector<TensorView>&, const std::vector<SavedExtents>&) noexcept;
  void least(std::span<std::int64_t> numbers) const;  // over the ranks, collective
  void agree_on_next(const std::vector<File>&);
  void warn(const std::string& why) noexcept;
  void count(bool saved) noexcept;

  MPI_Comm comm_;
  int rank_, size_;
  PrivateDirectory directory_;
  std::string name_;
  std::uint64_t newest_ = 0;            // of this user's
  std::vector<std::uint64_t> foreign_;  // generations of names that are theirs, of what is no file of this user's
  std::uint64_t next_ = 1, set_ = 0;
  StateFailures& failures_;
};

}  // namespace crimp
