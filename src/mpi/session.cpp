#include "mpi/session.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "backend/device_plugin.hpp"
#include "collective/decisions.hpp"
#include "collective/shared_models.hpp"
#include "collective/wire.hpp"
#include "core/float_environment.hpp"
#include "core/log.hpp"
#include "core/report.hpp"
#include "core/reserve.hpp"
#include "core/trace.hpp"
#include "mpi/arguments.hpp"
#include "mpi/at_exit.hpp"
#include "mpi/call_run.hpp"
#include "mpi/gain_sample.hpp"
#include "mpi/mpi_agreement.hpp"
#include "mpi/mpi_error.hpp"
#include "mpi/mpi_transport.hpp"
#include "mpi/mpi_wait.hpp"
#include "mpi/tensor_notes.hpp"
#include "mpi/wait_texts.hpp"
#include "mpi/world_ranks.hpp"

namespace crimp {
namespace {

// What the program's call would take without Crimp is timed, so it blocks, as that does. The ranks have met just before
// (collective/measure.hpp).
void sum_plain(MPI_Comm comm, float* buffer, std::uint64_t count) {
  check_mpi(PMPI_Allreduce(MPI_IN_PLACE, buffer, static_cast<int>(count), MPI_FLOAT, MPI_SUM, comm), "MPI_Allreduce");
}

// Of the call that makes a session; where there is none yet, as far as can be known.
bool on_device(const AllreduceRequest* request) {
  if (!request) return device_plugin() != nullptr;
  return pointer_attributes(request->send).on_device() || pointer_attributes(request->receive).on_device();
}

// Of a communicator's ranks the one that is first in MPI_COMM_WORLD, whose part of a report is read.
bool is_lowest(const std::vector<int>& world_ranks, int rank) {
  return world_ranks[static_cast<std::size_t>(rank)] == *std::min_element(world_ranks.begin(), world_ranks.end());
}

}  // namespace

std::unique_ptr<Session> Session::make(const Context& context, MPI_Comm comm, int rank, int size,
                                       const AllreduceRequest* request) {
  const std::string where = insist([&] {
    return "in " + (request ? call_text(*request) : "a call") + ", the first on " + name_of(comm) +
           ", for the others to come to it. " + absence_text(context.settings.min_count);
  });
  bool device = on_device(request);
  const bool usable = settings_agree(comm, rank, size, context.settings, context.legal, where, &device);
  auto made = insist([&] { return std::unique_ptr<Session>(new Session(context, comm, rank, size, usable, device)); });
  if (!usable) return made;
  made->open(request && request->numbers ? *request->numbers
                                         : insist([&] { return context.count(made->world_ranks_); }));
  return made;
}

Session::Session(const Context& context, MPI_Comm comm, int rank, int size, bool usable, bool device)
    : context_(context), comm_(comm), rank_(rank), size_(size), device_(device), usable_(usable),
      planner_(context.settings, context.codecs),
      calls_(context.settings.periods, [this](std::string_view prefix) { memory_.forget_unnamed(prefix); }),
      chooser_(context.settings.algorithm), world_ranks_(world_ranks(comm)), salt_(salt_of(world_ranks_, rank, false)),
      recorded_(context_, world_ranks_, rank), times_(context_, chooser_, is_lowest(world_ranks_, rank)),
      scratch_(context.workers, context.cuda_aware) {
  chooser_.share(&context.models, context.group_of(world_ranks_));
  chooser_.set_device(device_);
  chooser_.set_nodes([this] { return open_nodes(); });
  if (context.settings.residual == "8bit") memory_.keep_bytes(rank ^ static_cast<int>(salt_), &context.workers);
}

void Session::open(const CommunicatorNumbers& numbers) {
  if (context_.settings.residual == "8bit" && device_ && rank_ == 0)
    context_.report.note([] { log(LogLevel::info, "CRIMP_RESIDUAL=8bit: residuals in GPU memory stay float32"); });
  recorded_.open(comm_, size_, numbers.of_ranks);
  if (context_.trace) context_.report.note([&] { in_trace_ = context_.trace->communicator(ranks_text(world_ranks_)); });
  if (context_.settings.skew) arrivals_.emplace(comm_, rank_, size_, world_ranks_, context_.trace, in_trace_);
  if (!context_.state_dir.empty() && numbers.of_world) open_state(*numbers.of_world);
}

Session::~Session() = default;

void Session::note_in(Report& report) const {
  report.residuals(memory_.bytes());
  const ResidualStore::Loaded loaded = memory_.loaded();
  report.state({saved_, state_failures_.all + save_failures_.all, loaded.restored, loaded.unfit,
                loaded.waiting + dropped_, saving_s_});
  const auto counted = calls_.count();
  // Of what keeps no residuals nobody misses them.
  const bool asked = context_.codecs.codec() && keeps();
  report.sequence(
      {counted.tensors, asked ? counted.ambiguous : 0, counted.foreign, counted.withdrawn, counted.forgotten});
  if (control_ && !control_->classes().empty()) report.control(control_record());
  recorded_.note_in(report);
  if (arrivals_) arrivals_->note_in(report);
  times_.note_in(report);
}

ControlRecord Session::control_record() const {
  ControlRecord record;
  for (const auto& codec : context_.codecs.ladder()) record.ladder.push_back(codec->spec());
  for (const auto& [key, c] : control_->classes())
    record.classes.push_back({DelayControl::least_bytes(key), c.calls, c.level, c.calls_at});
  // All ranks decide alike.
  for (const auto& d : control_->decisions())
    if (is_lowest(world_ranks_, rank_))
      record.decisions.push_back({d.call, d.bytes, d.from, d.to, d.why, d.wait_us, d.target_us});
  record.changes = control_->changes();
  return record;
}

const Hierarchy* Session::open_nodes() {
  const auto nodes = insist([&] { return context_.nodes_of(world_ranks_); });
  if (!useful(nodes)) return nullptr;
  try {
    nodes_.emplace(context_.private_world, comm_, rank_, world_ranks_, nodes);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::out_of_memory) throw;
    return nullptr;
  }
  return &nodes_->get();
}

