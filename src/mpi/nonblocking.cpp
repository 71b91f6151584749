#include "mpi/nonblocking.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "backend/device_access.hpp"
#include "backend/host_backend.hpp"
#include "codec/exact_feedback.hpp"
#include "collective/decisions.hpp"
#include "collective/one_shot.hpp"
#include "collective/replay.hpp"
#include "collective/wire.hpp"
#include "core/clock.hpp"
#include "core/convert.hpp"
#include "core/error.hpp"
#include "core/float_environment.hpp"
#include "core/log.hpp"
#include "core/report.hpp"
#include "core/reserve.hpp"
#include "core/settings.hpp"
#include "core/trace.hpp"
#include "mpi/call_notes.hpp"
#include "mpi/one_exchange.hpp"
#include "mpi/tensor_memory.hpp"
#include "mpi/wait_texts.hpp"
#include "mpi/world_ranks.hpp"

namespace crimp {
namespace {

// Of scratch that is kept between sums.
constexpr std::size_t kMostArenas = 8;
constexpr std::uint64_t kMostKept = std::uint64_t{256} << 20;

// x times 2^exponent, in the type that the sum is returned in.
template <class T>
void scale(T* x, std::uint64_t count, int exponent) {
  for (std::uint64_t i = 0; i < count; ++i) x[i] = std::ldexp(x[i], exponent);
}

// What the job that is repeated had decides, in place of this one's; a file may not say it.
const std::string& algorithm_of(const Context& context) {
  const bool repeats = context.replay && !context.replay->algorithm().empty();
  return repeats ? context.replay->algorithm() : context.settings.algorithm;
}

class Sums final : public NonblockingSums, public std::enable_shared_from_this<Sums> {
 public:
  Sums(const Context& context, MPI_Comm comm, int rank, int size)
      : context_(context), comm_(comm), name_(name_of(comm)), rank_(rank), size_(size),
        salt_(salt_of(world_ranks(comm), rank, true)), planner_(context_.settings, context_.codecs),
        chooses_(algorithm_of(context_) == "auto") {
    if (context_.trace)
      context_.report.note([&] { in_trace_ = context_.trace->communicator(ranks_text(world_ranks(comm))); });
  }

  std::unique_ptr<NonblockingSum> make_sum(const AllreduceRequest&, PassReason* why) override;
  std::unique_ptr<NonblockingSum> init(const AllreduceRequest&, PassReason* why) override;
  void freed() override { comm_.store(MPI_COMM_NULL, std::memory_order_release); }

  const Context& context() const { return context_; }
  MPI_Comm comm() const { return comm_.load(std::memory_order_acquire); }
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  std::uint32_t salt() const { return salt_; }
  std::uint32_t in_trace() const { return in_trace_; }

  Arena take_arena(std::uint64_t bytes);
  void give_back(Arena) noexcept;

 private:
  struct Carried {
    std::shared_ptr<const CallPlan> plan;
    std::shared_ptr<const RoutePlan> route;
  };
  // A route of null: the call is for MPI, for *why. The same on all ranks.
  Carried plan(const AllreduceRequest&, const std::shared_ptr<const Layout>&, PassReason* why);

  const Context context_;
  std::atomic<MPI_Comm> comm_;
  const std::string name_;  // at its first sum: it may be freed when that is said
  const int rank_, size_;
  const std::uint32_t salt_;
  Planner planner_;
  const bool chooses_;  // by bytes: no algorithm is named
  std::uint32_t in_trace_ = 0;
  std::uint32_t sequence_ = 0, persistent_ = 0;
  std::mutex mutex_;  // arenas_
  std::vector<Arena> arenas_;
};

constinit std::atomic<int> sums_outstanding{0};

class Sum final : public NonblockingSum {
 public:
  // number: among the sums of the communicator; a persistent one has others.
  Sum(std::shared_ptr<Sums> of, const AllreduceRequest& request, std::shared_ptr<const CallPlan> plan,
      std::shared_ptr<const RoutePlan> route, std::uint32_t number)
      : of_(std::move(of)), plan_(std::move(plan)), route_(std::move(route)), from_(pointer_attributes(request.send)),
        to_(pointer_attributes(request.receive)), send_(request.send), receive_(request.receive), count_(request.count),
        own_(request.own()), dtype_(request.dtype), synchronize_all_(request.synchronize_all),
        transport_(of_->comm(), of_->rank(), of_->size()), host_(of_->context().workers), number_(number) {
    arena_ = of_->take_arena(route_->bytes({}).together);
    const bool copies = from_.on_device() || to_.on_device();
    // Pages that nobody needs are never touched.
    values_ = of_->take_arena(Arena::padded(count_ * sizeof(float)) + (copies ? Arena::padded(count_ * element()) : 0));
    sums_outstanding.fetch_add(1, std::memory_order_relaxed);
  }
  ~Sum() override {
    sums_outstanding.fetch_sub(1, std::memory_order_relaxed);
    exchange_.reset();
    of_->give_back(std::move(arena_));
    of_->give_back(std::move(values_));
  }

