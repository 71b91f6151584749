// PowerSGD's exchange: P = M Q is summed over the ranks and made orthonormal, Q = M^T P is summed, and P Q^T is the
// result on every rank. Each sum is taken in rank order by one owner per shard (alltoall) and given to all (allgather),
// so that it has the same bits everywhere. Tensors that travel exactly are summed with P.
//
// Values in device memory are multiplied there (TensorSteps); P and Q, which are small, are summed in host memory.
//
// The result depends on the ranks' own Q of the call before through the sum of the P alone: a rank without memory (new,
// or one that gives zeros) does not disturb the others, and has the same Q as they after the call.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "backend/device_access.hpp"
#include "codec/powersgd/powersgd_extents.hpp"
#include "codec/powersgd/tensor_steps.hpp"
#include "collective/algorithms.hpp"
#include "collective/factors.hpp"
#include "collective/frame.hpp"
#include "collective/pipeline.hpp"
#include "core/digest.hpp"
#include "core/log.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

// A shard on the wire: a header and as many floats for every rank.
std::uint64_t frame_bytes(std::uint64_t floats, std::uint64_t ranks) {
  return sizeof(Header) + round_up(div_up(floats, ranks) * sizeof(float), kPayloadAlign);
}

std::uint64_t frames_bytes(const Factors& plan, std::uint64_t ranks) {
  return ranks * frame_bytes(std::max(plan.left + plan.shares, plan.right), ranks);
}

void pass_on_complaint(TensorSteps& steps) {
  if (const std::string text = steps.take_complaint(); !text.empty()) warn_of_device(kWarnProducts, text);
}

class LowRankRoute final : public RoutePlan {
 public:
  LowRankRoute(const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : RoutePlan(Algorithm::low_rank, of, chunk_elements, transport_ranks) {}
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  void prepare(Backend& backend) const override {
    TensorSteps* const steps = backend.tensor_steps();
    if (!steps) return;
    steps->load(*part.codec, part.layout->segments.size());
    pass_on_complaint(*steps);
  }
  // Of what the ranks know of the tensors' shapes, or of knowing nothing, where they know different things.
  RouteBytes bytes(const std::vector<powersgd::Extents*>& extents) const override {
    CallBuffers call;
    call.extents = extents;
    RouteBytes most;
    for (const bool agreed : {true, false}) {
      const Factors plan = factors_of(part, call, agreed);
      // P and exact tensors, Q, Q of the call before; also in host memory where they are elsewhere, with the shares,
      // frames, and what columns are found with.
      const std::uint64_t right = Arena::padded(plan.right * sizeof(float));
      most.values = std::max<std::uint64_t>(most.values, Arena::padded(plan.left * sizeof(float)) + 2 * right);
      most.bodies = std::max<std::uint64_t>(
          most.bodies, Arena::padded((plan.left + plan.shares) * sizeof(float)) + 2 * right +
                           2 * Arena::padded(frames_bytes(plan, static_cast<std::uint64_t>(ranks))) +
                           Arena::padded(plan.sample * sizeof(float)));
    }
    most.together = most.bodies;
    return most;
  }
};

class LowRank final : public Rounds<LowRank> {
 public:
  LowRank(Transport& transport, const LowRankRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : Rounds(transport, workers, route, call, trace, 1), plan_(factors_of(part_, call, true)), headers_(ranks()),
        frame_bytes_(ranks()), frame_offsets_(ranks()) {
    if (!call.arena) return;
    const RouteBytes bytes = route.bytes(call.extents);
    here_ = call.arena->take(bytes.bodies);
    if (call.values) there_ = call.values->take(bytes.values);
    place();
  }

 private:
  friend class Rounds<LowRank>;
  static const Step kSteps[6];
  Transport::Ticket under_way_now(std::uint64_t) { return ticket_; }

  void announce(std::uint64_t) {
    Header mine = header(0, part_.count);
    mine.body_hash = insist([&] { return digest(); });
    if (!mine.flags) {
      mine.body_bytes = ranks() * frame_bytes(summed_first(), ranks());
      try {
        prepare_steps();
      } catch (const std::exception& e) {
        failed(mine, e);
      }
    }
    may_corrupt_header(mine);
    mine_ = mine;
    ticket_ = under_way(transport_.start_allgather(&mine_, headers_.data(), sizeof(Header)));
    count_bytes(sizeof(Header));
  }

  void project(std::uint64_t) {
    wait(ticket_, 0);
    if (!accept(headers_)) return end();
    if (std::any_of(headers_.begin(), headers_.end(),
                    [&](const Header& h) { return h.body_hash != headers_[0].body_hash; }))
      begin_anew();
    forget_other_factors();
    result_.encode_s += step(powersgd::Step::project, "encode", nullptr, left_);
    try_columns();
    start_sum({1, left_, summed_first()});
  }

  void project_back(std::uint64_t) {
    take_sums();
    result_.encode_s += step(powersgd::Step::project_back, "encode", left_, right_);
    if (plan_.right > 0) start_sum({3, right_, plan_.right});
    else sum_ = {};
  }

  void rebuild(std::uint64_t) {
    if (sum_.values) take_sums();
    // What is corrupt reaches neither the memory nor the result.
    if (!result_.error)
      result_.decode_s += step(powersgd::Step::rebuild, "decode", plan_.right > 0 ? right_ : nullptr, nullptr);
    note_columns();
  }

  std::uint64_t summed_first() const { return plan_.left + plan_.shares; }

  void prepare_steps() {
    TensorSteps* const steps = backend_.tensor_steps();
    if (!steps) throw Error(ErrorCode::device_failed, "there are no kernels for the codec's steps");
    steps->prepare(codec(), plan_.tensors, 1.0f / static_cast<float>(ranks()));
  }

  void place() {
    const auto part = [](std::byte*& from, std::uint64_t bytes) {
      return std::exchange(from, from + Arena::padded(bytes));
    };
    const auto floats = [&](std::byte*& from, std::uint64_t count) {
      return reinterpret_cast<float*>(part(from, count * sizeof(float)));
    };
    std::byte *here = here_, *there = there_;
    left_ = floats(here, summed_first());
    right_ = floats(here, plan_.right);
    const std::uint64_t bytes = frames_bytes(plan_, ranks());
    send_ = reinterpret_cast<std::uint8_t*>(part(here, bytes));
    receive_ = reinterpret_cast<std::uint8_t*>(part(here, bytes));
    sample_ = floats(here, plan_.sample);
    left_there_ = there ? floats(there, plan_.left) : left_;
    right_there_ = there ? floats(there, plan_.right) : right_;
    float *left = left_there_, *right = right_there_, *before = floats(there ? there : here, plan_.right);
    for (powersgd::Tensor& t : plan_.tensors) {
      t.left = left, t.right = right, t.before = before;
      left += t.matrix.left(), right += t.matrix.right(), before += t.matrix.right();
    }
  }

  // Of all that decides about sizes and columns.
  std::uint64_t digest() const {
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      const powersgd::Matrix& m = plan_.tensors[i].matrix;
      const powersgd::Extents* known = extents_of(call_, plan_.segments[i]);
      for (const std::uint64_t x : {m.cols, std::uint64_t{m.rank}, known ? known->cols : 0, known ? known->calls : 0})
        all.push_back(x);
    }
    for (const auto& found : plan_.found) all.push_back(found.segment);
    return call_.extents.empty() ? 0 : crimp::digest(all.data(), all.size() * sizeof all[0]);
  }

