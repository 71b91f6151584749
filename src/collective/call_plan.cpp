#include "collective/call_plan.hpp"

#include <algorithm>

#include "collective/one_shot.hpp"
#include "core/digest.hpp"

namespace crimp {
namespace {

// What travels exactly beside the one part of a call is not counted in its time.
constexpr std::uint64_t kMostBeside = 16;

std::string kind_of(const CallPlan& plan, Dtype dtype, std::uint64_t count) {
  std::string kind =
      name_of(dtype) + (" x " + std::to_string(count)) + (plan.shares ? " in " + plan.shares->text() : "") + ":";
  for (const PlannedPart& part : plan.parts)
    kind += (&part == &plan.parts.front() ? " " : " + ") + part.query.codec->spec() + " x " +
            std::to_string(part.query.count);
  return kind;
}

}  // namespace

std::shared_ptr<const RoutePlan> PlannedPart::route(const Carriage& carriage, const Hierarchy* nodes, int ranks) const {
  for (const Route& known : routes_)
    if (known.carriage == carriage) return known.plan;
  if (carriage.algorithm == Algorithm::node_sum)
    return routes_.emplace_back(Route{carriage, sum_on_node(plan, *nodes)}).plan;
  const Carriage runs = as_it_runs(carriage);
  const int carrying = runs.nodes ? nodes->nodes : ranks;
  const std::uint64_t chunk = chunk_elements(runs.chunk_setting, *plan.codec, carrying, runs.algorithm);
  auto made = plan_route(runs.algorithm, plan, chunk, carrying, runs.radix);
  if (runs.nodes) made = in_nodes(std::move(made), *nodes);
  if (made->part.declined) return made;  // the next call may find memory
  return routes_.emplace_back(Route{carriage, std::move(made)}).plan;
}

Carriage PlannedPart::as_it_runs(Carriage carriage) const {
  if (carriage.chunk_setting == 0) carriage.chunk_setting = query.chunk_setting;
  if (carriage.radix == 0) carriage.radix = query.radix;
  return carriage;
}

std::uint64_t PlannedPart::footprint() const {
  std::uint64_t sum = sizeof *this + plan.layout->segments.size() * sizeof(Segment);
  for (const Route& route : routes_) sum += route.bytes;
  return sum;
}

bool CallPlan::has_momentum() const {
  return std::any_of(momenta.begin(), momenta.end(), [](const Codec* c) { return c != nullptr; });
}

std::size_t CallPlan::largest_part() const {
  const auto fewer = [](const PlannedPart& a, const PlannedPart& b) { return a.query.count < b.query.count; };
  return static_cast<std::size_t>(std::max_element(parts.begin(), parts.end(), fewer) - parts.begin());
}

std::uint64_t CallPlan::footprint() const {
  std::uint64_t sum =
      sizeof *this + kind.size() +
      layout->segments.size() * (sizeof(Segment) + 2 * sizeof(void*) + sizeof(std::size_t) + sizeof(Group));
  for (const PlannedPart& part : parts) sum += part.footprint();
  return sum + (halves ? halves->footprint() : 0) + (exactly ? exactly->footprint() : 0);
}

const Codec* Planner::codec_of(const Layout& layout, const Segment& segment) const {
  if (layout.source != Layout::Source::named && layout.source != Layout::Source::negotiated)
    return layout.known() && segment.key.empty() ? nullptr : rules_.codec().get();  // ends of a tensor: exactly
  if (const auto said = segment.key.empty() ? std::nullopt : said_.find(segment.key)) return *said;
  return rules_.of_tensor(segment.key, segment.count, segment.alternative);
}

bool Planner::by_default(const Layout& layout, const Segment& segment) const {
  if (layout.source != Layout::Source::named && layout.source != Layout::Source::negotiated) return true;
  if (!segment.key.empty() && said_.find(segment.key)) return false;
  return !rules_.ruled(segment.key, segment.count);
}

bool Planner::plain(const Layout& layout, const Segment& segment) const {
  if (layout.source != Layout::Source::named && layout.source != Layout::Source::negotiated) return false;
  return !said_.find(segment.key) && rules_.plain(segment.key, segment.count);
}

const Codec* Planner::momentum_of(const Codec* codec) const {
  if (!codec) codec = rules_.momentum();  // what is summed exactly shares the momentum of the others
  return codec && codec->feedback().kind == FeedbackKind::momentum && settings_.error_feedback ? codec : nullptr;
}

void Planner::set_codec(const std::string& pattern, const char* spec) {
  if (said_.set(pattern, spec)) forget();  // a program may say the same in every step
}

std::string Planner::why_none_runs(const AlgorithmEntry& entry, int ranks) const {
  std::string why;
  const auto runs = [&](const Codec& codec) {
    const std::string obstacle = entry.why_unsupported(codec, ranks);
    if (why.empty() && !obstacle.empty())
      why =
          "which cannot run " + codec.spec() + ": " + obstacle + "; this codec can run " + algorithms_for(codec, ranks);
    return obstacle.empty();
  };
  return rules_.any_codec(runs) || said_.any_codec(runs) ? std::string() : why;
}

std::shared_ptr<const CallPlan> Planner::plan(Dtype dtype, std::uint64_t count, std::shared_ptr<const Layout> layout,
                                              int level, std::shared_ptr<const Shares> shares) {
  if (version_ != rules_.version()) forget();
  version_ = rules_.version();
  if (asked_) weigh(*asked_);
  asked_ = nullptr;
  const Key key{dtype,
                count,
                layout->digest(),
                level,
                shares ? shares->collective : Collective::allreduce,
                shares ? shares->digest() : 0};
  if (Kept* const known = plans_.find(key)) {
    const CallPlan& found = *known->plan;
    const bool same_shares = found.shares == shares || (found.shares && shares && *found.shares == *shares);
    if (same_shares && (found.layout == layout || *found.layout == *layout)) {
      asked_ = known;
      return known->plan;
    }
    bytes_ -= known->bytes;
    plans_.erase(key);
  }
  // Two for the one that is made, while they take too much: routes are added to plans later.
  for (int evicted = 0; bytes_ > kMostBytes && evicted < 2 && plans_.size() > 0; ++evicted) evict();
  ++made_;
  auto made = make(dtype, count, std::move(layout), level, std::move(shares));
  if (plans_.size() == kMostPlans) evict();
  asked_ = &plans_.put(key, {std::move(made)});
  weigh(*asked_);
  return asked_->plan;
}

void Planner::weigh(Kept& kept) {
  const std::uint64_t bytes = kept.plan->footprint();
  bytes_ += bytes - kept.bytes;
  kept.bytes = bytes;
}

void Planner::evict() { bytes_ -= plans_.evict().bytes; }

void Planner::forget() {
  plans_.clear();
  asked_ = nullptr;
  bytes_ = 0;
}

std::shared_ptr<CallPlan> Planner::make(Dtype dtype, std::uint64_t count, std::shared_ptr<const Layout> layout,
                                        int level, std::shared_ptr<const Shares> shares, const Codec* stand_in) const {
  auto plan = std::make_shared<CallPlan>();
  plan->layout = std::move(layout);
  plan->shares = std::move(shares);
  const bool compressed = choose_codecs(*plan, level);
  if (stand_in)
    for (const Codec*& codec : plan->codecs)
      if (codec) codec = stand_in;
  const auto& segments = plan->layout->segments;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    const Codec* const codec = s < plan->codecs.size() ? plan->codecs[s] : nullptr;
    const bool kept = segments[s].summed() && !segments[s].key.empty();
    plan->momenta.push_back(kept && !plain(*plan->layout, segments[s]) ? momentum_of(codec) : nullptr);
    // Results are gamma times the sums, or sums of averages.
    const bool other = codec && kept && settings_.error_feedback &&
                       (codec->feedback().kind == FeedbackKind::average ||
                        (codec->feedback().kind == FeedbackKind::residual && codec->feedback().gamma != 1.0f));
    plan->means_more = plan->means_more || plan->momenta.back() || other || (codec && codec->traits().votes);
  }
  if (!compressed) return plan;
  for (std::size_t s = 0; s < segments.size(); ++s) {
    if (plan->codecs[s]) {
      plan->scanned.push_back({segments[s].offset, segments[s].count});
    } else if (segments[s].summed()) {
      plan->exact.push_back(s);
      plan->exact_bytes += segments[s].count * size_of(dtype);
    }
  }
  make_parts(*plan, dtype, count, level);
  if (plan->parts.size() == 1 && !plan->means_more) {
    ChoiceQuery& query = plan->parts[0].query;
    query.alone = plan->exact_bytes <= query.plain_bytes / kMostBeside;
    const bool may_stand_in = query.alone && !stand_in && !query.controlled;
    query.halves = may_stand_in ? rules_.halves_of(*query.codec) : nullptr;
    query.exact =
        may_stand_in && !plan->shares && entry_of(Algorithm::node_sum).why_unsupported(*query.codec, 2).empty();
    const auto instead = [&](const Codec* codec) {
      return codec ? make(dtype, count, plan->layout, level, plan->shares, codec) : nullptr;
    };
    const auto halves = instead(query.halves), exactly = instead(query.exact ? rules_.exact() : nullptr);
    if (halves) query.halves_frame_bytes = halves->parts[0].query.frame_bytes;
    if (halves) halves->parts[0].query = query;
    if (exactly) exactly->parts[0].query = query;
    plan->halves = halves;
    plan->exactly = exactly;
  }
  plan->kind = kind_of(*plan, dtype, count);
  plan->kind_digest = digest(plan->kind);
  return plan;
}

