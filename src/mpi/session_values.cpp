// What a session makes of a call's values: whether they are a gradient's, and what is kept of their sums to tell.
#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "core/float_environment.hpp"
#include "core/log.hpp"
#include "core/reserve.hpp"
#include "mpi/session.hpp"

namespace crimp {

namespace {

// Whether results of the codec are sums: no momentum's, no majority's.
bool is_plain(const Codec& codec) {
  const FeedbackPolicy& feedback = codec.feedback();
  return (feedback.kind == FeedbackKind::residual || feedback.kind == FeedbackKind::none) && feedback.gamma == 1.0f &&
         !codec.traits().votes;
}

bool has_16_bits(const Codec& codec) {  // or all of them
  const std::string_view name = codec.traits().name;
  return name == "fp16" || name == "bf16" || name == "fp32";
}

}  // namespace

bool Session::keeps() const { return context_.codecs.codec()->feedback().kept(); }

// Whether parts of a tensor that are summed exactly are in place in the codec's results.
bool Session::plain_sums() const {
  const Codec& codec = *context_.codecs.codec();
  return is_plain(codec) && !codec.traits().whole_tensors;
}

// Whether it is found out which tensors calls bring that name none: for what is kept of these, and for what lies at
// their ends, where anything does. Equal on all ranks.
bool Session::follows_calls(const AllreduceRequest& request) const {
  if (!context_.settings.error_feedback || !context_.codecs.codec()) return false;
  return keeps() || (plain_sums() && !has_16_bits(*context_.codecs.codec()) && !request.shares && !device_ &&
                     !calls_.given_up(request.count, request.dtype));
}

// 16 bits are what unknown calls have anyway. Reads of device memory are too slow for every call.
std::uint8_t Session::flags_of_unfollowed(const AllreduceRequest& request, const CallValues& values) {
  if (values.on_device()) return 0;
  const Codec* const codec = context_.codecs.codec().get();
  if (!codec || has_16_bits(*codec)) return 0;
  try {
    const Sketch sketch = values.sketch();
    const bool votes = codec->traits().votes;
    const bool apart = (votes ? sketch.whole() : sketch.usable() && !sketch.gradient()) ||
                       (sketch.few() && values.counts({"", 0, request.count}, !votes));
    const bool goes_on = !votes && continues(request, values, sketch.sample()) != PastSums::Answer::no;
    return goes_on || apart ? kFlagNoGradient : 0;
  } catch (const std::exception&) {
    return 0;
  }
}

// Of communicators side by side those with the world's first ranks, and those with a good part of all ranks, which are
// few; of those one after another the first.
bool Session::speaks(std::atomic<int>& lines) const {
  constexpr int kMost = 8;
  int world = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &world);
  return rank_ == 0 && (world_ranks_[0] < kMost || size_ > world / kMost) &&
         lines.fetch_add(1, std::memory_order_relaxed) < kMost;
}

void Session::say_once(Saying what, const std::string& text) {
  if (has_said(what)) return;
  said_.set(static_cast<std::size_t>(what));
  static std::atomic<int> lines{0};
  if (speaks(lines)) log(LogLevel::info, text);
}

// Once a communicator for what is good and once for what is not.
void Session::say_what_is_known(const CallSequence::Call& call) {
  if ((has_said(Saying::tensors_known) && has_said(Saying::tensors_not_known)) || !keeps()) return;
  const Layout& layout = *call.layout;
  const Segment& last = layout.segments.back();
  const std::string calls = "the calls with " + std::to_string(last.offset + last.count) +
                            " elements on a communicator of " + std::to_string(size_) + " ranks ";
  if (layout.known())
    return say_once(Saying::tensors_known,
                    calls + "bring the same tensors again, as their values show: from now on these have residuals");
  if (call.withdrawn)
    say_once(
        Saying::tensors_not_known,
        calls + "are not the tensors that they were taken for: until they are told apart again they have no residuals");
  else if (call.ambiguous)
    say_once(Saying::tensors_not_known, "after " + std::to_string(CallSequence::kManyCalls) + " of them, " + calls +
                                            "cannot be told apart as tensors: they have no residuals and use " +
                                            "CRIMP_UNKNOWN_LAYOUT=" + context_.settings.unknown_layout +
                                            ". crimp_allreduce() names tensors");
}

PastSums::Answer Session::continues(const AllreduceRequest& request, const CallValues& values, const Sample& sample) {
  constexpr std::uint64_t kLeastShare = 1024;
  const std::uint64_t count = request.count;
  const Shares::Run own = request.own();
  const bool share = request.shares && own.count() < count;
  const std::uint64_t key = PastSums::key_of(count, request.dtype) + (share ? std::uint64_t{1} << 63 : 0);
  PastSums::Answer goes_on = PastSums::Answer::no;
  logged("a sum's values", [&] {
    Sample of_share;
    if (share) {
      if (own.count() < kLeastShare || values.on_device()) return;
      const auto* const from = static_cast<const char*>(request.send) + own.begin * size_of(request.dtype);
      of_share = sample_of(from, own.count(), request.dtype);
    }
    const Sample& gave = share ? of_share : sample;
    goes_on = sums_.continue_in(key, gave);
    if (request.receive)
      summed_.push_back({key, gave, request.receive, own.count(), request.dtype, PastSums::kOfAKind,
                         sums_.wanted(key, values.on_device())});
    if (goes_on == PastSums::Answer::yes)
      say_once(Saying::goes_on,
               "calls with " + std::to_string(count) + " elements on a communicator of " + std::to_string(size_) +
                   " ranks go on where an earlier sum of theirs ended, as averages of parameters do, or put pieces " +
                   "beside each other: they are no gradients, and MPI sums them exactly");
  });
  return goes_on;
}