  // A rank missed what the others agreed on (its exchange was corrupt), or was told other extents: this call takes what
  // it would take knowing nothing.
  void begin_anew() {
    for (const std::size_t s : plan_.segments)
      if (powersgd::Extents* known = extents_of(call_, s))
        *known = {.count = part_.layout->segments[s].count,
                  .q_cols = ~std::uint64_t{0},
                  .calls = powersgd::parameters_of(codec()).start};
    if (transport_.rank() == 0)
      logged("that extents are found anew", [] {
        log(LogLevel::warn,
            "powersgd: the ranks know different extents of a call's tensors (from crimp_set_extents, or after a corrupt exchange); they are found anew");
      });
    plan_ = insist([&] { return factors_of(part_, call_, false); });
    place();
    try {
      prepare_steps();
    } catch (const std::exception& e) {
      broken_ = true;
      failed(e);
    }
  }

  // Q of the call before was made for other columns: zeros, as in the first call.
  void forget_other_factors() {
    try {
      for (std::size_t i = 0; i < plan_.tensors.size() && !broken_; ++i) {
        const powersgd::Tensor& t = plan_.tensors[i];
        const powersgd::Extents* known = extents_of(call_, plan_.segments[i]);
        if (!t.memory || !known || !t.matrix.rank || !known->q_cols || known->q_cols == t.matrix.cols) continue;
        const std::size_t bytes = t.matrix.right() * sizeof(float);
        std::memset(send_, 0, bytes);
        backend_.write(t.memory + t.matrix.count, send_, bytes);
        backend_.synchronize();
      }
    } catch (const std::exception& e) {
      broken_ = true;
      failed(e);
    }
  }

