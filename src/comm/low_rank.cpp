// PowerSGD's exchange: P = M Q is summed over the ranks and made orthonormal, Q = M^T P is summed, and P Q^T is the result on every rank. Each sum
// is taken in rank order by one owner per shard (alltoall) and given to all (allgather), so that it has the same bits everywhere. Tensors that
// travel exactly are summed with P.
//
// Values in device memory are multiplied there (Backend::start_step); P and Q, which are small, are summed in host memory.
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

// The call's tensors, without their factors, and how many floats are summed first and then.
std::vector<powersgd::Tensor> tensors_of(const CollectiveCall& call, std::uint64_t* left, std::uint64_t* right) {
  std::vector<powersgd::Tensor> all;
  *left = *right = 0;
  for (std::size_t s = 0; s < call.layout->segments.size(); ++s) {
    const Segment& segment = call.layout->segments[s];
    if (segment.use == Segment::Use::skip || segment.count == 0) continue;
    powersgd::Tensor& t = all.emplace_back();
    t.matrix = powersgd::matrix_of(segment.count, call.codec->parameter_word());
    t.fresh = {segment.offset, call.sequence};
    t.values = call.in + segment.offset;
    t.out = call.out + segment.offset;
    t.memory = call.residuals.empty() ? nullptr : call.residuals[s];
    *left += t.matrix.left();
    *right += t.matrix.right();
  }
  return all;
}

// A shard on the wire: a header and as many floats for every rank.
std::uint64_t frame_bytes(std::uint64_t floats, std::uint64_t ranks) { return sizeof(Header) + round_up(div_up(floats, ranks) * sizeof(float), kPayloadAlign); }

class LowRank : Pipeline {
 public:
  LowRank(Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace)
      : Pipeline(transport, workers, call, trace), tensors_(tensors_of(call, &left_count_, &right_count_)), headers_(ranks()) {
    if (!arena) return;
    const auto floats = [](Arena& from, std::uint64_t count) { return reinterpret_cast<float*>(from.take(count * sizeof(float))); };
    left_ = floats(*arena, left_count_);
    right_ = floats(*arena, right_count_);
    const std::uint64_t frames = ranks() * frame_bytes(std::max(left_count_, right_count_), ranks());
    send_ = reinterpret_cast<std::uint8_t*>(arena->take(frames));
    receive_ = reinterpret_cast<std::uint8_t*>(arena->take(frames));
    left_there_ = call.values ? floats(*call.values, left_count_) : left_;
    right_there_ = call.values ? floats(*call.values, right_count_) : right_;
    float *left = left_there_, *right = right_there_, *before = floats(call.values ? *call.values : *arena, right_count_);
    for (powersgd::Tensor& t : tensors_) {
      t.left = left, t.right = right, t.before = before;
      left += t.matrix.left(), right += t.matrix.right(), before += t.matrix.right();
    }
  }
  // P and exact tensors, Q, Q of the call before.
  static std::uint64_t value_bytes(const CollectiveCall& call) {
    std::uint64_t left, right;
    tensors_of(call, &left, &right);
    return Arena::padded(left * sizeof(float)) + 2 * Arena::padded(right * sizeof(float));
  }
  static std::uint64_t arena_bytes(const CollectiveCall& call, int ranks) {
    std::uint64_t left, right, n = static_cast<std::uint64_t>(ranks);
    tensors_of(call, &left, &right);
    return value_bytes(call) + 2 * Arena::padded(n * frame_bytes(std::max(left, right), n));
  }

  CollectiveResult run() {
    Header mine = header(0, call_.count);
    if (!mine.flags) {
      mine.body_bytes = ranks() * frame_bytes(left_count_, ranks());
      try {
        backend_.prepare(tensors_, 1.0f / static_cast<float>(ranks()));
      } catch (const std::exception& e) {
        failed(mine, e);
      }
    }
    if (fault::fires("corrupt_header")) mine.count ^= 1;
    const auto ticket = under_way(transport_.start_allgather(&mine, headers_.data(), sizeof(Header)));
    count_bytes(sizeof(Header));
    wait(ticket, 0);
    if (!accept(headers_)) return result_;

    result_.encode_s += step(powersgd::Step::project, "encode", nullptr, left_);
    sum(1, left_, left_count_);
    result_.encode_s += step(powersgd::Step::project_back, "encode", left_, right_);
    if (right_count_ > 0) sum(3, right_, right_count_);
    // What is corrupt reaches neither the memory nor the result.
    if (!result_.error) result_.decode_s += step(powersgd::Step::rebuild, "decode", right_count_ > 0 ? right_ : nullptr, nullptr);
    return result_;
  }

 private:
  // One step of all tensors, behind new sums `given` (left_ or right_; null: none), and what it gives to be summed. Where the device failed the exchanges go on without it.
  double step(powersgd::Step which, const char* name, const float* given, float* wanted) {
    const auto begin = Clock::now();
    const auto there = [&](const float* here) { return here == left_ ? left_there_ : right_there_; };
    const auto bytes = [&](const float* here) { return (here == left_ ? left_count_ : right_count_) * sizeof(float); };
    try {
      if (!broken_) {
        if (given && there(given) != given) backend_.write(there(given), given, bytes(given));
        backend_.start_step(which, progress());
        if (wanted && there(wanted) != wanted) backend_.read(wanted, there(wanted), bytes(wanted));
        backend_.settle();
      }
    } catch (const std::exception& e) {
      broken_ = true;
      failed(e);
    }
    return span(name, 0, begin);
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
      if (what.empty() && (h.flags & kFlagCorrupt)) what = "what that rank received was corrupt, or its device failed";
      if (!what.empty()) blame(r, 0, what);
      return what.empty();
    };

    for (std::size_t r = 0; r < ranks(); ++r) {
      float* const to = floats(send_, r);
      const std::uint64_t n = length(r);
      if (n) std::memcpy(to, values + r * shard, n * sizeof *to);
      std::fill(to + n, to + shard, 0.0f);
      seal(send_ + r * frame, stage, broken_);
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

  std::uint64_t left_count_ = 0, right_count_ = 0;
  std::vector<powersgd::Tensor> tensors_;
  std::vector<Header> headers_;
  bool broken_ = false;                                          // the device failed
  float *left_ = nullptr, *right_ = nullptr;                     // P and exact tensors; Q: where they are summed
  float *left_there_ = nullptr, *right_there_ = nullptr;         // and where they are made of values: the same, or in the backend's memory
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
      .any_backend = true,
      .host_bodies = true,
      .value_bytes = LowRank::value_bytes,
  };
}

}  // namespace crimp
