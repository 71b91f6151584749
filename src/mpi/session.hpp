// One communicator's state: its call sequence, residuals and scratch. Calls on one communicator are ordered (MPI-3.1, 5.12), so a
// Session needs no lock.
#pragma once
#include <mpi.h>

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codec/powersgd/powersgd_extents.hpp"
#include "mpi/call_values.hpp"
#include "collective/chooser.hpp"
#include "mpi/exact_sum.hpp"
#include "mpi/mpi_node.hpp"
#include "mpi/tensor_codecs.hpp"
#include "core/report.hpp"
#include "codec/codec.hpp"
#include "core/settings.hpp"
#include "collective/residual.hpp"
#include "schedule/call_sequence.hpp"

namespace crimp {

class MpiTransport;
class Runtime;

// Throws Error{argument_invalid} where crimp_set_extents may not be given this.
void check_extents(const char* name, std::uint64_t rows, std::uint64_t cols);

class Session {
 public:
  // Collective: compares the settings. Where they differ, rank 0 says which, and usable() is false on all ranks. `request`: the call that makes the
  // session, for who waits in it; may be null.
  Session(Runtime&, MPI_Comm, int rank, int size, const AllreduceRequest* request);
  ~Session();  // local: MPI_Comm_free waits for nobody

  bool usable() const { return usable_; }
  // Sums over the communicator. False: the caller does it through MPI (nothing was changed here; all ranks get the same answer), for
  // *why. Throws Error after the exchange began and failed.
  // Where it is for want of memory, what the session holds only to be fast is given back before.
  bool allreduce(const AllreduceRequest&, Pass* why);
  // Of a call with fewer than CRIMP_MIN_COUNT elements: sums it where its tensors are named and have momentum. False: it is for MPI, as above.
  bool allreduce_small(const AllreduceRequest&);

  // What is known at its end.
  void note_in(Report&) const;
  // crimp_set_algorithm, crimp_set_codec, crimp_set_learning_rate and crimp_set_extents (include/crimp/crimp.h), which may be given anything. Collective; throws
  // Error on all ranks alike, and nothing has changed then.
  void set_algorithm(const char* name);
  void set_codec(const char* pattern, const char* spec);
  void set_learning_rate(double);
  void set_extents(const char* name, std::uint64_t rows, std::uint64_t cols);
  // crimp_set_codec has named a codec, so that there may be something to compress where CRIMP_CODEC says nothing.
  bool has_codecs() const { return codecs_.any(); }

 private:
  // Collective; null on all ranks where there are none.
  const Hierarchy* open_nodes();
  // Whether the calls that name no tensor are looked at: only what keeps residuals needs to know.
  bool follows_calls() const;
  void forget_unnamed(std::string_view prefix);
  bool compress(const AllreduceRequest&, Pass* why);  // as allreduce(), which then gives back what MPI may need
  // Of tensors that are known. foreign: on this rank the values are not theirs. False: the caller does it through MPI, for *why.
  bool compress(const AllreduceRequest&, const Layout&, bool foreign, CallValues&, Pass* why);
  void say_what_is_known(const Layout&);
  // Of a segment that is summed. Null: exactly.
  const Codec* codec_of(const Layout&, const Segment&) const;
  // The codec whose memory `momentum` such a segment has, null: it has none.
  const Codec* momentum_of(const Codec*) const;
  // The codec of every segment, by the rules and what is known; null: exactly. False: the whole call is for MPI, for *why.
  bool choose_codecs(const Layout&, std::vector<const Codec*>& codecs, Pass* why);
  // Collective where something must be measured. False: the whole call is for MPI, for *why.
  bool choose_algorithms(const CallParts&, Transport&, CallValues&, Pass* why);
  // Memory and values of this rank, ready to be encoded.
  struct Ready {
    std::uint8_t flags = 0;      // WireFlag: why the call cannot be compressed here
    Arena* arena = nullptr;      // null: there was no memory
    float* widened = nullptr;    // float32 copies of values of another type; null: the values are float32
    std::vector<ExactTensor> exact = {};
    std::span<char> packed = {}; // of these; had from the start, because later there is no way back
  };
  Ready make_ready(const AllreduceRequest&, const Layout&, bool foreign, const std::vector<const Codec*>& codecs, const CallParts&, CallValues&);
  std::uint8_t range_flags(const AllreduceRequest&, const Layout&, const std::vector<const Codec*>& codecs, const CallParts&, CallValues&, std::vector<double>* largest);
  void find_extents(const CallParts&);
  void find_memories(const CallParts&, const Layout&, Allocator&, bool absent);
  // What this rank says where it waits too long in the call.
  void begin_call(MpiTransport&, const AllreduceRequest&);
  void drop_echoes(const CallParts&, const Layout&, const std::vector<double>& largest, Backend&);
  Residual& find_residual(const ResidualKey&, const ResidualShape&, Allocator&);
  // A call that no codec takes, as a whole, where tensors have momentum. False: they have not, or there is no memory for it on this rank, for *why.
  bool sum_with_momentum(const AllreduceRequest&, const Layout&, const std::vector<const Codec*>& momenta, Pass* why);
  void tell_no_momentum(const Codec&);
  // Of the parts that clip; `values` are float32 copies of the call's.
  void clip(const CallParts&, float* values) const;

  Runtime& runtime_;
  MPI_Comm comm_;
  int rank_, size_;
  bool usable_;
  std::uint32_t sequence_ = 0, begun_ = 0;  // compressed calls; the one that is going on
  int told_ = 0;  // of what is said at info level about unnamed tensors
  bool told_no_momentum_ = false, told_memory_ = false;
  double learning_rate_ = 0;  // 0: not known
  TensorCodecs codecs_;
  CallSequence calls_;
  Chooser chooser_;
  std::vector<int> world_ranks_;
  std::unique_ptr<MpiHierarchy> nodes_;  // null: not needed yet, or none
  ResidualStore residuals_;
  std::map<ResidualKey, double> largest_;  // magnitude of the tensor's values in its last call, where drop_echoes() looks
  std::map<std::pair<std::string, std::uint64_t>, powersgd::Extents> extents_;  // of tensors by their keys and counts
  CallScratch scratch_;
};

}  // namespace crimp
