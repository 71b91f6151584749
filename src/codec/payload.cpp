#include "codec/payload.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "codec/feedback.hpp"
#include "core/reserve.hpp"
#include "memory/streamed.hpp"
#include "memory/thread_scratch.hpp"
#include "memory/workers.hpp"

namespace crimp {
namespace {

// A thread that wakes for fewer costs more than they do: two threads encoded 16,384 values by fp16 at a fifth of the
// speed of one, 131,072 as fast or faster (Zen 3).
constexpr std::size_t kPiecesOfThread = 8;

// What a body needs of its call besides the shape.
struct Encoding {
  const Codec& codec;
  const ChunkPartition& partition;
  const float* values;
  std::span<const FeedbackView> feedback;
  RandomCounter counter;
  std::uint8_t* lengths;
  float* scratch;
};

// Encodes pieces [first, last) to `to` and returns the end; of codecs that select these are whole groups. Lengths go to
// the table where there is one.
std::uint8_t* encode_pieces(const Encoding& e, std::size_t first, std::size_t last, std::uint8_t* to,
                            const Progress& progress) {
  const Codec& codec = e.codec;
  const auto pieces = e.partition.pieces();
  for (std::size_t p = first; p < last;) {
    const std::size_t g = pieces[p].group;
    const Group& group = e.partition.groups()[g];
    const FeedbackView memory = e.feedback.empty() ? FeedbackView{} : e.feedback[g];
    // What is encoded is made first, by the codec's memory: of a whole group where the codec looks at it, in the place
    // of the new residual; else of one piece. The codec then reads a piece of it that stays in L1.
    const bool sums =
        codec.feedback().kind == FeedbackKind::momentum && !memory.momentum_in;  // of sums: a plain residual
    const bool apart = memory.in && !codec.feedback().fused() && !sums, selects = codec.traits().selects;
    const bool average = codec.feedback().kind == FeedbackKind::average;       // is itself what is encoded
    const bool marks = apart && selects && !average && codec.marks_changes();  // encoded where it lies
    float* const scratch = apart ? e.scratch + pieces[first].offset : nullptr;
    const float* values = e.values + group.offset;
    RandomCounter counter = e.counter;
    counter.element += group.offset;
    PieceSource piece{};
    if (apart && selects) compensate(codec.feedback(), values, memory, group.count, memory.out);
    if (selects) {
      const float *const from = apart ? memory.out : values, *const residual = apart ? nullptr : memory.in;
      piece.selection =
          memory.state_in ? codec.select_again(from, residual, group.count, counter, memory.state_in, memory.state_out)
                          : codec.select_in_turn(from, residual, group.count, counter,
                                                 e.feedback.empty() ? counter.step : memory.turn);
    }
    for (; p < last && pieces[p].group == g; ++p) {
      const std::uint64_t at = pieces[p].offset - group.offset;
      const auto part = [&](auto* plane) { return plane ? plane + at : nullptr; };
      const FeedbackView here{
          part(memory.in), part(memory.out), part(memory.momentum_in), part(memory.momentum_out), nullptr,
          nullptr,         memory.gain};
      piece.count = pieces[p].count;
      if (!apart) {
        piece.values = values + at;
        piece.residual_in = here.in;
      } else {
        float* const made = average || marks ? here.out : scratch;
        if (!selects) {
          compensate(codec.feedback(), values + at, here, piece.count, made);
        } else if (!average && !marks) {
          std::memcpy(made, here.out, piece.count * sizeof *made);
        }
        piece.values = made;
        piece.residual_in = nullptr;
      }
      piece.residual_out = apart && average ? nullptr : here.out;
      piece.counter = counter;
      piece.counter.element += at;
      piece.in_group = at;
      std::uint64_t changed[kPieceElements / 64];
      piece.changed = marks && here.momentum_out ? changed : nullptr;
      const std::size_t bytes = codec.encode_piece(piece, to);
      if (!codec.traits().fixed_size) {
        const auto length = static_cast<std::uint16_t>(bytes);
        std::memcpy(e.lengths + p * sizeof length, &length, sizeof length);
      }
      to += bytes;
      if (piece.changed) {
        forget(changed, piece.count, here.momentum_out);
      } else if (apart && !marks) {
        keep(codec.feedback(), piece.values, here, piece.count);
      }
      if (progress) progress();
    }
  }
  return to;
}

}  // namespace

FeedbackView feedback_of(const Codec& codec, float* memory, int arrays, std::uint64_t count, std::uint64_t first) {
  if (!memory) return {};
  float* const here = memory + first;
  float* const momentum = arrays == 2 ? here + count : nullptr;
  float* const state =
      codec.keeps_state() ? memory + static_cast<std::uint64_t>(arrays) * count + Codec::state_at(first) : nullptr;
  return {here, here, momentum, momentum, state, state, codec.feedback().gamma};
}

void ChunkPartition::clear() {
  count_ = 0;
  groups_.clear();
  pieces_.clear();
  first_piece_.clear();
}

void ChunkPartition::add_group(std::uint64_t count) {
  if (count == 0) return;
  const auto group = static_cast<std::uint32_t>(groups_.size());
  groups_.push_back({count_, count});
  first_piece_.push_back(static_cast<std::uint32_t>(pieces_.size()));
  for (std::uint64_t at = 0; at < count; at += kPieceElements)
    pieces_.push_back({count_ + at, static_cast<std::uint32_t>(std::min(kPieceElements, count - at)), group});
  count_ += count;
}

std::size_t ChunkPartition::prefix_bytes(const Codec& codec) const {
  const std::size_t lengths = codec.traits().fixed_size ? 0 : pieces_.size() * sizeof(std::uint16_t);
  return round_up(lengths, kPayloadAlign);
}

std::size_t ChunkPartition::body_bound(const Codec& codec) const {
  std::size_t bytes = 0;
  for (const auto& p : pieces_) bytes += codec.piece_bound(p.count);
  return prefix_bytes(codec) + round_up(bytes, kPayloadAlign);
}

std::size_t encode_body(const Codec& codec, const ChunkPartition& partition, const float* values,
                        std::span<const FeedbackView> feedback, const RandomCounter& counter, std::uint8_t* body,
                        float* scratch, Workers& workers, const Progress& progress) {
  const Encoding encoding{codec, partition, values, feedback, counter, body, scratch};
  const auto pieces = partition.pieces();
  const std::size_t prefix = partition.prefix_bytes(codec);
  if (prefix) std::memset(body, 0, prefix);
  std::uint8_t* end = body + prefix;
  // Groups of codecs that look at the whole of them are not cut.
  const bool whole = codec.traits().selects;
  const std::size_t shares = std::min({static_cast<std::size_t>(workers.threads()), pieces.size() / kPiecesOfThread,
                                       whole ? partition.groups().size() : pieces.size()});
  if (shares < 2) {
    end = encode_pieces(encoding, 0, pieces.size(), end, progress);
  } else {
    // Each of some threads encodes a run of pieces into the place that they could at most need; then the runs are moved
    // together.
    struct Run {
      std::size_t first;
      std::uint8_t *begin, *end;
    };
    auto runs = insist([&] { return std::vector<Run>(shares + 1); });
    std::uint8_t* room = end;
    for (std::size_t share = 0, p = 0; share <= shares; ++share) {
      std::size_t first = pieces.size() * share / shares;
      if (whole && first > 0) {  // up to the end of the group that it would cut
        const std::size_t next = pieces[first - 1].group + std::size_t{1};
        first = next < partition.groups().size() ? partition.first_piece(next) : pieces.size();
      }
      for (; p < first; ++p) room += codec.piece_bound(pieces[p].count);
      runs[share] = {first, room, room};
    }
    const auto work = [&](int part, int) {
      if (static_cast<std::size_t>(part) >= shares) return;
      Run* const run = &runs[static_cast<std::size_t>(part)];
      run->end = encode_pieces(encoding, run->first, run[1].first, run->begin, part == 0 ? progress : Progress{});
    };
    workers.run(std::ref(work));
    for (const Run& run : runs) {
      if (end != run.begin) std::memmove(end, run.begin, static_cast<std::size_t>(run.end - run.begin));
      end += run.end - run.begin;
    }
  }
  const auto used = static_cast<std::size_t>(end - body);
  const std::size_t padded = round_up(used, kPayloadAlign);
  if (padded != used) std::memset(end, 0, padded - used);
  return padded;
}

std::string BodyView::open(const Codec& codec, const ChunkPartition& partition, std::span<const std::uint8_t> body) {
  return open(codec, partition, body, body.data(),
              body.data() + body.size() - std::min<std::size_t>(body.size(), kPayloadAlign));
}

std::string BodyView::open(const Codec& codec, const ChunkPartition& partition, std::span<const std::uint8_t> body,
                           const std::uint8_t* prefix_at, const std::uint8_t* last) {
  body_ = {};
  const std::size_t prefix = partition.prefix_bytes(codec);
  const auto pieces = partition.pieces();
  const auto sizes = [&](std::size_t needed) {
    return "the body has " + std::to_string(body.size()) + " bytes, its pieces need " + std::to_string(needed);
  };
  if (body.size() < prefix) return sizes(prefix);
  offsets_.resize(pieces.size() + 1);
  std::size_t at = prefix;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    offsets_[p] = at;
    const std::size_t bound = codec.piece_bound(pieces[p].count);
    std::uint16_t length = 0;
    if (!codec.traits().fixed_size) {
      std::memcpy(&length, prefix_at + p * sizeof length, sizeof length);
      if (length > bound)
        return "piece " + std::to_string(p) + " claims " + std::to_string(length) + " bytes, at most " +
               std::to_string(bound) + " are possible";
    }
    at += codec.traits().fixed_size ? bound : length;
  }
  offsets_[pieces.size()] = at;
  if (body.size() != round_up(at, kPayloadAlign)) return sizes(round_up(at, kPayloadAlign));
  const std::size_t tables = codec.traits().fixed_size ? 0 : pieces.size() * sizeof(std::uint16_t);
  const auto padding = [](const std::uint8_t* bytes, std::size_t first, std::size_t from,
                          std::size_t to) -> std::string {
    for (std::size_t i = from; i < to; ++i)
      if (bytes[i - first] != 0) return "a padding byte at " + std::to_string(i) + " is not zero";
    return {};
  };
  if (std::string what = padding(prefix_at, 0, tables, prefix); !what.empty()) return what;
  if (std::string what =
          padding(last, body.size() - std::min<std::size_t>(body.size(), kPayloadAlign), at, body.size());
      !what.empty())
    return what;
  body_ = body;
  return {};
}

