// One communicator's state: its call sequence, residuals and scratch. Calls on one communicator are ordered (MPI-3.1, 5.12), so a
// Session needs no lock.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "comm/chooser.hpp"
#include "comm/mpi_node.hpp"
#include "core/report.hpp"
#include "crimp/codec.hpp"
#include "crimp/memory.hpp"
#include "crimp/config.hpp"
#include "crimp/layout.hpp"
#include "crimp/residual.hpp"
#include "comm/host_backend.hpp"

namespace crimp {

class Runtime;
struct DevicePlugin;

struct AllreduceRequest {
  const void* send;  // equal to `receive` for MPI_IN_PLACE
  void* receive;
  std::uint64_t count;
  Dtype dtype;
  const Layout* layout = nullptr;  // tiling the buffer; null: the call sequence decides
  // Sums a buffer of the call's type exactly, in place, through MPI: for tensors that a rule excludes. Returns an MPI code.
  std::function<int(void* buffer, std::uint64_t count)> sum_exactly = {};
  bool settle_all = false;  // whatever runs on the device may still write the values
};

class Session {
 public:
  // Collective: compares the settings' digests. Where they differ, rank 0 says which setting, and usable() is false on all ranks.
  Session(Runtime&, MPI_Comm, int rank, int size);
  ~Session();

  bool usable() const { return usable_; }
  // Sums over the communicator. False: the caller does it through MPI (nothing was changed here; all ranks get the same answer), for
  // *why. Throws Error after the exchange began and failed.
  bool allreduce(const AllreduceRequest&, Pass* why);

  const ResidualStore& residuals() const { return residuals_; }
  // As CRIMP_ALGORITHM; a legal name. Equal on all ranks between the same calls.
  void force(const std::string& algorithm) { chooser_.force(algorithm); }
  // Collective over the communicator, when it is freed.
  void release();

 private:
  Layout find_layout(const AllreduceRequest&);
  // The codec of every segment, by the rules and what is known; null: exactly. False: the whole call is for MPI, for *why.
  bool choose(const Layout&, std::vector<const Codec*>& codecs, Pass* why);
  void sum_excluded(const AllreduceRequest&, const Layout&, const std::vector<const Codec*>& codecs, Backend&, std::span<char> packed);
  struct Device;
  Device& device(const DevicePlugin&, int index);

  Runtime& runtime_;
  MPI_Comm comm_;
  int rank_, size_;
  bool usable_;
  std::uint32_t sequence_ = 0;
  bool told_unknown_ = false;
  CallSequence calls_;
  Chooser chooser_;
  std::unique_ptr<MpiNode> node_;          // null: no hierarchy
  std::unique_ptr<MpiTransport> leaders_;  // null on ranks that do not lead
  Hierarchy hierarchy_{};
  ResidualStore residuals_;
  Arena arena_;
  HostBackend host_;
  std::unique_ptr<Device> device_;  // of the last call in device memory
};

// Collective; true where all ranks' settings are equal, and legal on all or on none. Otherwise rank 0 says what differs, and where.
bool settings_agree(MPI_Comm, int rank, int size, const Settings&, bool legal);

}  // namespace crimp