  // What candidates keep of this rank's values, behind P.
  void try_columns() {
    if (plan_.shares == 0) return;
    const auto begin = Clock::now();
    float* share = left_ + plan_.left;
    std::fill(share, share + plan_.shares, 0.0f);
    const std::uint32_t rank = powersgd::parameters_of(codec()).rank;
    try {
      for (const auto& found : plan_.found) {
        if (found.cols.size() < 2) continue;
        const powersgd::Tensor& t = plan_.tensors[found.tensor];
        for (const std::uint64_t cols : found.cols) {
          const std::uint64_t rows = powersgd::sampled_rows(t.matrix.count, cols);
          for (std::uint64_t i = 0; i < rows && !broken_; ++i)
            backend_.read(sample_ + i * cols, t.values + powersgd::sampled_row(t.matrix.count, cols, i, t.fresh) * cols,
                          cols * sizeof(float));
          backend_.synchronize();
          *share++ = broken_ ? 0.0f : powersgd::kept_share(sample_, rows, cols, rank, t.fresh, sample_ + rows * cols);
          transport_.progress();
        }
      }
    } catch (const std::exception& e) {
      broken_ = true;
      failed(e);
    }
    result_.encode_s += span("extents", 0, begin);
  }

  // What all ranks know from here on. After an error this rank knows nothing new, which the next call's headers show.
  void note_columns() {
    const float* share = left_ + plan_.left;
    for (const auto& found : plan_.found) {
      powersgd::Extents& known = *call_.extents[found.segment];
      const std::uint64_t count = part_.layout->segments[found.segment].count;
      if (known.count != count) known = {.count = count};
      if (found.cols.size() == 1) known.cols = found.cols[0];
      if (found.cols.size() < 2) continue;
      if (!result_.error)
        known.cols = powersgd::best_of(count, found.cols, powersgd::parameters_of(codec()).rank,
                                       {share, found.cols.size()}, ranks());
      share += found.cols.size();
      if (known.cols && transport_.rank() == 0)
        logged("a tensor's extents", [&] {
          log(LogLevel::debug, "powersgd: '" + part_.layout->segments[found.segment].key + "' is a matrix of " +
                                   std::to_string(div_up(count, known.cols)) + " x " + std::to_string(known.cols));
        });
    }
    for (std::size_t i = 0; i < plan_.tensors.size(); ++i) {
      powersgd::Extents* known = extents_of(call_, plan_.segments[i]);
      if (!known) continue;
      const powersgd::Matrix& m = plan_.tensors[i].matrix;
      if (known->count != m.count) *known = {.count = m.count};
      ++known->calls;
      if (m.rank && !result_.error) known->q_cols = m.cols;
    }
  }

  // One step of all tensors, behind new sums `given` (left_ or right_; null: none), and what it gives to be summed.
  // Where the device failed the exchanges go on without it.
  double step(powersgd::Step which, const char* name, const float* given, float* wanted) {
    const auto begin = Clock::now();
    const auto there = [&](const float* here) { return here == left_ ? left_there_ : right_there_; };
    const auto bytes = [&](const float* here) { return (here == left_ ? plan_.left : plan_.right) * sizeof(float); };
    try {
      if (!broken_) {
        if (given && there(given) != given) backend_.write(there(given), given, bytes(given));
        backend_.tensor_steps()->start(which, mover());
        if (wanted && there(wanted) != wanted) backend_.read(wanted, there(wanted), bytes(wanted));
        backend_.synchronize();
        pass_on_complaint(*backend_.tensor_steps());
      }
    } catch (const std::exception& e) {
      broken_ = true;
      failed(e);
    }
    return span(name, 0, begin);
  }

  // values[i] = the sum over the ranks, in rank order from +0. Stages `stage` (shards to their owners) and `stage` + 1
  // (sums to all): start_sum(), add_shards(), take_sums().
  struct Sum {
    std::uint8_t stage = 0;
    float* values = nullptr;
    std::uint64_t count = 0;
  };
  std::uint64_t frame() const { return frame_bytes(sum_.count, ranks()); }
  std::uint64_t shard() const { return (frame() - sizeof(Header)) / sizeof(float); }
  std::uint64_t length(std::size_t r) const {
    return sum_.count > r * shard() ? std::min(shard(), sum_.count - r * shard()) : 0;
  }
  float* floats(std::uint8_t* frames, std::size_t r) const {
    return reinterpret_cast<float*>(frames + r * frame() + sizeof(Header));
  }

  void seal(std::uint8_t* at, std::uint8_t of, bool corrupt) {
    Header h = header(0, sum_.count, of);
    if (corrupt) h.flags |= kFlagCorrupt;
    seal_frame(h, {at, frame()}, part_.checksum);
  }
  // False: what rank r sent in frame r is not to be used.
  bool good(std::size_t r, std::uint8_t of) {
    return usable(frame_defect(header(0, sum_.count, of), {receive_ + r * frame(), frame()}), r, 0);
  }