DelayControl* Session::delay_control() {
  const auto& ladder = context_.codecs.ladder();
  if (ladder.empty() || !context_.codecs.codec()) return nullptr;
  if (!control_) {
    DelayTarget target;
    DelayTarget::parse(context_.settings.delay_target, target);
    control_.emplace(static_cast<int>(ladder.size()), target, context_.settings.gain_floor);
  }
  return &*control_;
}

bool Session::allreduce(const AllreduceRequest& request, PassReason* why) {
  if (arrivals_) waited_s_ = arrivals_->meet(request, sequence_);
  summed_.clear();
  times_.forget_left();
  if (passes(request)) {
    *why = PassReason::slower;
    return false;
  }
  fill_reserve();
  const FloatEnvironment environment;
  const std::uint32_t before = sequence_;
  const std::uint64_t unsaved = unsaved_, since_load = since_load_;
  once_.clear();
  bool done;
  try {
    CallValues values(request, scratch_);
    if (!request.layout && follows_calls(request)) {
      done = allreduce_unnamed(request, values, why);
    } else {
      const bool unknown = !request.layout || request.layout->source == Layout::Source::unknown;
      const std::uint8_t flags = unknown ? flags_of_unfollowed(request, values)
                                 : request.layout->source == Layout::Source::negotiated
                                     ? flags_of_negotiated(request, values)
                                     : std::uint8_t{0};
      done = reduce(request, request.layout ? request.layout : insist([&] { return Layout::unknown(request.count); }),
                    flags, values, why);
    }
  } catch (const Error& e) {
    // The ranks may have asked the chooser for different calls, and counted other parts; all are here, and all begin
    // anew.
    if (e.code() == ErrorCode::call_differs) {
      chooser_.forget(), control_.reset();
      if (e.mpi_code() == 0) declined_.clear();  // else it is this rank alone that knows
      sequence_ = before + 1, unsaved_ = unsaved + 1, since_load_ = since_load + 1;
    }
    memory_.keep();  // what was encoded holds something
    throw;
  }
  times_.look();
  if (done) {
    for (const std::size_t s : once_) memory_.forget(request.layout->segments[s]);
    memory_.keep();
    keep_sums(false);
    return true;
  }
  memory_.drop_new();
  const bool apart = *why == PassReason::foreign || *why == PassReason::no_gradient;
  if (!apart) std::erase_if(summed_, [](const Summed& s) { return !s.wanted; });
  if (!summed_.empty() && request.left) *request.left = this;
  if (*why == PassReason::memory) scratch_.release();  // MPI needs some
  return false;
}