  // Of a persistent sum; `number`: how many the communicator has had before.
  bool init(std::uint32_t number) {
    next_sequence_ = 0x9e3779b9 * (number + 1);
    const std::uint64_t bytes = frame_bytes(*route_);
    arena_.reset();
    const void* const mine = arena_.take(bytes);
    return transport_.init(mine, arena_.take(static_cast<std::uint64_t>(of_->size()) * bytes), bytes);
  }
  void start() override;
  void started() noexcept override { ++*next_sequence_; }
  void finish() override;
  MPI_Request request() const override { return transport_.request(); }
  void look(StallWatch& watch, const char* function) const noexcept override;
  MPI_Comm comm() const override { return of_->comm(); }

 private:
  std::size_t element() const { return size_of(dtype_); }
  void look(const void* values);
  void bind(const void* values);
  void find_memory();
  bool speaks() const;
  float* sums() { return widened_ ? widened_ + own_.begin : buffers_.out.floats(); }
  void to_caller(CollectiveResult&);
  void note(const CollectiveResult&, Clock::time_point completed, Clock::time_point ended);

  const std::shared_ptr<Sums> of_;
  const std::shared_ptr<const CallPlan> plan_;
  const std::shared_ptr<const RoutePlan> route_;
  const PointerAttributes from_, to_;
  const void* send_;
  void* receive_;
  const std::uint64_t count_;
  const Shares::Run own_;  // what this rank receives
  const Dtype dtype_;
  const bool synchronize_all_;
  OneExchange transport_;
  HostBackend host_;
  Arena arena_, values_;  // values_: float32 copies, and what lies on a device
  CallBuffers buffers_;
  int unit_ = 0;         // power of two in which this rank's values are encoded
  TensorMemory memory_;  // of a persistent sum
  std::vector<Residual*> residuals_;
  float* widened_ = nullptr;
  void* result_ = nullptr;  // receive_, or on the host what goes there
  std::unique_ptr<Exchange> exchange_;
  const std::uint32_t number_;
  // Of a persistent sum, because these start in any order: numbers that are neither of other such sums nor small.
  std::optional<std::uint32_t> next_sequence_;
  Clock::time_point begun_, started_;  // start() from, to
};

// A rank's own values: can the codec carry them, and in which unit?
void Sum::look(const void* values) {
  std::vector<double> largest(plan_->scanned.size());
  host_.magnitudes(dtype_, values, plan_->scanned, largest.data());
  double most = 0, least = std::numeric_limits<double>::infinity();
  for (const double l : largest) {
    if (!std::isfinite(l)) {
      buffers_.flags |= kFlagExact;
      return;
    }
    most = std::max(most, l);
    if (l > 0) least = std::min(least, l);
  }
  buffers_.zeros = most == 0 && !route_->part.remembers;
  const Codec::Traits& traits = route_->part.codec->traits();
  const double small = std::max(static_cast<double>(traits.min_magnitude), dtype_ == Dtype::f64 ? 0x1p-100 : 0.0);
  if (most > static_cast<double>(traits.max_magnitude) || least < small) unit_ = std::ilogb(most) + 1;
  buffers_.exponent = traits.votes ? 0 : unit_;  // votes have no size
}

void Sum::find_memory() {
  if (!route_->part.remembers) return;
  buffers_.residuals.clear(), buffers_.turns.clear();
  memory_.begin_call();
  residuals_ = memory_.of_values(*route_->part.layout, *route_->part.codec, host_memory());
  memory_.keep();
  if (unit_) return;  // in another unit they would be nothing
  for (const Residual* r : residuals_) {
    buffers_.residuals.push_back(r ? r->values : nullptr);
    buffers_.turns.push_back(r ? r->turns : 0);
  }
}

void Sum::bind(const void* values) {
  if (dtype_ != Dtype::f32 || unit_) {
    widened_ = reinterpret_cast<float*>(values_.take(count_ * sizeof(float)));
    if (buffers_.flags == 0 && dtype_ == Dtype::f64 && unit_) {
      const auto* const x = static_cast<const double*>(values);
      for (std::uint64_t i = 0; i < count_; ++i) widened_[i] = static_cast<float>(std::ldexp(x[i], -unit_));
    } else if (buffers_.flags == 0) {
      host_.widen(dtype_, values, widened_, count_);
      if (unit_) scale(widened_, count_, -unit_);
    }
  }
  buffers_.in = widened_ ? widened_ : static_cast<const float*>(values);
  buffers_.out = widened_ ? widened_ : static_cast<float*>(result_);
  if (!widened_) buffers_.out_begin = own_.begin;
  buffers_.read_again = widened_;
}

void Sum::start() {
  fill_reserve();
  const FloatEnvironment environment;
  begun_ = Clock::now();
  buffers_ = {};
  widened_ = nullptr;
  exchange_.reset();
  arena_.reset();
  values_.reset();
  buffers_.arena = &arena_;
  buffers_.sequence = next_sequence_ ? *next_sequence_ : number_;
  buffers_.salt = of_->salt();
  const void* values = send_;
  result_ = receive_;
  try {
    host_.prepare(arena_);
    if (from_.on_device() || to_.on_device()) {
      result_ = values_.take(count_ * element());
      if (from_.on_device()) {
        const DeviceAccess at(from_);
        at.synchronize(synchronize_all_);
        at.read(result_, send_, count_ * element());
        values = result_;
      }
      // What runs there still may use the buffer that the result goes to.
      if (to_.on_device()) DeviceAccess(to_).synchronize(synchronize_all_);
    }
    insist([&] {
      buffers_.flags = 0, buffers_.exponent = unit_ = 0, buffers_.zeros = false;
      look(values);
      find_memory();
    });
    bind(values);
  } catch (const std::exception& e) {
    buffers_.flags |= kFlagNoMemory;
    static std::atomic<bool> told{false};  // the program learns it of each sum
    if (!told.exchange(true)) logged("a sum that does not block", [&] { log(LogLevel::error, e.what()); });
  }
  insist([&] {
    arena_.reset();
    exchange_ = route_->exchange(transport_, buffers_, of_->context().workers, of_->context().trace);
  });
  exchange_->start();
  started_ = Clock::now();
}

void Sum::look(StallWatch& watch, const char* function) const noexcept {
  watch.look(of_->rank(), of_->size(), [&] {
    return std::string("in ") + function + ", for a sum of " + std::to_string(count_) + " x " + name_of(dtype_) +
           " on " + of_->name() + ". " + absence_text(of_->context().settings.min_count);
  });
}

// For all ranks that receive something.
bool Sum::speaks() const {
  const Shares* const shares = plan_->shares.get();
  int first = 0;
  while (shares && first < shares->ranks() && shares->of(first).count() == 0) ++first;
  return of_->rank() == first;
}

void Sum::to_caller(CollectiveResult& result) {
  if (result.flags & kFlagExact) {
    static std::atomic<bool> told{false};
    if (!told.exchange(true) && speaks())
      of_->context().report.note([&] {
        log(LogLevel::warn,
            "a rank's values have NaN or Inf in a sum that does not block (MPI_Iallreduce or a kin of it): all of its result is NaN. CRIMP_PROGRESS=thread sums such calls exactly, but for persistent ones");
      });
    if (dtype_ != Dtype::f32 && !widened_)
      throw Error(ErrorCode::out_of_memory, "a sum that does not block had no room for its values");
    std::fill_n(sums(), own_.count(), std::numeric_limits<float>::quiet_NaN());
    result.exponent = 0;
  }
  const bool wide = dtype_ == Dtype::f64;
  if (result.exponent && !wide) scale(sums(), own_.count(), result.exponent);
  if (widened_) host_.narrow(dtype_, sums(), result_, own_.count());
  if (result.exponent && wide) scale(static_cast<double*>(result_), own_.count(), result.exponent);
  const std::size_t bytes = own_.count() * element();
  if (to_.on_device()) DeviceAccess(to_).write(receive_, result_, bytes);
  else if (result_ != receive_) std::memcpy(receive_, result_, bytes);
}

void Sum::finish() {
  const FloatEnvironment environment;
  const auto completed = Clock::now();
  CollectiveResult result = exchange_->finish();
  if (result.flags & kFlagNoMemory)
    throw Error(ErrorCode::out_of_memory,
                "a rank had no memory for its part of a sum that does not block; the result of this call is undefined");
  if (result.error) throw Error(*result.error);
  if (own_.count()) to_caller(result);
  for (std::size_t s = 0; s < buffers_.residuals.size() && !result.flags; ++s)
    if (Residual* const r = residuals_[s]; r && r->turns < ~std::uint32_t{0}) ++r->turns;
  note(result, completed, Clock::now());
}

// Between started_ and `completed` the program computes or waits in MPI, with other sums under way: the trace alone has
// that.
void Sum::note(const CollectiveResult& result, Clock::time_point completed, Clock::time_point ended) {
  const Context& context = of_->context();
  if (from_.on_device() || to_.on_device())
    context.report.note([&] { context.report.on_device("sums that do not block are encoded on the host"); });
  CallRecord record = record_of(route_->part, route_->name, result, of_->rank(), completed, ended);
  record.total_s += seconds(started_ - begun_);
  record.layout = name_of(plan_->layout->source);
  record.why = "nonblocking";
  note_call(context,
            {.communicator = of_->in_trace(),
             .call = buffers_.sequence,
             .elements = count_,
             .bytes = record.bytes,
             .record = record,
             .blocks = false},
            *plan_->layout, dtype_, begun_, ended);
  note_time(context, {.encode_s = record.encode_s, .first = false}, begun_, started_);
  record.encode_s = 0;
  note_time(context, record, completed, ended);
}

Arena Sums::take_arena(std::uint64_t bytes) {
  Arena arena;
  {
    std::lock_guard lock(mutex_);
    const auto fits = std::find_if(arenas_.begin(), arenas_.end(), [&](const Arena& a) { return a.bytes() >= bytes; });
    if (fits != arenas_.end()) {
      arena = std::move(*fits);
      arenas_.erase(fits);
    }
  }
  try {
    arena.reserve(bytes);
  } catch (const Error&) {
    {
      std::lock_guard lock(mutex_);
      arenas_.clear();
    }
    arena.reserve(bytes);
  }
  return arena;
}

void Sums::give_back(Arena arena) noexcept {
  std::lock_guard lock(mutex_);
  std::uint64_t kept = arena.bytes();
  for (const Arena& a : arenas_) kept += a.bytes();
  if (arena.bytes() == 0 || kept > kMostKept || arenas_.size() >= kMostArenas) return;
  try {
    arenas_.push_back(std::move(arena));
  } catch (const std::bad_alloc&) {  // then it goes
  }
}

Sums::Carried Sums::plan(const AllreduceRequest& request, const std::shared_ptr<const Layout>& layout,
                         PassReason* why) {
  Carried carried{insist([&] { return planner_.plan(request.dtype, request.count, layout, -1, request.shares); }),
                  nullptr};
  const CallPlan& plan = *carried.plan;
  if (plan.pass) *why = *plan.pass;
  else if (plan.parts.size() != 1 || !plan.exact.empty() || plan.clips ||
           plan.parts[0].plan.codec->traits().whole_tensors)
    *why = PassReason::nonblocking;
  else {
    constexpr Carriage kOneShot{.algorithm = Algorithm::one_shot};
    auto route = insist([&] { return plan.parts[0].route(kOneShot, nullptr, size_); });
    if (route->part.declined && give_reserve())
      route = insist([&] { return plan.parts[0].route(kOneShot, nullptr, size_); });
    if (route->part.declined) static_cast<void>(route->bytes({}));  // throws: the others have frames of another length
    const OneShotTraffic bytes = one_shot_traffic(*route);
    const bool fewer = bytes.moved < bytes.plain;
    if (chooses_ ? fewer : bytes.frames <= 4 * kReceiveBudget) carried.route = std::move(route);
    else *why = PassReason::nonblocking;
  }
  return carried;
}

std::unique_ptr<NonblockingSum> Sums::make_sum(const AllreduceRequest& request, PassReason* why) {
  // Before anything that can fail: else the next sum would meet this one of the other ranks, and be taken for it.
  const std::uint32_t number = sequence_++;
  fill_reserve();
  Carried carried =
      plan(request, request.layout ? request.layout : insist([&] { return Layout::unknown(request.count); }), why);
  if (!carried.route) {
    --sequence_;  // as on all ranks
    return nullptr;
  }
  return insist(
      [&] { return std::make_unique<Sum>(shared_from_this(), request, carried.plan, carried.route, number); });
}

std::unique_ptr<NonblockingSum> Sums::init(const AllreduceRequest& request, PassReason* why) {
  const std::uint32_t number = persistent_++;  // first, as there
  fill_reserve();
  const auto layout = insist([&] {
    return Layout::make(Layout::Source::periodic, {{"persistent " + std::to_string(number), 0, request.count}});
  });
  Carried carried = plan(request, layout, why);
  if (!carried.route) {
    --persistent_;
    return nullptr;
  }
  auto sum = insist([&] { return std::make_unique<Sum>(shared_from_this(), request, carried.plan, carried.route, 0); });
  if (sum->init(number)) return sum;
  *why = PassReason::nonblocking;
  return nullptr;
}

}  // namespace

int NonblockingSums::outstanding() { return sums_outstanding.load(std::memory_order_relaxed); }

std::shared_ptr<NonblockingSums> NonblockingSums::make(const Context& context, MPI_Comm comm, int rank, int size) {
  return std::make_shared<Sums>(context, comm, rank, size);
}

}  // namespace crimp