  // What was damaged on its way to this rank makes what it adds of no use to the others, who must know it: P is summed
  // before Q is made of it.
  void start_sum(const Sum& sum) {
    sum_ = sum;
    for (std::size_t r = 0; r < ranks(); ++r) {
      float* const to = floats(send_, r);
      const std::uint64_t n = length(r);
      if (n) std::memcpy(to, sum_.values + r * shard(), n * sizeof *to);
      std::fill(to + n, to + shard(), 0.0f);
      seal(send_ + r * frame(), sum_.stage, broken_ || !all_good_);
    }
    for (std::size_t r = 0; r < ranks(); ++r) frame_bytes_[r] = frame(), frame_offsets_[r] = r * frame();
    ticket_ = under_way(
        transport_.start_alltoallv(send_, frame_bytes_, frame_offsets_, receive_, frame_bytes_, frame_offsets_));
    count_bytes((ranks() - 1) * frame(), (ranks() - 1) * frame());
  }

  void add_shards(std::uint64_t) {
    if (!sum_.values) return;
    wait(ticket_, 0);
    may_corrupt_wire({receive_, frame()});
    all_good_ = true;
    float* const mine = floats(send_, 0);
    std::fill(mine, mine + shard(), 0.0f);
    for (std::size_t r = 0; r < ranks(); ++r) {
      all_good_ = good(r, sum_.stage) && all_good_;
      const float* const from = floats(receive_, r);
      for (std::uint64_t i = 0, n = shard(); i < n; ++i) mine[i] += from[i];
    }
    seal(send_, static_cast<std::uint8_t>(sum_.stage + 1), !all_good_);
    ticket_ = under_way(transport_.start_allgather(send_, receive_, frame()));
    count_bytes(frame());
  }

  void take_sums() {
    wait(ticket_, 0);
    for (std::size_t r = 0; r < ranks(); ++r) {
      all_good_ = good(r, static_cast<std::uint8_t>(sum_.stage + 1)) && all_good_;
      float* const to = sum_.values + r * shard();
      const std::uint64_t n = length(r);
      if (n) std::memcpy(to, floats(receive_, r), n * sizeof *to);
      for (std::uint64_t i = 0; i < n && all_good_; ++i)
        if (!std::isfinite(to[i])) all_good_ = false, blame(r, 0, "a sum is not finite");
    }
    if (!all_good_) std::fill(sum_.values, sum_.values + sum_.count, 0.0f);  // what follows must not meet NaN
    ticket_ = kNothing;
  }

  void count_bytes(std::uint64_t sent) { count_bytes(sent, (ranks() - 1) * sent); }
  void count_bytes(std::uint64_t sent, std::uint64_t received) {
    result_.sent_bytes += sent;
    result_.received_bytes += received;
  }

  Factors plan_;
  Header mine_;
  std::vector<Header> headers_;
  std::vector<std::uint64_t> frame_bytes_, frame_offsets_;
  Transport::Ticket ticket_ = kNothing;       // the exchange that is under way
  Sum sum_;                                   // the sum that is under way
  bool all_good_ = true;                      // all that has arrived for it
  bool broken_ = false;                       // the device failed
  float *left_ = nullptr, *right_ = nullptr;  // P and exact tensors; Q: where they are summed
  float *left_there_ = nullptr,
        *right_there_ = nullptr;  // and where they are made of values: the same, or in the backend's memory
  std::uint8_t *send_ = nullptr, *receive_ = nullptr;
  float* sample_ = nullptr;
  std::byte *here_ = nullptr, *there_ = nullptr;  // all of these are parts of
};

constexpr LowRank::Step LowRank::kSteps[] = {
    {0, &LowRank::announce},
    {0, &LowRank::project, &LowRank::under_way_now},
    {0, &LowRank::add_shards, &LowRank::under_way_now},
    {0, &LowRank::project_back, &LowRank::under_way_now},
    {0, &LowRank::add_shards, &LowRank::under_way_now},
    {0, &LowRank::rebuild, &LowRank::under_way_now},
};

std::unique_ptr<Exchange> LowRankRoute::exchange(Transport& transport, const CallBuffers& call, Workers& workers,
                                                 Trace* trace) const {
  return std::make_unique<LowRank>(transport, *this, call, workers, trace);
}

}  // namespace

AlgorithmEntry low_rank_algorithm() {
  return {
      .algorithm = Algorithm::low_rank,
      .name = "low_rank",
      .summary = "PowerSGD: P and Q are summed, every rank multiplies them",
      .chunk_elements = [](std::uint64_t setting, const Codec&,
                           int) { return std::max(kPieceElements, setting); },  // tensors stay whole
      .plan = [](const PartPlan& part, std::uint64_t chunk, int ranks) -> std::unique_ptr<RoutePlan> {
        return std::make_unique<LowRankRoute>(part, chunk, ranks);
      },
      .cost = nullptr,  // no other algorithm runs its codec; trials compare it with plain MPI
      .any_backend = true,
      .host_bodies = true,
      .whole_tensors = true,
  };
}

}  // namespace crimp