int decode_add(const Codec& codec, const ChunkPartition& partition, std::span<const BodyView> bodies,
               const RandomCounter& counter, float* out, bool accumulate, Workers& workers, const Progress& progress,
               int voters, bool streamed) {
  const auto pieces = partition.pieces();
  if (voters == 0) voters = static_cast<int>(bodies.size());
  streamed = streamed && !accumulate && !codec.traits().hides_stores;
  std::atomic<int> bad{-1};
  // Piece by piece and ranks inside, so that the sum of a piece stays in L1 and memory sees it once.
  const auto work = [&](int part, int parts) {
    const std::size_t first = pieces.size() * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts);
    const std::size_t last = pieces.size() * static_cast<std::size_t>(part + 1) / static_cast<std::size_t>(parts);
    float* const apart = streamed ? thread_piece() : nullptr;
    for (std::size_t p = first; p < last; ++p) {
      float* const to = out + pieces[p].offset;
      float* const acc = apart ? apart : to;
      const RandomCounter here{counter.element + pieces[p].offset, counter.step, 0};
      if (!accumulate) std::memset(acc, 0, pieces[p].count * sizeof *acc);
      for (std::size_t r = 0; r < bodies.size(); ++r) {
        if (!codec.decode_add_piece(bodies[r].piece(p), pieces[p].count, here, acc)) {
          const int mine = static_cast<int>(r);
          for (int seen = bad.load(); (seen < 0 || mine < seen) && !bad.compare_exchange_weak(seen, mine);) {
          }
        }
      }
      if (!accumulate && codec.traits().votes) codec.finish_piece(acc, pieces[p].count, voters);
      if (apart) streamed_copy(to, apart, pieces[p].count);
      if (part == 0 && progress) progress();
    }
    if (apart) end_streamed();
  };
  const auto shares = static_cast<int>(
      std::min(static_cast<std::size_t>(workers.threads()), pieces.size() * bodies.size() / kPiecesOfThread));
  if (shares < 2) {
    work(0, 1);
  } else {
    const auto share = [&](int part, int) {
      if (part < shares) work(part, shares);
    };
    workers.run(std::ref(share));  // no copy, which would be an allocation
  }
  return bad.load();
}

}  // namespace crimp
