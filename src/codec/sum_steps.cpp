#include "codec/sum_steps.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#include "codec/packed_sums.hpp"
#include "memory/streamed.hpp"
#include "memory/thread_scratch.hpp"
#include "memory/workers.hpp"

namespace crimp {
namespace {

class HostSumSteps final : public SumSteps {
 public:
  HostSumSteps(const Homomorphic& codec, Workers& workers) : codec_(codec), workers_(workers) {}

  void norms(const SumChunk& chunk, float* norms, const Progress& progress) override {
    each_piece(chunk, progress, [&](const SumPiece& p) { codec_.norms(source(chunk, p), norms + p.norm); });
  }
  void encode(const SumChunk& chunk, const float* norms, std::uint64_t coordinates, std::uint8_t* indices,
              const Progress& progress) override {
    if (chunk.pieces.empty()) return;
    each_piece(chunk, progress, [&](const SumPiece& p) {
      codec_.encode(source(chunk, p), norms + p.norm, indices + index_bytes(p.coordinate));
    });
    const SumPiece& last = chunk.pieces.back();
    const std::uint64_t used = index_bytes(last.coordinate + codec_.coordinates(last.count));
    std::memset(indices + used, 0, index_bytes(coordinates) - used);
  }
  void decode(const SumChunk& chunk, const std::uint16_t* sums, const float* norms, int ranks,
              const Progress& progress) override {
    each_piece(chunk, progress, [&](const SumPiece& p) {
      float* const out = chunk.out.floats() + p.offset;
      float* const apart = chunk.streamed ? thread_piece() : nullptr;
      codec_.decode(sums + p.coordinate, norms + p.norm, ranks, p.count, counter(chunk, p), apart ? apart : out);
      if (!apart) return;
      streamed_copy(out, apart, p.count);
      end_streamed();
    });
  }
  void integers(const std::uint8_t* indices, std::uint64_t coordinates, int bytes, void* to) override {
    auto* const wide = static_cast<std::uint16_t*>(to);
    auto* const narrow = static_cast<std::uint8_t*>(to);
    constexpr std::uint64_t kAtOnce = 32 * Homomorphic::kTile;
    std::uint16_t some[kAtOnce];
    for (std::uint64_t at = 0; at < coordinates; at += kAtOnce) {
      const std::uint64_t n = std::min(kAtOnce, coordinates - at);
      std::uint16_t* const sums = bytes == 2 ? wide + at : some;
      std::memset(sums, 0, n * sizeof *sums);
      codec_.add(indices + index_bytes(at), n, sums);
      if (bytes == 1)
        std::transform(some, some + n, narrow + at, [](std::uint16_t x) { return static_cast<std::uint8_t>(x); });
    }
  }
  void add(const IndexShares& indices, std::uint64_t coordinates, int width, std::uint16_t* scratch, std::uint8_t* to,
           const Progress& progress) override {
    if (coordinates) std::memset(scratch, 0, coordinates * sizeof *scratch);
    for (std::uint32_t r = 0; r < indices.ranks; ++r) {
      codec_.add(indices.bytes + r * indices.stride, coordinates, scratch);
      if (progress) progress();
    }
    pack_sums(scratch, coordinates, width, to);
  }
  void unpack(const PackedShares& packed, std::uint64_t coordinates, std::uint32_t most, std::uint16_t* sums,
              std::uint32_t* largest) override {
    for (std::uint32_t r = 0; r < packed.shares; ++r) {
      const std::uint64_t begin = share_begin(coordinates, r, packed.shares),
                          end = share_begin(coordinates, r + 1, packed.shares);
      const std::uint32_t found =
          unpack_sums(packed.bytes + r * packed.stride, end - begin, packed.width, sums + begin);
      if (found > most) largest[r] = found;
    }
  }
  void finish(const Progress&) override {}

 private:
  // fn(piece) for all pieces, shared out among the threads.
  template <class Fn>
  void each_piece(const SumChunk& chunk, const Progress& progress, Fn&& fn) {
    const std::size_t n = chunk.pieces.size();
    const auto work = [&](int part, int parts) {
      for (std::size_t p = n * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts);
           p < n * static_cast<std::size_t>(part + 1) / static_cast<std::size_t>(parts); ++p) {
        fn(chunk.pieces[p]);
        if (part == 0 && progress) progress();
      }
    };
    workers_.run(std::ref(work));  // no copy, which would be an allocation
  }
  static RandomCounter counter(const SumChunk& chunk, const SumPiece& p) {
    RandomCounter at = chunk.counter;
    at.element += p.offset;
    return at;
  }
  static PieceSource source(const SumChunk& chunk, const SumPiece& p) {
    return {chunk.values.floats() + p.offset, p.residual_in, p.residual_out, p.count, counter(chunk, p), {}};
  }
  std::uint64_t index_bytes(std::uint64_t n) const { return n * codec_.index_bits() / 8; }

  const Homomorphic& codec_;
  Workers& workers_;
};

}  // namespace

std::unique_ptr<SumSteps> host_sum_steps(const Codec& codec, Workers& workers) {
  return std::make_unique<HostSumSteps>(*codec.homomorphic(), workers);
}

}  // namespace crimp
