// PowerSGD's exchange: P = M Q is summed over the ranks and made orthonormal, Q = M^T P is summed, and P Q^T is the result on every rank. Each sum
// is taken in rank order by one owner per shard (alltoall) and given to all (allgather), so that it has the same bits everywhere. Tensors that
// travel exactly are summed with P.
//
// The result depends on the ranks' own Q of the call before through the sum of the P alone: a rank without memory (new, or one that gives
// zeros) does not disturb the others, and has the same Q as they after the call.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codec/powersgd.hpp"
#include "comm/algorithms.hpp"
#include "comm/pipeline.hpp"
#include "core/fault.hpp"

namespace crimp {
namespace {

struct Tensor {
  powersgd::Matrix matrix;
  std::uint64_t offset;       // in the call
  std::uint64_t left, right;  // where its part of the sums begins
  float* memory;              // the residual, and Q behind it; null: none
};

std::vector<Tensor> tensors_of(const CollectiveCall& call) {
  std::vector<Tensor> all;
  std::uint64_t left = 0, right = 0;
  for (std::size_t s = 0; s < call.layout->segments.size(); ++s) {
    const Segment& segment = call.layout->segments[s];
    if (segment.use == Segment::Use::skip || segment.count == 0) continue;
    const auto matrix = powersgd::matrix_of(segment.count, call.codec->parameter_word());
    all.push_back({matrix, segment.offset, left, right, call.residuals.empty() ? nullptr : call.residuals[s]});
    left += matrix.left();
    right += matrix.right();
  }
  return all;
}

std::uint64_t left_of(const std::vector<Tensor>& all) { return all.empty() ? 0 : all.back().left + all.back().matrix.left(); }
std::uint64_t right_of(const std::vector<Tensor>& all) { return all.empty() ? 0 : all.back().right + all.back().matrix.right(); }

// A shard on the wire: a header and as many floats for every rank.
std::uint64_t frame_bytes(std::uint64_t floats, std::uint64_t ranks) { return sizeof(Header) + round_up(div_up(floats, ranks) * sizeof(float), kPayloadAlign); }

class LowRank : Pipeline {
 public:
  LowRank(Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace)
      : Pipeline(transport, workers, call, trace), tensors_(tensors_of(call)), left_count_(left_of(tensors_)), right_count_(right_of(tensors_)),
        headers_(ranks()) {
    if (!arena) return;
    const auto take = [&](std::uint64_t bytes) { return reinterpret_cast<std::uint8_t*>(arena->take(bytes)); };
    left_ = reinterpret_cast<float*>(take(left_count_ * sizeof(float)));
    before_ = reinterpret_cast<float*>(take(right_count_ * sizeof(float)));
    right_ = reinterpret_cast<float*>(take(right_count_ * sizeof(float)));
    const std::uint64_t frames = ranks() * frame_bytes(std::max(left_count_, right_count_), ranks());
    send_ = take(frames);
    receive_ = take(frames);
  }
  static std::uint64_t arena_bytes(const CollectiveCall& call, int ranks) {
    const auto all = tensors_of(call);
    const std::uint64_t left = left_of(all), right = right_of(all), n = static_cast<std::uint64_t>(ranks);
    return Arena::padded(left * sizeof(float)) + 2 * Arena::padded(right * sizeof(float)) + 2 * Arena::padded(n * frame_bytes(std::max(left, right), n));
  }

  CollectiveResult run() {
    Header mine = header(0, call_.count);
    if (!call_.flags) mine.body_bytes = ranks() * frame_bytes(left_count_, ranks());
    if (fault::fires("corrupt_header")) mine.count ^= 1;
    const auto ticket = under_way(transport_.start_allgather(&mine, headers_.data(), sizeof(Header)));
    count_bytes(sizeof(Header));
    wait(ticket, 0);
    if (!accept(headers_)) return result_;

    auto begin = Clock::now();
    for (const Tensor& t : tensors_) multiply(t);
    result_.encode_s += span("encode", 0, begin);
    sum(1, left_, left_count_);
    begin = Clock::now();
    for (const Tensor& t : tensors_) multiply_transposed(t);
    result_.encode_s += span("encode", 0, begin);
    if (right_count_ > 0) sum(3, right_, right_count_);
    // What is corrupt reaches neither the memory nor the result.
    if (result_.error) return result_;
    begin = Clock::now();
    for (const Tensor& t : tensors_) rebuild(t);
    result_.decode_s += span("decode", 0, begin);
    return result_;
  }

