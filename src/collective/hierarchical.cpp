// The ranks of a node add their values exactly in shared memory, the leaders exchange compressed sums by any other
// algorithm, all ranks copy the result. Only the leaders' values are encoded, so only they have residuals. The memory
// is the host's, or, where all of them have their values on devices, the devices' (node_devices.hpp).
#include <algorithm>
#include <atomic>
#include <cstring>

#include "collective/algorithms.hpp"
#include "collective/node.hpp"
#include "collective/wire.hpp"
#include "core/clock.hpp"
#include "core/log.hpp"
#include "core/reserve.hpp"
#include "core/trace.hpp"

namespace crimp {
namespace {

// What the leader learned, for its node.
void publish(Node::Note& note, const CollectiveResult& result, const Error* thrown) {
  note.all_flags = result.flags;
  note.all_delays = result.delays.note();
  note.thrown = thrown;
  const Error* error = thrown ? thrown : result.error ? &*result.error : nullptr;
  note.error = error ? static_cast<int>(error->code()) : -1;
  if (error) std::strncpy(note.text, error->what(), sizeof note.text - 1);
}

// Another algorithm's route between the leaders.
class NodeRoute final : public RoutePlan {
 public:
  NodeRoute(std::shared_ptr<const RoutePlan> inner, const Hierarchy& of)
      : RoutePlan(inner->algorithm, inner->part, inner->chunk, inner->ranks), between(std::move(inner)), nodes(of) {
    name = entry_of(Algorithm::hierarchical).name;
    encodes = nodes.leaders;
    owner_memory = encodes && between->owner_memory;
    sums_encoded = true;
    any_backend = between->any_backend;
    host_bodies = between->host_bodies;
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
  RouteBytes bytes(const std::vector<powersgd::Extents*>& extents) const override {
    if (!encodes) return {};
    RouteBytes needs = between->bytes(extents);
    const std::uint64_t sums = Arena::padded(part.count * sizeof(float));
    needs.together += sums;
    needs.values += sums;
    return needs;
  }
  void prepare(Backend& backend) const override {
    if (encodes) between->prepare(backend);
  }
  std::vector<Shares::Run> owned(int) const override {
    return nodes.leaders ? between->owned(nodes.leaders->rank()) : std::vector<Shares::Run>();
  }
  std::uint64_t footprint() const override { return sizeof *this + between->footprint(); }

  const std::shared_ptr<const RoutePlan> between;
  const Hierarchy nodes;
};

class InNodes final : public Exchange {
 public:
  InNodes(const NodeRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : route_(route), call_(call), workers_(workers), trace_(trace), node_(*route.nodes.node),
        leads_(node_.rank() == 0) {}
  void start() override {}
  bool progress() override { return false; }

  CollectiveResult finish() override {
    CollectiveResult result;
    std::uint8_t flags = 0;
    float* sums = nullptr;
    const bool same = add(flags, sums, result);
    std::optional<Error> thrown;
    if (leads_) lead(same, flags, sums, result, thrown);
    const auto begin = Clock::now();
    node_.barrier();
    if (leads_) wait(result, seconds(Clock::now() - begin));
    else follow(begin, result, thrown);
    if (thrown) throw Error(*thrown);
    if (result.flags || result.error) return result;
    result.through_host = call_.backend && !on_devices_;
    const Phase copying = phase();
    share(result);
    result.decode_s += worked("node copy", copying, result);
    return result;
  }

 private:
  double noted(const char* name, Clock::time_point begin) const {
    const auto end = Clock::now();
    if (trace_) trace_->add(name, call_.sequence, 0, begin, end);
    return seconds(end - begin);
  }

  static void wait(CollectiveResult& result, double s) { result.wire_s += s, result.node_wait_s += s; }
  // Work between barriers of the node.
  struct Phase {
    Clock::time_point begin;
    double waited_s;
  };
  Phase phase() const { return {Clock::now(), node_.waited_s()}; }
  // What it took but for the barriers, which are the wire's.
  double worked(const char* name, const Phase& of, CollectiveResult& result) const {
    const double waited_s = node_.waited_s() - of.waited_s;
    wait(result, waited_s);
    return std::max(0.0, noted(name, of.begin) - waited_s);
  }

  // False: the ranks of the node are not in the same call. flags: of all of them; where there is none, `sums` is
  // complete on the leader.
  bool add(std::uint8_t& flags, float*& sums, CollectiveResult& result) {
    const Phase adding = phase();
    const auto notes = node_.notes();
    auto& mine = notes[static_cast<std::size_t>(node_.rank())];
    mine.count = route_.part.count;
    mine.layout = route_.part.layout->digest();
    mine.sequence = call_.sequence;
    mine.dtype = route_.part.dtype;
    mine.flags = call_.flags;
    mine.delay = call_.delay;
    mine.device = call_.backend ? call_.backend->device() : -1;
    node_.barrier();
    mine.failed = 0;  // of the last call, which nobody is in any more
    bool same = true;
    for (const auto& note : notes) {
      flags |= note.flags;
      result.delays.add(note.delay);
      same = same && note.dtype == notes[0].dtype && note.count == notes[0].count && note.layout == notes[0].layout &&
             note.sequence == notes[0].sequence;
    }
    // In memory of the leader's own: until all nodes are known to compress, its buffers stay as they are.
    if (leads_ && call_.arena)
      sums = reinterpret_cast<float*>(
          (call_.values ? call_.values : call_.arena)->take(route_.part.count * sizeof(float)));
    if (same && !flags && !sum(sums)) flags |= kFlagNoMemory;  // a device failed, so the values are not there
    result.encode_s = worked("node sum", adding, result);
    return same;
  }

  MemoryResource& memory() const { return call_.backend ? call_.backend->memory() : host_memory(); }
  // Work on the values that the backend was given is done; else what it failed with, which is noted.
  std::optional<Error> settle() const {
    Attempts attempt;
    attempt([&] {
      if (call_.backend) call_.backend->synchronize();
    });
    if (attempt.failed) node_.notes()[static_cast<std::size_t>(node_.rank())].failed = 1;
    return std::move(attempt.failed);
  }

  // Of the leader: whether all ranks' values are in `sums`. The others hear it from it.
  bool sum(float* sums) {
    const std::uint64_t count = route_.part.count;
    const std::optional<Error> unsettled = settle();
    on_devices_ = node_.devices.open(node_, call_.backend, std::min(count, route_.chunk));
    const std::optional<Error> failed = on_devices_ ? node_.devices.sum(node_, call_.in.floats(), sums, count)
                                                    : sum_in_node(node_, call_.in.floats(), sums, count, memory());
    static std::atomic<bool> told{false};
    if ((unsettled || failed) && !told.exchange(true))
      logged("that a node's sum has failed", [&] {
        log(LogLevel::warn, std::string((unsettled ? unsettled : failed)->what()) +
                                ": this rank's node cannot add its values, MPI sums such calls");
      });
    const auto notes = node_.notes();
    return !unsettled && !failed &&
           std::none_of(notes.begin(), notes.end(), [](const Node::Note& n) { return n.failed != 0; });
  }

  // What fails here fails behind the exchange: an error of this rank's, or of those that it hands them on to.
  void share(CollectiveResult& result) {
    const std::uint64_t count = route_.part.count;
    const Layout& layout = *route_.part.layout;
    float* const out = call_.out.floats();
    const std::optional<Error> unsettled = settle();
    std::optional<Error> failed = on_devices_ ? node_.devices.share(node_, layout, out, out, count)
                                              : share_in_node(node_, layout, out, out, count, memory());
    if (unsettled) result.error = unsettled;
    else if (failed) result.error = std::move(failed);
  }

  // The exchange between the leaders.
  void lead(bool same, std::uint8_t flags, const float* sums, CollectiveResult& result, std::optional<Error>& thrown) {
    CallBuffers between = insist([&] {
      CallBuffers buffers(call_);
      if (!buffers.residuals.empty()) buffers.idle.assign(buffers.residuals.size(), false);
      return buffers;
    });
    between.in = sums;
    between.read_again = true;  // by the node
    // The other nodes must not wait for this one: a call number that is none makes all leaders see the disagreement.
    if (!same) flags |= kFlagNoMemory, between.sequence ^= kNoCall;
    between.flags = flags;
    between.delay = result.delays.note();
    if (flags) between.arena = nullptr;
    else leave_idle(sums, between);
    std::unique_ptr<Exchange> exchange;
    try {
      exchange = between_leaders(between);
      exchange->start();
      CollectiveResult inner = exchange->finish();
      inner.encode_s += result.encode_s;
      wait(inner, result.node_wait_s);
      result = std::move(inner);
      // All nodes' leaders have said so, and seen no difference.
      if (!same)
        throw Error(ErrorCode::call_differs,
                    "the ranks of every node are in different calls: counts, types, tensors or their order differ");
    } catch (const Error& e) {
      thrown = e;
    } catch (const std::exception& e) {  // the node waits
      insist([&] { thrown.emplace(ErrorCode::out_of_memory, e.what()); });
    }
    // What a device was encoding when the exchange ended early would write into its headers.
    if (call_.backend && (thrown || result.flags || result.error)) try {
        call_.backend->synchronize();
      } catch (const std::exception&) {  // known where it matters
      }
    exchange.reset();
    publish(node_.notes()[0], result, thrown ? &*thrown : nullptr);
  }

  // As of a rank's own values (mpi/bound_call.cpp): a tensor that is zero on the whole node while others are not has no
  // gradient in this step, and what leaders and owners hold back of it waits.
  void leave_idle(const float* sums, CallBuffers& between) const {
    const auto& segments = route_.part.layout->segments;
    const Codec& codec = *route_.part.codec;
    if (between.residuals.empty() || !has_name(route_.part.layout->source) || codec.traits().whole_tensors ||
        codec.feedback().kind != FeedbackKind::residual)
      return;
    std::vector<bool> idle;
    try {
      std::vector<Group> groups;
      for (const Segment& s : segments) groups.push_back({s.offset, s.count});
      idle = all_zeros(call_.backend, sums, groups);
    } catch (const std::exception&) {  // what waits comes; a device that has failed cannot encode the sums either
      return;
    }
    // Tensors of other codecs are in the sums, too; what has no name is padding.
    bool quiet = true;
    for (std::size_t s = 0; s < segments.size(); ++s)
      quiet = quiet && ((!segments[s].summed() && segments[s].key.empty()) || idle[s]);
    if (!call_.idle_waits && quiet) return;
    for (std::size_t s = 0; s < segments.size(); ++s)
      if (segments[s].summed() && idle[s]) between.residuals[s] = nullptr, between.idle[s] = true;
  }

  // The other leaders wait for this one, too.
  std::unique_ptr<Exchange> between_leaders(CallBuffers& between) const {
    const auto make = [&] { return route_.between->exchange(*route_.nodes.leaders, between, workers_, trace_); };
    try {
      return make();
    } catch (const std::bad_alloc&) {
      decline(between);
    }
    return insist(make);
  }

  // What the leader has published.
  void follow(Clock::time_point begin, CollectiveResult& result, std::optional<Error>& thrown) {
    const Node::Note& note = node_.notes()[0];
    result.wire_s += noted("leader", begin);
    result.flags = note.all_flags;
    result.delays = {};
    result.delays.add(note.all_delays);
    if (note.error < 0) return;
    const Error error(static_cast<ErrorCode>(note.error),
                      std::string("the leader of this rank's node says: ") + note.text);
    if (note.thrown) thrown = error;
    else result.error = error;
  }

  const NodeRoute& route_;
  const CallBuffers& call_;
  Workers& workers_;
  Trace* trace_;
  Node& node_;
  const bool leads_;
  bool on_devices_ = false;  // the node's values go through slots in their memory
};

std::unique_ptr<Exchange> NodeRoute::exchange(Transport&, const CallBuffers& call, Workers& workers,
                                              Trace* trace) const {
  return std::make_unique<InNodes>(*this, call, workers, trace);
}

}  // namespace

std::shared_ptr<const RoutePlan> in_nodes(std::shared_ptr<const RoutePlan> between, const Hierarchy& nodes) {
  return std::make_shared<const NodeRoute>(std::move(between), nodes);
}

AlgorithmEntry hierarchical_algorithm() {
  return {
      .algorithm = Algorithm::hierarchical,
      .name = "hierarchical",
      .summary = "exact sums within each node in shared memory, another algorithm between the nodes' leaders",
      .needs = [](const Codec& codec, int) -> std::string {
        if (codec.traits().votes)
          return "the codec counts the ranks' votes, and signs of nodes' sums would be votes of nodes";
        // Where a tensor is compressed in one call and summed exactly in the next, the leaders' would be of their
        // nodes, the others' of themselves.
        if (codec.feedback().kind == FeedbackKind::momentum)
          return "its momentum is of each rank's own gradients (memory=momentum)";
        if (codec.feedback().kind == FeedbackKind::average)
          return "its average is of each rank's own gradients (memory=average)";
        return {};
      },
      .chunk_elements = [](std::uint64_t setting, const Codec&, int) { return setting; },
      .plan = nullptr,
      .cost = nullptr,
      .sums_encoded = true,
  };
}

}  // namespace crimp
