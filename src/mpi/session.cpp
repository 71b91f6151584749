#include "mpi/session.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "collective/algorithms.hpp"
#include "mpi/mpi_agreement.hpp"
#include "mpi/mpi_transport.hpp"
#include "mpi/mpi_wait.hpp"
#include "collective/pipeline.hpp"
#include "mpi/runtime.hpp"
#include "core/digest.hpp"
#include "core/float_environment.hpp"
#include "core/log.hpp"
#include "collective/collective.hpp"

namespace crimp {
namespace {

void sum_plain(MPI_Comm comm, float* buffer, std::uint64_t count) {
  check_mpi(PMPI_Allreduce(MPI_IN_PLACE, buffer, static_cast<int>(count), MPI_FLOAT, MPI_SUM, comm), "MPI_Allreduce");
}

}  // namespace

Session::Session(Runtime& runtime, MPI_Comm comm, int rank, int size, const AllreduceRequest* request)
    : runtime_(runtime), comm_(comm), rank_(rank), size_(size),
      usable_(settings_agree(comm, rank, size, runtime.settings(), runtime.legal(),
                             "in " + (request ? call_text(*request) : "a call") + ", the first on " + name_of(comm) +
                                 ", for the others to come to it. " + absence_text(runtime.settings().min_count))),
      calls_(runtime.settings().periods, size, [this](std::string_view prefix) { forget_unnamed(prefix); }),
      chooser_(runtime.settings().algorithm), scratch_(runtime.workers(), runtime.cuda_aware()) {
  world_ranks_ = Runtime::world_ranks(comm);
  const auto* const ranks = reinterpret_cast<const char*>(world_ranks_.data());
  chooser_.share(&runtime.models, digest(std::string_view(ranks, world_ranks_.size() * sizeof(int))));
  chooser_.set_nodes([this] { return open_nodes(); });
}

Session::~Session() = default;

void Session::note_in(Report& report) const {
  report.residuals(residuals_.bytes());
  const auto counted = calls_.count();
  report.sequence({counted.tensors, counted.ambiguous, counted.foreign, counted.withdrawn});
}

const Hierarchy* Session::open_nodes() {
  const auto nodes = runtime_.nodes_of(world_ranks_);
  if (!useful(nodes)) return nullptr;
  try {
    nodes_ = std::make_unique<MpiHierarchy>(runtime_.private_world, comm_, rank_, world_ranks_, nodes);
  } catch (const Error& e) {
    if (e.code() != ErrorCode::out_of_memory) throw;
    return nullptr;
  }
  return &nodes_->get();
}

void Session::forget_unnamed(std::string_view prefix) {
  residuals_.forget(Layout::Source::periodic, prefix);
  std::erase_if(largest_, [&](const auto& of) { return of.first.source == Layout::Source::periodic && of.first.name.starts_with(prefix); });
}

bool Session::follows_calls() const { return runtime_.settings().error_feedback && runtime_.codec() && runtime_.codec()->memory().kept(); }

// Once a communicator for what is good and once for what is not, and not for every communicator of a program that makes many.
void Session::say_what_is_known(const Layout& layout) {
  if (told_ == 3) return;
  const auto say = [&](int what, const std::string& text) {
    if (told_ & what) return;
    told_ |= what;
    static std::atomic<int> lines{0};
    if (rank_ == 0 && lines.fetch_add(1, std::memory_order_relaxed) < 8) log(LogLevel::info, text);
  };
  const std::string calls = "the calls with " + std::to_string(layout.segments[0].count) + " elements on a communicator of " + std::to_string(size_) + " ranks ";
  if (layout.known()) return say(1, calls + "bring the same tensors again, as their values show: from now on these have residuals");
  const auto counted = calls_.count();
  if (counted.withdrawn) say(2, calls + "are not the tensors that they were taken for: until they are told apart again they have no residuals");
  else if (counted.ambiguous)
    say(2, "after " + std::to_string(CallSequence::kManyCalls) + " of them, " + calls + "cannot be told apart as tensors: they have no residuals and use " +
               "CRIMP_UNKNOWN_LAYOUT=" + runtime_.settings().unknown_layout + ". crimp_allreduce() names tensors");
}

void Session::begin_call(MpiTransport& transport, const AllreduceRequest& request) {
  transport.begin_call(
      [this, &request] { return "in " + call_text(request) + ", compressed call " + std::to_string(begun_) + " on " + name_of(comm_) + ","; },
      [this] { return absence_text(runtime_.settings().min_count); });
}

bool Session::choose_codecs(const Layout& layout, std::vector<const Codec*>& codecs, Pass* why) {
  bool any = false;
  for (const Segment& segment : layout.segments) {
    const bool sums = segment.use == Segment::Use::sum;
    const Codec* codec = sums ? codec_of(layout, segment) : nullptr;
    if (sums && !codec) runtime_.report.excluded(segment.key.empty() ? "(unnamed)" : segment.key, segment.count);
    // A tensor without a name has nothing that a residual could belong to.
    // Votes stay votes: of the values themselves, as with CRIMP_ERROR_FEEDBACK=0.
    if (codec && codec->memory().kept() && runtime_.settings().error_feedback && segment.key.empty() && !(codec->traits().votes && !layout.known())) {
      if (momentum_of(codec)) tell_no_momentum(*codec);
      codec = runtime_.unknown_layout_codec().get();
      if (!codec && !layout.known()) {
        *why = Pass::unknown_layout;
        return false;
      }
    }
    codecs.push_back(codec);
    any = any || codec;
  }
  if (!any) *why = Pass::rules;  // or all are unnamed and CRIMP_UNKNOWN_LAYOUT=none
  return any;
}

bool Session::choose_algorithms(const CallParts& parts, Transport& transport, CallValues& values, Pass* why) {
  double predicted = 0, plain = 0;
  bool trial = false, early = false;
  for (const auto& part : parts) {
    Choice choice;
    const std::uint64_t measured = chooser_.measurements();
    try {
      choice = chooser_.choose(
          transport, part->query, [&](float* buffer, std::uint64_t count) { sum_plain(comm_, buffer, count); }, [&] { return values.time(*part); }, part != parts.front());
    } catch (const Error& e) {  // of memory for measuring all ranks say so alike, and nothing of the call has been sent
      if (e.code() != ErrorCode::out_of_memory) throw;
      *why = Pass::memory;
      return false;
    }
    runtime_.report.measured(chooser_.measurements() - measured);
    early = early || choice.early;
    part->take(choice, nodes_ ? nodes_->get() : Hierarchy{}, size_);
    predicted += choice.predicted_s;
    plain += choice.plain_s;
    trial = trial || choice.trial;
  }
  *why = early ? Pass::early : Pass::slower;
  return !early && (trial || predicted == 0 || predicted < plain);
}

std::uint8_t Session::range_flags(const AllreduceRequest& request, const Layout& layout, const std::vector<const Codec*>& codecs, const CallParts& parts,
                                  CallValues& values, std::vector<double>* largest_of) {
  std::vector<Group> groups;
  std::vector<const CallPart*> part_of;
  for (std::size_t s = 0; s < codecs.size(); ++s) {
    if (!codecs[s]) continue;
    groups.push_back({layout.segments[s].offset, layout.segments[s].count});
    part_of.push_back(std::find_if(parts.begin(), parts.end(), [&](const auto& p) { return p->call.codec == codecs[s]; })->get());
  }
  std::vector<double> largest(groups.size());
  values.backend().magnitudes(request.dtype, values.send(), groups, largest.data());
  std::uint8_t flags = 0;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const CollectiveCall& call = part_of[g]->call;
    if (layout.source == Layout::Source::periodic) {
      const auto proportion = calls_.magnitude(largest[g]);
      if (proportion == CallSequence::Proportion::foreign) flags |= kFlagForeign;
      if (proportion == CallSequence::Proportion::outlier) flags |= kFlagOutlier;
    }
    const Codec::Traits& traits = call.codec->traits();
    // Below 2^-100 a float64 loses bits as a float32.
    const double least = std::max(static_cast<double>(traits.min_magnitude), request.dtype == Dtype::f64 ? 0x1p-100 : 0.0);
    const bool too_small = largest[g] > 0 && largest[g] < least;
    // Where sums are encoded they must stay in range, too, however the values are rounded first.
    const double room = entry_of(call.algorithm).sums_encoded ? (1 - 0x1p-9) / size_ : 1;
    if (!(largest[g] <= room * static_cast<double>(traits.max_magnitude)) || too_small) flags |= kFlagExact;
  }
  largest_of->assign(codecs.size(), 0.0);
  for (std::size_t s = 0, g = 0; s < codecs.size(); ++s)
    if (codecs[s]) (*largest_of)[s] = largest[g++];
  return flags;
}