 private:
  powersgd::Source source(const Tensor& t) const { return {call_.in + t.offset, t.memory}; }

  // body(first, last) over [0, n) on all workers, cut at multiples of a cache line of floats.
  template <class Body>
  void share_out(std::uint64_t n, Body body) {
    constexpr std::uint64_t kLine = 16;
    workers_.run([&](int part, int parts) {
      const auto cut = [&](int i) { return i == parts ? n : n * static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(parts) / kLine * kLine; };
      if (cut(part) < cut(part + 1)) body(cut(part), cut(part + 1));
    });
    transport_.progress();
  }

  void multiply(const Tensor& t) {
    const auto& m = t.matrix;
    float* const p = left_ + t.left;
    if (m.rank == 0) {
      std::memcpy(p, call_.in + t.offset, m.count * sizeof *p);
      return;
    }
    float* const q = before_ + t.right;
    if (t.memory) std::memcpy(q, t.memory + m.count, m.right() * sizeof *q);
    else std::memset(q, 0, m.right() * sizeof *q);
    const powersgd::Fresh fresh{t.offset, call_.sequence};
    powersgd::orthonormalise(q, m.cols, m.rank, &fresh);
    share_out(m.rows, [&](std::uint64_t first, std::uint64_t last) { powersgd::multiply(m, source(t), q, p, first, last); });
  }

  void multiply_transposed(const Tensor& t) {
    const auto& m = t.matrix;
    if (m.rank == 0) return;
    float* const p = left_ + t.left;
    powersgd::orthonormalise(p, m.rows, m.rank, nullptr);
    share_out(m.cols, [&](std::uint64_t first, std::uint64_t last) { powersgd::multiply_transposed(m, source(t), p, right_ + t.right, first, last); });
  }

  void rebuild(const Tensor& t) {
    const auto& m = t.matrix;
    const float* const p = left_ + t.left;
    float* const out = call_.out + t.offset;
    if (m.rank == 0) {
      std::memcpy(out, p, m.count * sizeof *out);
      return;
    }
    const float* const q = right_ + t.right;
    const float mean = 1.0f / static_cast<float>(ranks());
    share_out(m.rows, [&](std::uint64_t first, std::uint64_t last) { powersgd::rebuild(m, source(t), p, q, mean, out, t.memory, first, last); });
    if (t.memory) std::memcpy(t.memory + m.count, q, m.right() * sizeof *q);
  }