bool Planner::choose_codecs(CallPlan& plan, int level) const {
  const Layout& layout = *plan.layout;
  bool any = false;
  for (std::size_t s = 0; s < layout.segments.size(); ++s) {
    const Segment& segment = layout.segments[s];
    const Codec* codec = segment.summed() ? codec_of(layout, segment) : nullptr;
    if (segment.summed() && !codec) plan.excluded.push_back(s);
    const bool controlled = level >= 0 && codec && by_default(layout, segment);
    if (controlled) codec = rules_.ladder()[static_cast<std::size_t>(level)].get();
    // A tensor without a name has nothing that a residual could belong to.
    // Votes stay votes: of the values themselves, as with CRIMP_ERROR_FEEDBACK=0.
    if (codec && codec->feedback().kept() && settings_.error_feedback && segment.key.empty() &&
        !(codec->traits().votes && !layout.known())) {
      if (momentum_of(codec)) plan.lost_momentum = codec;
      codec = rules_.unknown_layout();
      if (!codec && !layout.known()) {
        plan.pass = PassReason::unknown_layout;
        return false;
      }
    } else {
      plan.controlled = plan.controlled || controlled;
    }
    if (codec && codec->traits().whole_tensors && plan.shares) plan.pass = PassReason::shares;
    plan.codecs.push_back(codec);
    any = any || codec;
  }
  if (!any) plan.pass = PassReason::rules;  // or all are unnamed and CRIMP_UNKNOWN_LAYOUT=none
  return !plan.pass;
}

