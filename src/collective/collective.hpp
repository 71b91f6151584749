// Compressed collectives: sums over all ranks, bit-identical everywhere. Which algorithms there are:
// src/collective/algorithms.hpp.
#pragma once
#include <cstdint>
#include <optional>

#include "collective/plan.hpp"
#include "collective/wire.hpp"
#include "core/error.hpp"

namespace crimp {

struct CollectiveResult {
  std::uint8_t flags =
      0;             // union over the ranks. Not 0: nothing was decoded, no residual changed, send the call through MPI
  int exponent = 0;  // algorithm one_shot: `out` is to be multiplied by 2^exponent
  DelayNotes delays;           // of all ranks
  std::optional<Error> error;  // what was wrong with a payload; the exchange was still completed, `out` is undefined
  // Headers and bodies. sent: what MPI was given for other ranks, by the call that gives it: a payload for all of them
  // counts once, as values do that MPI_Allreduce is given, and one passed on in a relay with every step. received: from
  // other ranks; of what MPI has summed, the sums.
  std::uint64_t sent_bytes = 0, received_bytes = 0;
  double encode_s = 0, wire_s = 0, decode_s = 0;  // wire: waiting, after what was hidden behind encode and decode
  double node_wait_s = 0;  // algorithm hierarchical: of wire_s, for this rank's node to come and to add, no network's
  bool through_host =
      false;  // algorithm hierarchical: this rank's values, which lie on a device, were added in host memory
};

// One rank's side of a collective under way: start() once, progress() as often as is liked, finish() once. A call that
// blocks is start() and finish().
//
// All three throw Error{transport_failed} where MPI failed and Error{call_differs} where the ranks' headers show that
// they are not in the same call; all ranks then throw alike, and nothing but the destructor may follow. Without that,
// an exchange that was started must be finished.
//
// Of one transport several may be under way: started, and finished, in one order by all ranks. progress() is for the
// oldest of them alone, because what a step starts must be in one order, too. Exchanges of different transports have
// nothing to do with one another.
//
// Of hierarchical only finish() does anything: the barriers within a node block.
class Exchange {
 public:
  virtual ~Exchange() = default;
  // Does all that comes before the first wait for other ranks.
  virtual void start() = 0;
  // Does what can be done without waiting for other ranks; it does encode and decode, and a device may be waited for.
  // True: finish() waits for nobody.
  virtual bool progress() = 0;
  virtual CollectiveResult finish() = 0;
};

// Runs the route to its end. Without CallBuffers::arena this rank only says so; its flags must be set.
CollectiveResult allreduce_compressed(Transport&, const RoutePlan&, const CallBuffers&, Workers&,
                                      Trace* trace = nullptr);

// Makes of a call's buffers those of a rank that can only say that it has no memory.
void decline(CallBuffers&);

// Most bytes of received bodies at once: chunks are shorter where many ranks would fill more.
inline constexpr std::uint64_t kReceiveBudget = std::uint64_t{256} << 20;
// Where CRIMP_CHUNK says auto a chunk has kDefaultChunk elements, or, up to kLongestChunk, kChunkStep times as many
// again and again, where that is predicted to take less than kWorthMemory of the time.
inline constexpr std::uint64_t kDefaultChunk = 655360, kChunkStep = 4, kLongestChunk = 64 * kDefaultChunk;
inline constexpr double kWorthMemory = 0.95;
// The same where a rank's values lie in a device's memory, which takes long to begin anything: chunks are of this
// length, or shorter or longer by kChunkStep, where that is predicted to take less than kWorthMemory of the time.
inline constexpr std::uint64_t kDeviceChunk = 13 * kDefaultChunk;  // 64 MiB are two
// The chunk length on so many ranks where CRIMP_CHUNK says `setting`; 0: auto, where nothing is predicted.
std::uint64_t chunk_elements(std::uint64_t setting, const Codec&, int ranks, Algorithm = Algorithm::allgather);

}  // namespace crimp