// An outlier leaves residuals in its own size, which come back for many calls. Only this rank's values decide: what it encodes is its own affair.
void Session::drop_echoes(const CallParts& parts, const Layout& layout, const std::vector<double>& largest, Backend& backend) {
  // Where values tell whose a call is, what waits from far larger ones is nobody's loss.
  const double setting = runtime_.settings().residual_jump;
  const double jump = layout.source == Layout::Source::periodic && setting == 0 ? CallSequence::kProportion : setting;
  for (std::size_t s = 0; s < layout.segments.size(); ++s) {
    const Segment& segment = layout.segments[s];
    if (segment.key.empty() || !(largest[s] > 0)) continue;
    double& before = largest_[{layout.source, false, segment.key}];
    const bool fell = before > jump * largest[s];
    before = largest[s];
    if (!fell) continue;
    const auto drop = [&](float* residual, std::uint64_t count, double most) {
      std::vector<float> here(count);
      backend.memory().read(here.data(), residual, count * sizeof(float));
      for (float& r : here)
        if (!(std::abs(static_cast<double>(r)) <= most)) r = 0;
      backend.memory().write(residual, here.data(), count * sizeof(float));
    };
    for (const auto& part : parts) {
      if (part->layout.segments[s].use == Segment::Use::skip) continue;
      const auto planes = static_cast<std::uint64_t>(part->call.codec->memory().planes());
      if (!part->call.residuals.empty()) drop(part->call.residuals[s], segment.count * planes, largest[s]);
      if (!part->call.owner_residuals.empty()) drop(part->call.owner_residuals[s], segment.count, largest[s] * size_);
    }
  }
}