bool Session::allreduce_unnamed(const AllreduceRequest& request, CallValues& values, PassReason* why) {
  const auto sum = [this](std::span<std::int64_t> numbers) {
    MPI_Request summed;
    check_mpi(PMPI_Iallreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_INT64_T, MPI_SUM,
                              comm_, &summed),
              "MPI_Iallreduce");
    wait_for(summed, rank_, size_, [this] {
      return "on " + name_of(comm_) +
             " for the others to say which calls bring the same tensors again; all took part in the call itself. Likely a "
             "rank or its network is slow, stopped or dead";
    });
    stand_aside();
  };
  SketchedCall seen{{}, request.send, request.receive};
  bool unseen = false;  // this rank then sends the call through MPI, as all others will
  try {
    seen.sketch = values.sketch();
  } catch (const std::exception&) {
    unseen = true;
  }
  // Results that are votes are signs, which gradients are like.
  const Codec* const codec = context_.codecs.codec().get();
  const bool asked = !unseen && !(codec && codec->traits().votes);
  const PastSums::Answer goes_on = asked ? continues(request, values, seen.sketch.sample()) : PastSums::Answer::no;
  calls_.set_only_ends(!keeps());
  const CallSequence::Call call =
      insist([&] { return calls_.begin(request.count, request.dtype, seen, !request.shares && plain_sums()); });
  logged("what is known of calls", [&] { say_what_is_known(call); });
  recorded_.unnamed();
  std::uint8_t flags = 0;
  if (call.foreign || (unseen && call.layout->known())) flags = kFlagForeign;
  if (call.apart || (seen.sketch.few() && values.counts({"", 0, request.count}, true))) flags = kFlagNoGradient;
  // What looks like a known tensor all the same was none when it became known.
  const bool known = call.layout->known() && !call.foreign && !flags;
  if (goes_on == PastSums::Answer::yes) flags = known ? kFlagForeign : kFlagNoGradient;
  else if (goes_on == PastSums::Answer::perhaps && !known) flags = kFlagNoGradient;
  if (flags == kFlagNoGradient || goes_on == PastSums::Answer::yes) calls_.take_for_none();
  bool done;
  try {
    done = reduce(request, call.layout, flags, values, why);
  } catch (const Error& e) {
    const bool apart = e.code() == ErrorCode::call_differs || e.code() == ErrorCode::transport_failed;
    calls_.end(apart ? CallSequence::Outcome::failed : CallSequence::Outcome::tensor, sum);
    throw;
  } catch (...) {  // out of the program's error handler
    calls_.end(CallSequence::Outcome::failed, sum);
    throw;
  }
  const PassReason passed = done ? PassReason::count : *why;
  calls_.end(passed == PassReason::foreign       ? CallSequence::Outcome::foreign
             : passed == PassReason::no_gradient ? CallSequence::Outcome::apart
                                                 : CallSequence::Outcome::tensor,
             sum);
  return done;
}

void Session::say_what_it_took(const CallEnd& end) {
  const CallPlan& plan = *end.plan;
  context_.report.note([&] {
    if (plan.layout->source == Layout::Source::periodic) return;  // its ends: no rule's
    for (const std::size_t s : plan.excluded) {
      const Segment& segment = plan.layout->segments[s];
      context_.report.excluded(segment.key.empty() ? "(unnamed)" : segment.key, segment.count);
    }
  });
  static std::atomic<bool> told_no_momentum{false};
  if (plan.lost_momentum && rank_ == 0 && !told_no_momentum.exchange(true))
    context_.report.note([&] {
      log(LogLevel::warn,
          "calls whose tensors are not known have no momentum, which codec " + plan.lost_momentum->spec() +
              " has for all others: their results are plain sums. Name the tensors (crimp_allreduce, Horovod), or leave momentum to the optimizer (memory=none)");
    });
  for (std::size_t p = 0; p < end.chosen.choices.size(); ++p)
    if (const Choice& choice = end.chosen.choices[p];
        choice.instead && std::exchange(told_instead_, choice.why) != choice.why)
      say_what_carries(choice, plan.parts[p].query);
}