  // values[i] = the sum over the ranks, in rank order from +0. Stages `stage` (shards to their owners) and `stage` + 1 (sums to all).
  void sum(std::uint8_t stage, float* values, std::uint64_t count) {
    const std::uint64_t frame = frame_bytes(count, ranks()), shard = (frame - sizeof(Header)) / sizeof(float);
    const auto floats = [&](std::uint8_t* frames, std::size_t r) { return reinterpret_cast<float*>(frames + r * frame + sizeof(Header)); };
    const auto length = [&](std::size_t r) { return count > r * shard ? std::min(shard, count - r * shard) : 0; };
    const auto seal = [&](std::uint8_t* at, std::uint8_t of, bool corrupt) {
      Header h = header(0, count, of);
      if (corrupt) h.flags |= kFlagCorrupt;
      h.body_bytes = shard * sizeof(float);
      if (call_.checksum) h.body_hash = XXH3_64bits(at + sizeof h, h.body_bytes);
      std::memcpy(at, &h, sizeof h);
      if (h.body_bytes && fault::fires("corrupt_body")) at[sizeof h + h.body_bytes / 2] ^= 0x55;
    };
    // False: what rank r sent in frame r is not to be used.
    const auto good = [&](std::size_t r, std::uint8_t of) {
      const Header expected = header(0, count, of);
      Header h;
      std::memcpy(&h, receive_ + r * frame, sizeof h);
      std::string what = disagreement(expected, h);
      if (what.empty() && h.body_bytes != shard * sizeof(float)) what = "its size is wrong";
      if (what.empty() && h.body_hash && XXH3_64bits(receive_ + r * frame + sizeof h, h.body_bytes) != h.body_hash) what = "its checksum is wrong";
      if (what.empty() && (h.flags & kFlagCorrupt)) what = "what that rank received was corrupt";
      if (!what.empty()) blame(r, 0, what);
      return what.empty();
    };

    for (std::size_t r = 0; r < ranks(); ++r) {
      float* const to = floats(send_, r);
      const std::uint64_t n = length(r);
      if (n) std::memcpy(to, values + r * shard, n * sizeof *to);
      std::fill(to + n, to + shard, 0.0f);
      seal(send_ + r * frame, stage, false);
    }
    const std::vector<std::uint64_t> bytes(ranks(), frame);
    std::vector<std::uint64_t> offsets(ranks());
    for (std::size_t r = 0; r < ranks(); ++r) offsets[r] = r * frame;
    wait(under_way(transport_.start_alltoallv(send_, bytes, offsets, receive_, bytes, offsets)), 0);
    count_bytes((ranks() - 1) * frame, (ranks() - 1) * frame);
    if (fault::fires("corrupt_wire")) receive_[frame / 2] ^= 0x55;

    bool all_good = true;
    float* const mine = floats(send_, 0);
    std::fill(mine, mine + shard, 0.0f);
    for (std::size_t r = 0; r < ranks(); ++r) {
      all_good = good(r, stage) && all_good;
      const float* const from = floats(receive_, r);
      for (std::uint64_t i = 0; i < shard; ++i) mine[i] += from[i];
    }
    seal(send_, static_cast<std::uint8_t>(stage + 1), !all_good);
    wait(under_way(transport_.start_allgather(send_, receive_, frame)), 0);
    count_bytes(frame);
    for (std::size_t r = 0; r < ranks(); ++r) {
      all_good = good(r, static_cast<std::uint8_t>(stage + 1)) && all_good;
      if (const std::uint64_t n = length(r)) std::memcpy(values + r * shard, floats(receive_, r), n * sizeof *values);
      for (std::uint64_t i = 0; i < length(r) && all_good; ++i)
        if (!std::isfinite(values[r * shard + i])) all_good = false, blame(r, 0, "a sum is not finite");
    }
    if (!all_good) std::fill(values, values + count, 0.0f);  // what follows must not meet NaN
  }

  void count_bytes(std::uint64_t sent) { count_bytes(sent, (ranks() - 1) * sent); }
  void count_bytes(std::uint64_t sent, std::uint64_t received) {
    result_.sent_bytes += sent;
    result_.received_bytes += received;
  }

  std::vector<Tensor> tensors_;
  std::uint64_t left_count_, right_count_;
  std::vector<Header> headers_;
  float *left_ = nullptr, *before_ = nullptr, *right_ = nullptr;  // P and exact tensors; Q of the call before, orthonormal; Q
  std::uint8_t *send_ = nullptr, *receive_ = nullptr;
};

}  // namespace

AlgorithmEntry low_rank_algorithm() {
  return {
      .algorithm = Algorithm::low_rank,
      .name = "low_rank",
      .summary = "PowerSGD: P and Q are summed, every rank multiplies them",
      .obstacle = [](const Codec& codec, int) { return codec.traits().whole_tensors ? std::string() : std::string("it runs codec powersgd only"); },
      .chunk_elements = [](std::uint64_t setting, const Codec&, int) { return std::max(kPieceElements, setting); },  // tensors stay whole
      .arena_bytes = LowRank::arena_bytes,
      .run = [](Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call,
                Trace* trace) { return LowRank(transport, arena, workers, call, trace).run(); },
      .cost = nullptr,  // no other algorithm runs its codec, so there is nothing to compare
  };
}

}  // namespace crimp