void Session::find_extents(const CallParts& parts) {
  // Keys that nobody asks for any more.
  if (extents_.size() > 4 * CallSequence::kLongestPeriod) std::erase_if(extents_, [](const auto& entry) { return !entry.second.given; });
  for (const auto& part : parts) {
    if (!part->call.codec->traits().whole_tensors) continue;
    for (const Segment& segment : part->layout.segments)
      part->call.extents.push_back(segment.use == Segment::Use::skip || segment.key.empty() ? nullptr : &extents_[{segment.key, segment.count}]);
  }
}

void Session::find_memories(const CallParts& parts, const Layout& layout, Allocator& memory, bool absent) {
  const auto find = [&](const CallPart& part, bool owner, auto&& shape) {
    std::vector<Residual*> all;
    for (const Segment& segment : part.layout.segments)
      all.push_back(segment.use == Segment::Use::skip ? nullptr : &find_residual({layout.source, owner, segment.key}, shape(segment), memory));
    return all;
  };
  const auto values_of = [](const std::vector<Residual*>& kept) {
    std::vector<float*> all;
    for (const Residual* r : kept) all.push_back(r ? r->values : nullptr);
    return all;
  };
  for (const auto& part : parts) {
    const Codec& codec = *part->call.codec;
    if (codec.memory().kept() && layout.known() && (!absent || part->call.hierarchy) && part->encodes()) {
      part->kept = find(*part, false, [&](const Segment& segment) {
        ResidualShape shape = ResidualShape::of(codec, segment.count);
        if (const auto known = extents_.find({segment.key, segment.count}); codec.traits().whole_tensors && known != extents_.end())
          shape.elements = powersgd::memory_elements(segment.count, codec, &known->second);
        return shape;
      });
      part->call.residuals = values_of(part->kept);
      for (const Residual* r : part->kept) part->call.turns.push_back(r ? r->turns : 0);
    }
    // As long as the tensor, though a rank owns a share of it: shares move when tensors are merged otherwise. Untouched pages cost nothing.
    if (layout.known() && part->owner_memory())
      part->call.owner_residuals = values_of(find(*part, true, [&](const Segment& segment) {
        return ResidualShape{segment.count, MemoryKind::residual, segment.count + codec.state_elements(segment.count), &codec};
      }));
  }
}