void Planner::make_parts(CallPlan& plan, Dtype dtype, std::uint64_t count, int level) const {
  const auto& segments = plan.layout->segments;
  plan.part_of.assign(segments.size(), 0);
  for (const Codec* codec : plan.codecs) {
    if (!codec ||
        std::any_of(plan.parts.begin(), plan.parts.end(), [&](const PlannedPart& p) { return p.plan.codec == codec; }))
      continue;
    std::vector<Segment> masked = segments;
    std::uint64_t elements = 0;
    bool other = false;
    for (std::size_t s = 0; s < segments.size(); ++s) {
      if (plan.codecs[s] == codec) {
        elements += segments[s].count;
        plan.part_of[s] = plan.parts.size();
      } else if (segments[s].summed()) {
        masked[s].use = Segment::Use::skip;
        other = true;
      }
    }
    const auto layout = other ? Layout::make(plan.layout->source, std::move(masked)) : plan.layout;
    plan.parts.emplace_back(PartPlan{codec, layout, count, dtype, settings_.checksum,
                                     codec->feedback().kept() && settings_.error_feedback && plan.layout->known()},
                            ChoiceQuery{codec, elements, settings_.chunk, elements * size_of(dtype), settings_.quality,
                                        settings_.radix, plan.controlled});
    PlannedPart& made = plan.parts.back();
    if (!plan.shares) {
      made.query.frame_bytes = frame_bytes(*codec, *layout, settings_.chunk);
    } else {
      made.plan.shares = plan.shares;
      made.query.collective = plan.shares->collective;
      made.query.largest_share = plan.shares->largest();
    }
    made.of_ladder = level >= 0 && codec == rules_.ladder()[static_cast<std::size_t>(level)].get();
    plan.clips = plan.clips || (momentum_of(codec) && codec->feedback().clip > 0.0f);
  }
}

}  // namespace crimp
