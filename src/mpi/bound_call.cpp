#include "mpi/bound_call.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "codec/exact_feedback.hpp"
#include "collective/wire.hpp"
#include "core/error.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

class Binder {
 public:
  Binder(const BindTo& to, const CallPlan& plan, const ChosenParts& chosen, const AllreduceRequest& request,
         CallValues& values)
      : to_(to), plan_(plan), chosen_(chosen), request_(request), values_(values) {
    insist([&] { bound_.parts.resize(plan.parts.size()); });  // who has flags to send needs these
    std::uint64_t most = 0;                                   // parts go one after another
    for (const auto& route : chosen.routes) most = std::max(most, route->room);
    if (most) room_ = insist([&] { return values.room(most); });
  }

  BoundCall bind(std::uint8_t flags, std::uint32_t sequence) {
    flags_ = flags;
    bool ready = false;
    while (!ready && !bound_.failed) try {
        find_all();
        ready = true;
      } catch (const Error& e) {
        if (e.code() != ErrorCode::out_of_memory || !values_.leave_device(e.what())) fail(e.what());
      } catch (const std::exception& e) {
        fail(e.what());
      }
    for (std::size_t p = 0; p < bound_.parts.size(); ++p) {
      CallBuffers& part = bound_.parts[p];
      if (!ready) part = {};
      part.in = bound_.widened ? bound_.widened : ConstValues(values_.send(), request_.dtype);
      part.out = bound_.widened ? bound_.widened : Values(values_.receive(), request_.dtype);
      if (!bound_.widened && request_.shares) {
        if (bound_.aside) part.out = bound_.aside;
        part.out_begin = request_.own().begin;
      }
      if (ready) part.arena = chosen_.routes[p]->host_bodies ? &values_.packed() : &values_.bodies();
      if (values_.direct()) part.backend = &values_.backend(), part.values = ready ? &values_.values() : nullptr;
      part.room = room_;
      part.read_again = bound_.widened || bound_.aside;
      part.flags = flags_;
      part.first = p == 0;
      part.sequence = sequence + static_cast<std::uint32_t>(p);
      part.salt = to_.salt;
      part.idle_waits = to_.idle_waits;
    }
    return std::move(bound_);
  }

 private:
  const PartPlan& part(std::size_t p) const { return plan_.parts[p].plan; }
  RouteBytes bytes(std::size_t p) const { return chosen_.routes[p]->bytes(bound_.parts[p].extents); }

  // Once more where the device had no memory: what it did with the values' sizes it does not do again.
  void find_all() {
    for (CallBuffers& part : bound_.parts) part = {};
    bound_.residuals.assign(plan_.parts.size(), {});
    held_.clear();
    bound_.exact.clear();
    bound_.exact.reserve(plan_.exact.size());
    for (const std::size_t s : plan_.exact) bound_.exact.push_back({&plan_.layout->segments[s], plan_.momenta[s]});
    to_.memory.begin_call();
    begin();
    look_at_values();
    find_memories();
    drop_echoes();
    take_scratch();
  }

  void fail(const char* why) {
    bound_.failed = true;
    flags_ |= kFlagNoMemory;
    try {
      bound_.failure = why;
    } catch (const std::bad_alloc&) {  // nor for the reason
    }
  }