Session::Ready Session::make_ready(const AllreduceRequest& request, const Layout& layout, bool foreign, const std::vector<const Codec*>& codecs, const CallParts& parts,
                                   CallValues& values) {
  Ready ready;
  std::size_t host_bodies = 0;
  bool clips = false;
  for (std::size_t s = 0; s < codecs.size(); ++s)
    if (!codecs[s] && layout.segments[s].use == Segment::Use::sum)
      ready.exact.push_back({&layout.segments[s], layout.segments[s].key.empty() ? nullptr : momentum_of(nullptr)});
  const std::size_t excluded = count_of(ready.exact) * size_of(request.dtype);
  for (const auto& part : parts) {
    clips = clips || (momentum_of(part->call.codec) && part->call.codec->memory().clip > 0.0f);
  }
  try {
    find_extents(parts);
    for (const auto& part : parts) host_bodies += part->host_bodies() ? arena_bytes(part->call, size_) : 0;
    values.enter(parts, Arena::padded(excluded) + host_bodies);
    Backend& backend = values.backend();
    std::vector<double> largest;
    ready.flags = range_flags(request, layout, codecs, parts, values, &largest);
    if (foreign) ready.flags |= kFlagForeign;
    // A rank that joined early (hvd.join) gives zeros in place of tensors; its residuals stay where they are.
    const bool absent = layout.source == Layout::Source::negotiated && std::all_of(largest.begin(), largest.end(), [](double l) { return l == 0; });
    residuals_.begin_call();
    if (runtime_.settings().error_feedback) find_memories(parts, layout, backend.memory(), absent);
    for (ExactTensor& t : ready.exact)
      if (t.momentum) t.memory = find_residual({layout.source, false, t.segment->key}, ResidualShape::of(*t.momentum, t.segment->count), host_memory()).values;
    if ((runtime_.settings().residual_jump > 0 || layout.source == Layout::Source::periodic) && !ready.flags) drop_echoes(parts, layout, largest, backend);

    const std::uint64_t widened = request.dtype == Dtype::f32 && !clips ? 0 : Arena::padded(request.count * sizeof(float));
    std::uint64_t bytes = values.direct() ? 0 : widened + Arena::padded(excluded), value_bytes = widened;
    for (const auto& part : parts) {
      CollectiveCall& call = part->call;
      if (values.direct()) call.backend = &backend, call.values = &values.values();
      const bool elsewhere = values.direct() && part->host_bodies();
      bytes += elsewhere ? 0 : arena_bytes(call, size_);
      if (!values.direct()) continue;
      value_bytes += crimp::value_bytes(call);
      if (elsewhere) continue;
      Cut cut;
      for (std::uint64_t i = 0; i < Pipeline::chunks_of(call) && (i == 0 || part->layout.segments.size() > 1); ++i) {
        cut.make(call, {}, 0, Pipeline::chunk_begin(call, i), Pipeline::chunk_end(call, i));
        backend.prepare(*call.codec, cut.shape, size_);
      }
    }
    values.bodies().reserve(bytes);
    if (values.direct()) values.values().reserve(value_bytes);
    backend.prepare(values.bodies());
    if (widened) ready.widened = reinterpret_cast<float*>(values.values().take(widened));
    if (excluded) ready.packed = {reinterpret_cast<char*>(values.packed().take(excluded)), excluded};
    if (widened && !ready.flags) backend.widen(request.dtype, values.send(), ready.widened, request.count);
    if (clips && !ready.flags) clip(parts, ready.widened);
    ready.arena = &values.bodies();
  } catch (const std::exception& e) {
    ready.flags |= kFlagNoMemory;
    for (const auto& part : parts) {  // they may be fewer than the segments
      CollectiveCall& call = part->call;
      call.residuals.clear(), call.owner_residuals.clear(), call.turns.clear(), call.extents.clear();
    }
    if (!std::exchange(told_memory_, true))
      log(LogLevel::warn, std::string(e.what()) + "; this call, and others for which that is so, go through MPI on all ranks");
  }
  return ready;
}

bool Session::allreduce(const AllreduceRequest& request, Pass* why) {
  bool done;
  try {
    done = compress(request, why);
  } catch (const Error& e) {
    // The ranks may have asked the chooser for different calls; all are here, and all begin anew.
    if (e.code() == ErrorCode::call_differs) chooser_.forget();
    throw;
  }
  if (done) {
    residuals_.keep();
    return true;
  }
  if (*why == Pass::memory) {  // MPI needs some
    residuals_.drop_new();
    scratch_.release();
  }
  return false;
}

bool Session::compress(const AllreduceRequest& request, Pass* why) {
  CallValues values(request, scratch_);
  if (request.layout || !follows_calls()) return compress(request, request.layout ? *request.layout : Layout::unknown(request.count), false, values, why);

  const auto sum = [this](std::span<std::int64_t> numbers) {
    check_mpi(PMPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_INT64_T, MPI_SUM, comm_), "MPI_Allreduce");
  };
  CallSequence::Values seen{{}, request.send, request.receive};
  bool unseen = false;  // this rank then sends the call through MPI, as all others will
  try {
    seen.sketch = values.sketch();
  } catch (const Error&) {
    unseen = true;
  }
  const CallSequence::Call call = calls_.begin(request.count, request.dtype, seen);
  say_what_is_known(call.layout);
  bool done;
  try {
    done = compress(request, call.layout, call.foreign || (unseen && call.layout.known()), values, why);
  } catch (const Error& e) {
    const bool apart = e.code() == ErrorCode::call_differs || e.code() == ErrorCode::transport_failed;
    calls_.end(apart ? CallSequence::Outcome::failed : CallSequence::Outcome::tensor, sum);
    throw;
  } catch (...) {  // out of the program's error handler
    calls_.end(CallSequence::Outcome::failed, sum);
    throw;
  }
  calls_.end(!done && *why == Pass::foreign ? CallSequence::Outcome::foreign : CallSequence::Outcome::tensor, sum);
  return done;
}