// Once a reason: the rows of a grid of ranks are all alike, and so are communicators one after another.
void Session::say_what_carries(const Choice& choice, const ChoiceQuery& query) const {
  static std::array<std::atomic<const char*>, 8> told{};  // Choice::why are literals
  const auto has_told = [&](const auto& one) { return one.load(std::memory_order_relaxed) == choice.why; };
  if (rank_ != 0 || std::any_of(told.begin(), told.end(), has_told)) return;
  int world = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &world);
  const bool has_first = std::find(world_ranks_.begin(), world_ranks_.end(), 0) != world_ranks_.end();
  if (!has_first && size_ < (world + 1) / 2) return;
  const char* none = nullptr;
  for (auto& one : told) {
    if (one.compare_exchange_strong(none, choice.why)) break;
    if (std::exchange(none, nullptr) == choice.why || &one == &told.back()) return;
  }
  logged("another algorithm", [&] {
    log(LogLevel::info, std::string(entry_of(choice.carriage.algorithm).name) + " carries calls of " + name_of(comm_) +
                            ", not the algorithm that was named: " + choice.why + " (" + std::to_string(query.count) +
                            " elements with " + query.codec->spec() + "; others may go by it)");
  });
}

bool Session::reduce(const AllreduceRequest& request, std::shared_ptr<const Layout> layout, std::uint8_t flags,
                     CallValues& values, PassReason* why) {
  const std::uint64_t measured = chooser_.measurements();
  CallEnd end;
  const auto say = [&] {
    if (end.plan) say_what_it_took(end);
    context_.report.measured(chooser_.measurements() - measured);
    if (end.chosen.learns || chooser_.measurements() != measured) context_.report.learning();
  };
  try {
    allreduce(request, std::move(layout), flags, values, end);
  } catch (...) {
    say();
    throw;
  }
  say();
  return !end.pass || pass(request, end, values, why);
}

