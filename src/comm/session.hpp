// One communicator's state: its call sequence, residuals and scratch. Calls on one communicator are ordered (MPI-3.1, 5.12), so a
// Session needs no lock.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "codec/powersgd_extents.hpp"
#include "comm/call_values.hpp"
#include "comm/chooser.hpp"
#include "comm/mpi_node.hpp"
#include "core/report.hpp"
#include "crimp/codec.hpp"
#include "crimp/config.hpp"
#include "crimp/residual.hpp"

namespace crimp {

class Runtime;

class Session {
 public:
  // Collective: compares the settings' digests. Where they differ, rank 0 says which setting, and usable() is false on all ranks.
  Session(Runtime&, MPI_Comm, int rank, int size);
  ~Session();

  bool usable() const { return usable_; }
  // Sums over the communicator. False: the caller does it through MPI (nothing was changed here; all ranks get the same answer), for
  // *why. Throws Error after the exchange began and failed.
  // Where it is for want of memory, what the session holds only to be fast is given back before.
  bool allreduce(const AllreduceRequest&, Pass* why);

  const ResidualStore& residuals() const { return residuals_; }
  // As CRIMP_ALGORITHM; a legal name. Equal on all ranks between the same calls.
  void force(const std::string& algorithm) { chooser_.force(algorithm); }
  // crimp_set_extents. Equal on all ranks between the same calls.
  void set_extents(const std::string& name, std::uint64_t rows, std::uint64_t cols);
  // Collective over the communicator, when it is freed.
  void release();

 private:
  bool compress(const AllreduceRequest&, Pass* why);
  Layout find_layout(const AllreduceRequest&);
  // The codec of every segment, by the rules and what is known; null: exactly. False: the whole call is for MPI, for *why.
  bool choose_codecs(const Layout&, std::vector<const Codec*>& codecs, Pass* why);
  // Collective where something must be measured. False: the whole call is for MPI, for *why.
  bool choose_algorithms(const CallParts&, Transport&, CallValues&, Pass* why);
  // Memory and values of this rank, ready to be encoded.
  struct Ready {
    std::uint8_t flags = 0;      // WireFlag: why the call cannot be compressed here
    Arena* arena = nullptr;      // null: there was no memory
    float* widened = nullptr;    // float32 copies of values of another type; null: the values are float32
    std::span<char> packed = {}; // of tensors that are summed exactly; had from the start, because later there is no way back
  };
  Ready make_ready(const AllreduceRequest&, const Layout&, const std::vector<const Codec*>& codecs, const CallParts&, CallValues&);
  std::uint8_t range_flags(const AllreduceRequest&, const Layout&, const std::vector<const Codec*>& codecs, const CallParts&, CallValues&, bool* all_zero);
  void find_extents(const CallParts&);
  void find_memories(const CallParts&, const Layout&, Allocator&, bool absent);
  void sum_excluded(const AllreduceRequest&, const Layout&, const std::vector<const Codec*>& codecs, const CallValues&, std::span<char> packed);

  Runtime& runtime_;
  MPI_Comm comm_;
  int rank_, size_;
  bool usable_;
  std::uint32_t sequence_ = 0;
  bool told_unknown_ = false, told_memory_ = false;
  CallSequence calls_;
  Chooser chooser_;
  std::unique_ptr<MpiNode> node_;          // null: no hierarchy
  std::unique_ptr<MpiTransport> leaders_;  // null on ranks that do not lead
  Hierarchy hierarchy_{};
  ResidualStore residuals_;
  std::map<std::string, powersgd::Extents> extents_;  // of tensors by their keys
  CallScratch scratch_;
};

// Collective; true where all ranks' settings are equal, and legal on all or on none. Otherwise rank 0 says what differs, and where.
bool settings_agree(MPI_Comm, int rank, int size, const Settings&, bool legal);

}  // namespace crimp