bool Session::compress(const AllreduceRequest& request, const Layout& layout, bool foreign, CallValues& values, Pass* why) {
  const auto begin = Clock::now();
  const FloatEnvironment environment;
  std::vector<const Codec*> codecs;
  if (!choose_codecs(layout, codecs, why)) {
    if (*why != Pass::rules) return false;
    std::vector<const Codec*> momenta;
    for (const Segment& segment : layout.segments) momenta.push_back(segment.key.empty() || segment.use == Segment::Use::skip ? nullptr : momentum_of(nullptr));
    return sum_with_momentum(request, layout, momenta, why);
  }

  const CallParts parts = parts_of(request, layout, codecs, runtime_.settings());
  MpiTransport transport(comm_, rank_, size_);
  begun_ = sequence_ + 1;
  begin_call(transport, request);
  // MPI's sum without momentum, or in place of votes, would be another result, not only a faster one.
  const auto means_more = [&] {
    for (std::size_t s = 0; s < codecs.size(); ++s) {
      const Segment& segment = layout.segments[s];
      if (codecs[s] && codecs[s]->traits().votes) return true;
      if (segment.use == Segment::Use::sum && !segment.key.empty() && momentum_of(codecs[s])) return true;
    }
    return false;
  };
  if (!choose_algorithms(parts, transport, values, why) && !((*why == Pass::slower || *why == Pass::early) && means_more())) return false;
  for (const auto& part : parts) part->call.sequence = sequence_++;
  const auto chosen = Clock::now();

  // From here on this rank may not decide alone: what it cannot do becomes a flag in its headers. Where its values are changes no byte of
  // what it sends.
  const Ready ready = make_ready(request, layout, foreign, codecs, parts, values);
  Backend& backend = values.backend();
  std::optional<Error> failure;
  for (const auto& part : parts) {
    CollectiveCall& call = part->call;
    call.flags = ready.flags;
    call.in = ready.widened ? ready.widened : static_cast<const float*>(values.send());
    call.out = ready.widened ? ready.widened : static_cast<float*>(values.receive());
    const bool first = part == parts.front();
    const auto now = Clock::now();
    Arena* const arena = ready.arena && part->host_bodies() ? &values.packed() : ready.arena;
    const CollectiveResult result = allreduce_compressed(transport, arena, runtime_.workers(), call, runtime_.trace());
    // All parts of a call carry the same flags, so only the first can end it, and then nothing has changed.
    if (result.flags) {
      *why = result.flags & kFlagForeign ? Pass::foreign : result.flags & kFlagNoMemory ? Pass::memory : result.flags & kFlagExact ? Pass::range : Pass::outlier;
      return false;
    }
    if (result.error) {
      if (!failure) failure = result.error;
      continue;
    }
    for (Residual* r : part->kept)
      if (r && r->turns < ~std::uint32_t{0}) ++r->turns;
    const auto end = Clock::now();
    chooser_.took(part->query, part->choice, seconds(end - (first ? chosen : now)));
    runtime_.report.compressed({call.codec->spec(), name_of(layout.source), entry_of(call.algorithm).name, part->choice.why, part->choice.predicted_s,
                                part->choice.plain_s, part->query.plain_bytes, result.sent_bytes, result.received_bytes, result.encode_s, result.wire_s,
                                result.decode_s, seconds(end - (first ? begin : now))});
  }
  const auto attempt = [&](auto&& work) {
    try {
      work();
    } catch (const Error& e) {
      if (e.code() == ErrorCode::transport_failed) throw;
      if (!failure) failure = e;
    }
  };
  if (ready.widened && !failure)
    attempt([&] {
      for (std::size_t s = 0; s < codecs.size(); ++s)
        if (const Segment& segment = layout.segments[s]; codecs[s])
          backend.narrow(request.dtype, ready.widened + segment.offset, static_cast<char*>(values.receive()) + segment.offset * size_of(request.dtype),
                         segment.count);
    });
  attempt([&] { backend.settle(); });
  attempt([&] { sum_exactly(request, ready.exact, values, ready.packed, size_); });
  if (values.on_device()) runtime_.report.on_device(values.through_host());
  if (!failure) attempt([&] { values.leave(layout); });
  if (failure) throw Error(*failure);
  return true;
}

}  // namespace crimp
