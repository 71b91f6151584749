// Payloads of variable size: a block that encodes a piece notes its length, and another kernel packs the pieces from
// their slots behind the lengths of their job's body.
#pragma once
#include "codec/device/block.cuh"
#include "codec/device_codec.hpp"

namespace crimp::device {

// In the table of lengths of a job's body, which the last piece ends. The piece is looked up again: registers hold more
// by now than its entry.
__device__ inline void note_length(const ChunkTable& table, std::uint32_t index, std::uint32_t bytes) {
  const PieceEntry& piece = table.pieces[index];
  const JobEntry& job = table.jobs[piece.job];
  const std::uint64_t end = job.pieces * sizeof(std::uint16_t);
  std::uint8_t* const body = global(job.body);
  if (threadIdx.x == 0) reinterpret_cast<std::uint16_t*>(body)[piece.in_job] = static_cast<std::uint16_t>(bytes);
  if (piece.in_job + 1 == job.pieces && threadIdx.x < job.prefix_bytes - end) body[end + threadIdx.x] = 0;
}

// Where each piece of a run goes is known from the lengths in front of it, which a block adds up for its first one.
// Runs are single pieces until there are kPackBlocks of them, so that blocks read few lengths beside the bytes they
// move.
inline constexpr std::uint32_t kPackThreads = 128, kPackBlocks = 2048;

// The sum of `count` lengths, the table aligned to 16, in every thread.
template <std::uint32_t threads>
__device__ inline std::uint64_t sum_of_lengths(const std::uint16_t* lengths, std::uint32_t count,
                                               BlockScratch& scratch) {
  const std::uint32_t vectors = count / 8, behind = 8 * vectors + threadIdx.x;
  const auto* const vector = reinterpret_cast<const uint4*>(lengths);
  const auto both = [](std::uint32_t word) { return (word & 0xffff) + (word >> 16); };
  std::uint64_t sum = behind < count ? lengths[behind] : 0;
#pragma unroll 2
  for (std::uint32_t v = threadIdx.x; v < vectors; v += threads) {
    const uint4 of = vector[v];
    sum += both(of.x) + both(of.y) + both(of.z) + both(of.w);
  }
  return block_sum<threads>(sum, scratch);
}

// Packs the pieces [blockIdx.x * run, ... + run) from their slots; the block of a job's last piece ends its body.
template <std::uint32_t threads>
__global__ void __launch_bounds__(threads)
    pack_pieces(ChunkTable table, const std::uint8_t* slots, std::uint64_t* body_bytes, std::uint64_t run) {
  auto& scratch = shared_memory<BlockScratch>();
  const auto first = static_cast<std::uint32_t>(blockIdx.x * run),
             end = static_cast<std::uint32_t>(first + run < table.piece_count ? first + run : table.piece_count);
  std::uint64_t at = 0;
  for (std::uint32_t p = first; p < end; ++p) {
    const PieceEntry piece = table.pieces[p];
    const JobEntry job = table.jobs[piece.job];
    std::uint8_t* const body = global(job.body);
    const auto* const lengths = reinterpret_cast<const std::uint16_t*>(body);
    if (p == first || piece.in_job == 0)
      at = job.prefix_bytes + sum_of_lengths<threads>(lengths, piece.in_job, scratch);
    const std::uint32_t bytes = lengths[piece.in_job];
    copy_bytes(body + at, slots + piece.slot, bytes);
    at += bytes;
    if (piece.in_job + 1 == job.pieces) {
      const std::uint64_t padded = (at + kPayloadAlign - 1) / kPayloadAlign * kPayloadAlign;
      if (threadIdx.x < padded - at) body[at + threadIdx.x] = 0;
      if (threadIdx.x == 0) body_bytes[piece.job] = padded;
    }
  }
}

}  // namespace crimp::device
