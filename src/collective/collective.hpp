// Compressed collectives: sums over all ranks, bit-identical everywhere. Which algorithms there are: src/collective/algorithms.hpp.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.hpp"
#include "codec/codec.hpp"
#include "core/error.hpp"
#include "schedule/layout.hpp"
#include "collective/residual.hpp"
#include "collective/transport.hpp"
#include "collective/wire.hpp"

namespace crimp {

class Trace;
class Workers;
struct Hierarchy;
namespace powersgd {
struct Extents;  // src/codec/powersgd/powersgd_extents.hpp
}

struct CollectiveCall {
  const float* in;  // count values; may equal out
  float* out;       // receives the sums
  std::uint64_t count;
  const Codec* codec;
  const Layout* layout;
  Algorithm algorithm = Algorithm::allgather;  // equal on all ranks, and possible for the codec
  std::vector<float*> residuals;  // one per segment, the codec's memory planes behind one another (null where skipped), or empty: no memory
  // Residuals of what this rank re-encodes for all, one per segment as long as the segment, the codec's state_elements() behind (null where skipped), or empty: none.
  std::vector<float*> owner_residuals = {};
  std::vector<std::uint32_t> turns = {};  // of each segment (Codec::select_in_turn), or empty: `sequence`
  // Algorithm low_rank: what is known of the tensors' shapes, one per segment (null: nothing, and nothing is to be found), or empty. The call adds to it.
  std::vector<powersgd::Extents*> extents = {};
  // Where `in`, `out` and the memories are; null: in host memory. Not every algorithm can another (AlgorithmEntry::any_backend).
  Backend* backend = nullptr;
  Arena* values = nullptr;  // of backend->memory(), with value_bytes(); null where host memory: the arena with arena_bytes() is enough
  const Hierarchy* hierarchy = nullptr;  // for Algorithm::hierarchical (src/collective/node.hpp)
  std::uint8_t flags = 0;         // WireFlag: this rank's reasons for sending the call through MPI
  Dtype dtype = Dtype::f32;       // the caller's type, for the header
  std::uint32_t sequence = 0;     // compressed calls on this communicator so far
  std::uint64_t chunk;            // elements, a multiple of kPieceElements
  bool checksum = true;
};

struct CollectiveResult {
  std::uint8_t flags = 0;  // union over the ranks. Not 0: nothing was decoded, no residual changed, send the call through MPI
  std::optional<Error> error;  // what was wrong with a payload; the exchange was still completed, `out` is undefined
  std::uint64_t sent_bytes = 0, received_bytes = 0;  // headers and bodies; received: from other ranks
  double encode_s = 0, wire_s = 0, decode_s = 0;     // wire: waiting, after what was hidden behind encode and decode
};

// Arena bytes that allreduce_compressed takes for such a call on this many ranks.
std::uint64_t arena_bytes(const CollectiveCall&, int ranks);
// Arena bytes that it takes of CollectiveCall::values.
std::uint64_t value_bytes(const CollectiveCall&);

// The call's chunk length on this many ranks: CRIMP_CHUNK, less where received bodies would fill more than kReceiveBudget.
inline constexpr std::uint64_t kReceiveBudget = std::uint64_t{256} << 20;
std::uint64_t chunk_elements(std::uint64_t setting, const Codec&, int ranks, Algorithm = Algorithm::allgather);

// Runs call.algorithm. `arena` has arena_bytes(), or is null: then this rank only says so (call.flags must be set). Throws
// Error{transport_failed} where MPI failed and Error{call_differs} where the ranks' headers show that they are not in the same call;
// all ranks then throw alike.
CollectiveResult allreduce_compressed(Transport&, Arena* arena, Workers&, const CollectiveCall&, Trace* trace = nullptr);

}  // namespace crimp