  void begin() {
    std::uint64_t packed = Arena::padded(plan_.exact_bytes);
    for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
      if (part(p).codec->traits().whole_tensors) bound_.parts[p].extents = to_.memory.extents_of(*part(p).layout);
      if (chosen_.routes[p]->host_bodies) packed += bytes(p).bodies;
    }
    values_.begin(chosen_.routes, packed);
  }

  // What is not for the codecs, or not the tensors that it is taken for.
  void look_at_values() {
    largest_.resize(plan_.scanned.size());
    values_.backend().magnitudes(request_.dtype, values_.send(), plan_.scanned, largest_.data());
    if (std::exchange(judged_, true)) return;
    // A trainer names whatever it reduces, metrics too.
    const bool metrics = plan_.layout->source == Layout::Source::negotiated && !exact();
    for (std::size_t s = 0, g = 0; s < plan_.codecs.size(); ++s)
      if (plan_.codecs[s]) {
        const double largest = largest_[g++];
        flags_ |= flags_of(largest, *chosen_.routes[plan_.part_of[s]]);
        if (metrics && largest > 0 && values_.counts(plan_.layout->segments[s], false)) flags_ |= kFlagNoGradient;
      }
  }

  bool exact() const {
    return std::all_of(plan_.parts.begin(), plan_.parts.end(),
                       [](const PlannedPart& of) { return of.plan.codec->traits().name == std::string_view("fp32"); });
  }

  std::uint8_t flags_of(double largest, const RoutePlan& route) {
    std::uint8_t flags = 0;
    if (plan_.layout->source == Layout::Source::periodic) {
      const auto proportion = to_.calls.magnitude(largest);
      if (proportion == CallSequence::Proportion::foreign) flags |= kFlagForeign;
      if (proportion == CallSequence::Proportion::outlier) flags |= kFlagOutlier;
    }
    const Codec::Traits& traits = route.part.codec->traits();
    // Below 2^-100 a float64 loses bits as a float32; its sign only below the least of these.
    const double loses = traits.votes ? 0x1p-149 : 0x1p-100,
                 least =
                     std::max(static_cast<double>(traits.min_magnitude), request_.dtype == Dtype::f64 ? loses : 0.0);
    const bool too_small = largest > 0 && largest < least;
    // Where sums are encoded they must stay in range, too, however the values are rounded first.
    const double room = route.sums_encoded ? (1 - 0x1p-9) / to_.ranks : 1;
    if (!(largest <= room * static_cast<double>(traits.max_magnitude)) || too_small) flags |= kFlagExact;
    return flags;
  }

  void find_memories() {
    // Whatever flags this rank has: which of a name's sizes came first must be known alike on all ranks (TensorMemory).
    const Layout& layout = *plan_.layout;
    const bool zeros = brings_zeros();
    // A rank that joined early (hvd.join) gives zeros in place of tensors; its residuals stay where they are.
    const bool absent = zeros && layout.source == Layout::Source::negotiated;
    const auto values_of = [](const std::vector<Residual*>& kept) {
      std::vector<float*> all;
      all.reserve(kept.size());
      for (const Residual* r : kept) all.push_back(r ? r->values : nullptr);
      return all;
    };
    MemoryResource& memory = values_.backend().memory();
    for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
      const RoutePlan& route = *chosen_.routes[p];
      CallBuffers& buffers = bound_.parts[p];
      std::vector<Residual*> held;  // of sums
      const bool remembers = part(p).remembers && route.encodes, nodes = chosen_.choices[p].carriage.nodes;
      if (remembers && !nodes && (absent || !zeros || to_.idle_waits)) buffers.idle = idle_tensors(p);
      if (remembers && (!absent || nodes)) {
        auto& kept = bound_.residuals[p] = to_.memory.of_values(*part(p).layout, *part(p).codec, memory);
        for (std::size_t s = 0; s < buffers.idle.size(); ++s)
          if (buffers.idle[s]) kept[s] = nullptr;
        buffers.residuals = values_of(kept);
        if (!route.owner_memory) held = to_.memory.held_sums(*part(p).layout, memory);
        for (const Residual* r : kept) buffers.turns.push_back(r ? r->turns : 0);
      }
      if (part(p).remembers && route.owner_memory) {
        held = to_.memory.of_sums(*part(p).layout, *part(p).codec, memory);
        buffers.owner_residuals = values_of(held);
      }
      if (!held.empty()) hand_on(p, held);
      held_.push_back(std::move(held));
    }
    for (ExactTensor& t : bound_.exact)
      if (t.momentum)
        t.memory =
            to_.memory
                .find(layout.source, *t.segment, false, ResidualShape::of(*t.momentum, t.segment->count), host_memory())
                .values;
  }

  // What this rank held back of sums that it owns no more, to its own residuals.
  void hand_on(std::size_t p, const std::vector<Residual*>& held) {
    const RoutePlan& route = *chosen_.routes[p];
    const auto& segments = part(p).layout->segments;
    std::optional<std::vector<Shares::Run>> owned;
    std::vector<Shares::Run> here;
    // What codecs of other memories keep is no residual, and powersgd's are equal on all ranks.
    const FeedbackKind kind = part(p).codec->feedback().kind;
    const bool takes = !flags_ && (kind == FeedbackKind::residual || kind == FeedbackKind::momentum) &&
                       !part(p).codec->traits().whole_tensors;
    for (std::size_t s = 0; s < held.size(); ++s) {
      if (!held[s]) continue;
      if (!held[s]->owned.by(route.id)) {
        if (!owned) owned = route.owner_memory ? route.owned(to_.rank) : std::vector<Shares::Run>();
        here.clear();
        const std::uint64_t begin = segments[s].offset, end = begin + segments[s].count;
        for (const Shares::Run& run : *owned)
          if (run.begin < end && begin < run.end)
            here.push_back({std::max(run.begin, begin) - begin, std::min(run.end, end) - begin});
        held[s]->owned.own(route.id, here);
      }
      const std::vector<Residual*>& own = bound_.residuals[p];
      // One that is new goes again where another rank sends the call through MPI.
      if (takes && !own.empty() && own[s] && own[s]->turns > 0 && !held[s]->owned.left().empty())
        held[s]->owned.hand_on(held[s]->values, own[s]->values, route.ranks, values_.backend().memory(), to_.workers);
    }
  }

  // Whether this rank has nothing but zeros of tensors that have names, of those that are summed exactly too. Who has
  // values for the codecs need not look at these.
  bool brings_zeros() const {
    const auto zeros = [](const std::vector<double>& largest) {
      return std::all_of(largest.begin(), largest.end(), [](double l) { return l == 0; });
    };
    if (!has_name(plan_.layout->source) || !zeros(largest_)) return false;
    std::vector<Group> exact;
    exact.reserve(plan_.exact.size());
    for (const std::size_t s : plan_.exact)
      exact.push_back({plan_.layout->segments[s].offset, plan_.layout->segments[s].count});
    std::vector<double> largest(exact.size());
    values_.backend().magnitudes(request_.dtype, values_.send(), exact, largest.data());
    return zeros(largest);
  }

  // Beside others a tensor whose values are all zeros has no gradient in this step, as that of a layer which was not
  // used: what its residual holds would come where nobody looks for it (DDP's find_unused_parameters), and waits. A
  // call of nothing but zeros asks for what is held back, and has it, unless the program says otherwise, or a trainer
  // sends it, whose ranks may have joined early. Momenta and averages go on without a gradient, and what powersgd keeps
  // is equal on all ranks. Returns which of a part, empty where none may.
  std::vector<bool> idle_tensors(std::size_t p) const {
    std::vector<bool> idle;
    const Codec& codec = *part(p).codec;
    if (!has_name(plan_.layout->source) || codec.feedback().kind != FeedbackKind::residual ||
        codec.traits().whole_tensors)
      return idle;
    idle.assign(plan_.codecs.size(), false);
    for (std::size_t s = 0, g = 0; s < plan_.codecs.size(); ++s)
      if (plan_.codecs[s] && largest_[g++] == 0 && plan_.part_of[s] == p) idle[s] = true;
    return idle;
  }

  // An outlier leaves residuals in its own size, which come back for many calls. Only this rank's values decide: what
  // it encodes is its own affair. Where it encodes its node's sums they say little of those, and decide only if asked.
  void drop_echoes() {
    // Where values tell whose a call is, what waits from far larger ones is nobody's loss; and a trainer's name may be
    // that of two tensors, of two optimizers.
    const Layout::Source source = plan_.layout->source;
    const bool kept = source == Layout::Source::periodic || source == Layout::Source::negotiated;
    const double setting = to_.settings.residual_jump,
                 jump = kept && setting == 0 ? CallSequence::kProportion : setting;
    if (jump <= 0 || flags_) return;
    MemoryResource& memory = values_.backend().memory();
    const auto drop = [&](float* residual, std::uint64_t count, double most) {
      std::vector<float> here(count);
      memory.read(here.data(), residual, count * sizeof(float));
      for (float& r : here)
        if (!(std::abs(static_cast<double>(r)) <= most)) r = 0;
      memory.write(residual, here.data(), count * sizeof(float));
    };
    for (std::size_t s = 0, g = 0; s < plan_.codecs.size(); ++s) {
      if (!plan_.codecs[s]) continue;
      const double largest = largest_[g++];
      const Segment& segment = plan_.layout->segments[s];
      if (segment.key.empty() || !(largest > 0)) continue;
      // Of a trainer's tensors, where nobody has asked for it: all that waits, which may be another's, but no momentum.
      const bool unasked = setting == 0 && source == Layout::Source::negotiated;
      if (unasked && plan_.codecs[s]->feedback().kind != FeedbackKind::residual) continue;
      if (!to_.memory.fell(source, segment, largest, jump)) continue;
      if (setting == 0 && chosen_.choices[plan_.part_of[s]].carriage.nodes) continue;
      const double stays = unasked ? 0 : largest;
      const CallBuffers& buffers = bound_.parts[plan_.part_of[s]];
      const auto arrays = static_cast<std::uint64_t>(plan_.codecs[s]->feedback().arrays());
      if (!buffers.residuals.empty()) drop(buffers.residuals[s], segment.count * arrays, stays);
      const std::vector<Residual*>& held = held_[plan_.part_of[s]];
      if (!held.empty() && held[s]) drop(held[s]->values, segment.count, stays * to_.ranks);
    }
  }

  void take_scratch() {
    const bool direct = values_.direct();
    const bool as_they_are = !plan_.clips && (request_.dtype == Dtype::f32 || converted());
    const std::uint64_t widened = as_they_are ? 0 : Arena::padded(request_.count * sizeof(float));
    const std::uint64_t aside = !widened && overlap() ? Arena::padded(request_.own().count() * sizeof(float)) : 0;
    std::uint64_t bodies = direct ? 0 : widened + aside + Arena::padded(plan_.exact_bytes), values = widened + aside;
    for (std::size_t p = 0; p < plan_.parts.size(); ++p) {
      const RoutePlan& route = *chosen_.routes[p];
      const RouteBytes needs = bytes(p);
      if (!direct) bodies += needs.together;
      else if (!route.host_bodies) bodies += needs.bodies;
      if (direct) values_.prepare(route);
      values += needs.values;
    }
    values_.bodies().reserve(bodies);
    if (direct) values_.values().reserve(values);
    values_.backend().prepare(values_.bodies());
    if (widened) bound_.widened = reinterpret_cast<float*>(values_.values().take(widened));
    bound_.aside = aside ? reinterpret_cast<float*>(values_.values().take(aside)) : nullptr;
    if (plan_.exact_bytes)
      bound_.packed = {reinterpret_cast<char*>(values_.packed().take(plan_.exact_bytes)), plan_.exact_bytes};
    if (widened && !flags_) values_.backend().widen(request_.dtype, values_.send(), bound_.widened, request_.count);
    if (plan_.clips && !flags_) clip(bound_.widened);
  }

  // By the backend, as it encodes and decodes.
  bool converted() const {
    return !overlap() && std::all_of(chosen_.routes.begin(), chosen_.routes.end(), [this](const auto& route) {
      return route->converts && values_.backend().converts(*route->part.codec);
    });
  }

  // Own sums would be written where other ranks' values still are, as MPI_IN_PLACE has it.
  bool overlap() const {
    const Shares::Run own = request_.own();
    const std::size_t element = size_of(request_.dtype);
    const auto in = reinterpret_cast<std::uintptr_t>(values_.send());
    const auto out = reinterpret_cast<std::uintptr_t>(values_.receive());
    return request_.shares && own.count() && out != in + own.begin * element && out < in + request_.count * element &&
           in < out + own.count() * element;
  }

  // What is accumulated of this rank's gradients (Lin et al., section 3.2); `values` are float32 copies of the call's.
  void clip(float* values) const {
    for (std::size_t s = 0; s < plan_.codecs.size(); ++s) {
      const float most = plan_.codecs[s] ? plan_.codecs[s]->feedback().clip : 0.0f;
      if (!(most > 0.0f)) continue;
      const Segment& segment = plan_.layout->segments[s];
      float* const x = values + segment.offset;
      const double gain = clip_gain(Dtype::f32, x, segment.count, static_cast<double>(most) / std::sqrt(to_.ranks));
      for (std::uint64_t i = 0; i < segment.count && gain != 1.0; ++i) x[i] *= static_cast<float>(gain);
    }
  }

  const BindTo& to_;
  const CallPlan& plan_;
  const ChosenParts& chosen_;
  const AllreduceRequest& request_;
  CallValues& values_;
  BoundCall bound_;
  std::vector<double> largest_;               // of plan_.scanned
  std::vector<std::vector<Residual*>> held_;  // of each part: what this rank holds of sums, or empty
  std::uint8_t* room_ = nullptr;
  std::uint8_t flags_ = 0;
  bool judged_ = false;
};

}  // namespace

BoundCall bind(const BindTo& to, const CallPlan& plan, const ChosenParts& chosen, const AllreduceRequest& request,
               std::uint8_t flags, std::uint32_t sequence, CallValues& values) {
  return Binder(to, plan, chosen, request, values).bind(flags, sequence);
}

}  // namespace crimp