// A codec of CRIMP_LADDER may come in place of CRIMP_CODEC.
bool Session::loses_much(const Codec& codec) const {
  const auto much = [](const Codec& c) { return is_plain(c) && !has_16_bits(c); };
  const auto& ladder = context_.codecs.ladder();
  return much(codec) || (&codec == context_.codecs.codec().get() &&
                         std::any_of(ladder.begin(), ladder.end(), [&](const auto& c) { return much(*c); }));
}

Session::Negotiated& Session::negotiated(const Layout& layout) {
  constexpr std::size_t kMostLayouts = 1024;
  const auto known = negotiated_.find(layout.digest());
  if (known != negotiated_.end() && known->second.rules == context_.codecs.version() &&
      known->second.segments == layout.segments.size())
    return known->second;
  bool first = false;
  Negotiated* made = nullptr;
  insist([&] {
    if (negotiated_.size() >= kMostLayouts) negotiated_.clear();
    made = &negotiated_[layout.digest()];
    *made = {context_.codecs.version(), layout.segments.size(), false, {}, {}};
    bool sums_alone = true;
    for (std::size_t s = 0; s < layout.segments.size(); ++s) {
      const Segment& segment = layout.segments[s];
      const Codec* const codec =
          segment.summed() && !segment.key.empty() ? planner_.codec_of(layout, segment) : nullptr;
      if (!codec) continue;
      sums_alone = sums_alone && is_plain(*codec);
      if (!loses_much(*codec)) continue;
      const std::uint64_t key = PastSums::key_of(segment.key, segment.count);
      if (names_.add(key)) first = true, made->fresh.push_back(s);
      if (segment.count >= context_.settings.min_count)
        made->looked_at.push_back({s, key, context_.codecs.names_gradient(segment.key, segment.count)});
    }
    first = first && sums_alone;
  });
  made->first = first;
  return *made;
}

std::uint8_t Session::flags_of_negotiated(const AllreduceRequest& request, const CallValues& values) {
  const Layout& layout = *request.layout;
  Negotiated& of = negotiated(layout);
  std::uint8_t flags = 0;
  if (std::exchange(of.first, false)) {
    if (++first_calls_ <= kMostFirstCalls) flags |= kFlagFirst;
    else once_.swap(of.fresh);
  }
  if (values.on_device() || !request.receive) return flags;
  const std::size_t element = size_of(request.dtype);
  // Most of a call: of many tensors' gradients some may be like averages by chance, as in a training's first steps.
  std::uint64_t looked_at = 0, go_on = 0;
  const Segment* sure = nullptr;
  for (const auto& [index, key, gradient] : of.looked_at) {
    if (sums_.skip(key)) {
      looked_at += layout.segments[index].count;  // and did not go on
      continue;
    }
    logged("a sum's values", [&] {
      const Segment& s = layout.segments[index];
      const auto at = [&](const void* buffer) { return static_cast<const char*>(buffer) + s.offset * element; };
      const Sample sample = sample_of(at(request.send), s.count, request.dtype);
      const PastSums::Answer answer =
          sums_.continue_in(key, sample, gradient ? PastSums::Whose::gradient : PastSums::Whose::one);
      looked_at += s.count;
      if (answer != PastSums::Answer::no) go_on += s.count;
      if (answer == PastSums::Answer::yes) sure = &s;
      if (sums_.wanted(key, false))
        summed_.push_back({key, sample, at(request.receive), s.count, request.dtype, PastSums::kOfOne, true});
    });
  }
  if (2 * go_on <= looked_at) return flags;
  if (sure)
    logged("what goes on", [&] {
      say_once(Saying::goes_on,
               "'" + sure->key +
                   "' goes on where an earlier sum of it ended, as averages of parameters do: MPI sums it " +
                   "exactly, with what is fused with it, until it does so no more. If it is a gradient, say so in " +
                   "CRIMP_RULES, ahead of the default rules: '" + sure->key + "=CODEC; ...'");
    });
  return flags | kFlagNoGradient;
}

// all: also those that are not wanted otherwise, because they are no gradient's.
void Session::keep_sums(bool all) noexcept {
  if (summed_.empty()) return;
  const FloatEnvironment environment;
  for (const Summed& s : summed_) try {
      if (all || s.wanted) sums_.keep(s.key, s.gave, sample_of(s.sum, s.count, s.dtype), s.most);
    } catch (const std::exception&) {  // a device's memory: then nothing is known of it
    }
  summed_.clear();
}

void Session::left_ended() noexcept {
  keep_sums(true);
  times_.left_ended();
}

}  // namespace crimp