void Session::allreduce(const AllreduceRequest& request, std::shared_ptr<const Layout> layout, std::uint8_t flags,
                        CallValues& values, CallEnd& end) {
  CallTimes times{Clock::now(), {}, waited_s_, in_trace_};

  const std::uint64_t bytes = request.count * size_of(request.dtype);
  DelayControl* const control = insist([&] { return delay_control(); });
  const int level = control ? recorded_.level(bytes, *control) : -1;
  const auto plan = insist([&] { return planner_.plan(request.dtype, request.count, layout, level, request.shares); });
  end = {times.begun, plan, {}, plan->pass};
  if (end.pass) return;

  drop_waiting();
  if (state_) save_in_turn();
  MpiTransport transport(comm_, rank_, size_);
  insist([&] {
    transport.begin_call(
        [&, call = sequence_ + 1] {
          return "in " + call_text(request) + ", compressed call " + std::to_string(call) + " on " + name_of(comm_) +
                 ",";
        },
        [this] { return absence_text(context_.settings.min_count); });
  });

  const bool declined = declined_.expected(request);
  // Handed on by one reference: with more, std::function would need memory.
  const auto choose_now = [&] {
    if (declined) return choose_headers_first(chooser_, *plan, size_);
    return choose(
        chooser_, *plan, transport, [&](float* buffer, std::uint64_t count) { sum_plain(comm_, buffer, count); },
        [&](const PlannedPart& part) { return values.time(part.plan, part.query.count); },
        [&values] { return values.kernels(); });
  };
  end.chosen = recorded_.decide(chooser_, *plan, size_, [&choose_now] { return choose_now(); });
  const ChosenParts& chosen = end.chosen;
  end.pass = chosen.pass;
  if (end.pass) return;
  times.chosen = Clock::now();

  // Since the plan was made this rank may not decide alone: what it cannot do becomes a flag in its headers, and what
  // it needs to send them it insists on. Where its values are changes no byte of what it sends.
  const std::uint32_t first = std::exchange(sequence_, sequence_ + static_cast<std::uint32_t>(plan->parts.size()));
  ++unsaved_, ++since_load_;
  const CallPlan& carried = plan->of(chosen.choices[0].carriage);
  BoundCall bound = bind({context_.settings, context_.workers, rank_, size_, memory_, calls_, salt_, idle_waits_},
                         carried, chosen, request, flags, first, values);
  static std::atomic<bool> told_memory{false};  // a program may make many communicators
  if (bound.failed && !told_memory.exchange(true))
    context_.report.note([&] {
      log(LogLevel::warn, (bound.failure.empty() ? "there is no memory" : bound.failure) +
                              "; this call, and others for which that is so, go through MPI on all ranks");
    });

  // They read what the device has widened, by other means than it.
  if (bound.widened && (plan->controlled || (rank_ == 0 && context_.report.history()))) try {
      values.backend().synchronize();
    } catch (const Error&) {  // known where it matters
    }
  std::optional<GainSample> sample;
  if (plan->controlled) {
    const DelayNote note = control->note(bytes, times.begun);
    for (CallBuffers& part : bound.parts) part.delay = note;
    sample.emplace(*plan, chosen, bound, values.backend().memory());
  }
  std::optional<TensorNotes> notes;
  if (rank_ == 0 && context_.report.history())
    notes.emplace(*context_.report.history(), carried, bound, values.backend().memory());
  CallOutcome outcome = run(context_, transport, chooser_, carried, chosen, bound, times);
  declined_.ended(request, outcome.pass.has_value());
  if (outcome.pass) {
    end.pass = outcome.pass;
    return;
  }
  if (sample) {
    const std::uint64_t changes = control->changes();
    control->ended(bytes, times.begun, outcome.delays, outcome.wait_s, sample->gain());
    if (control->changes() != changes) context_.report.learning();
  }
  memory_.settle();
  finish(context_, request, carried, bound, values, size_, outcome.failure);
  times_.ended(plan->layout, bytes, times.begun);
  if (notes && !outcome.failure) context_.report.note([&] { notes->ended(); });
  if (outcome.failure) throw Error(*outcome.failure);
}

void Session::set_algorithm(const char* name) {
  require_equal(comm_, rank_, size_, "what crimp_set_algorithm is given", quoted(name));
  check_algorithm("the argument of crimp_set_algorithm", name ? name : "");
  if (const AlgorithmEntry* const entry = find_algorithm(name))
    if (const std::string why = planner_.why_none_runs(*entry, std::max(2, size_)); !why.empty())
      if (rank_ == 0)
        logged("an algorithm that runs no codec", [&] {
          log(LogLevel::warn, "the argument of crimp_set_algorithm is '" + std::string(name) + "', " + why +
                                  ". Until there is one that it can run, calls go by their codec's first algorithm");
        });
  chooser_.force(name);
}

void Session::set_extents(const char* name, std::uint64_t rows, std::uint64_t cols) {
  require_equal(comm_, rank_, size_, "what crimp_set_extents is given",
                "(" + quoted(name) + ", " + std::to_string(rows) + ", " + std::to_string(cols) + ")");
  check_extents(name, rows, cols);
  memory_.set_extents(name, rows, cols);
  passes_.clear();
}

void Session::set_codec(const char* pattern, const char* spec) {
  require_equal(comm_, rank_, size_, "what crimp_set_codec is given",
                "(" + quoted(pattern) + ", " + quoted(spec) + ")");
  check_pattern(pattern);
  if (context_.settings.codec == "none") return check_codec(pattern, spec);  // whoever starts the job has the last word
  planner_.set_codec(pattern, spec);
  negotiated_.clear();
  passes_.clear();
}

void Session::set_learning_rate(double rate) {
  require_equal(comm_, rank_, size_, "the learning rate that crimp_set_learning_rate is given", text_of(rate));
  check_learning_rate(rate);
  memory_.set_learning_rate(rate);
}

}  // namespace crimp
