#include "comm/chooser.hpp"

#include <algorithm>
#include <cmath>
#include <new>

#include "backend/workers.hpp"
#include "core/convert.hpp"
#include "core/fault.hpp"
#include "core/trace.hpp"
#include "crimp/payload.hpp"

namespace crimp {
namespace {

// Sizes grow until an exchange takes this: link shapers let the first 100 KiB or so pass at once, and a slope needs two sizes behind them.
constexpr double kLongEnough = 0.02;
constexpr std::uint64_t kSizes[] = {64, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20};
constexpr int kRepeats = 3;
constexpr std::uint64_t kNodeSample = 1 << 18;  // elements

// A payload's size changes as residuals fill: measured anew at these calls with a codec.
bool due(std::uint64_t call) { return call == 0 || call == 16 || call == 256 || call == 4096; }

std::vector<std::uint64_t> multiples(std::uint64_t n, std::uint64_t of) {
  std::vector<std::uint64_t> all(n);
  for (std::uint64_t i = 0; i < n; ++i) all[i] = i * of;
  return all;
}

// The fastest of a few repetitions, each the slowest rank's.
template <class Work>
double agreed_time(Transport& transport, int repeats, Work work) {
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    work();
    double took = seconds(Clock::now() - begin);
    agree_on_largest(transport, {&took, 1});
    best = i == 0 ? took : std::min(best, took);
  }
  return best;
}

// True where `work` threw on no rank. `fault`: the name of what a test lets fail.
template <class Work>
bool agreed_success(Transport& transport, const char* fault, Work work) {
  double failed = 0;
  try {
    work();  // may be collective, as a node's memory is: so a fault comes behind it
    if (fault::fires(fault)) throw std::bad_alloc();
  } catch (const std::exception&) {
    failed = 1;
  }
  agree_on_largest(transport, {&failed, 1});
  return failed == 0;
}

template <class Exchange>
void fill(Curve& curve, Transport& transport, Exchange exchange) {
  exchange(kSizes[0]);  // connections are made at their first use
  double took = 0;
  for (const std::uint64_t size : kSizes) {
    std::uint64_t counted = size;
    took = agreed_time(transport, took > kLongEnough / 4 ? 1 : kRepeats, [&] { counted = exchange(size); });
    const auto bytes = static_cast<double>(counted);
    curve.add(bytes, fault::fires("slow_link") ? 1e-3 + 1e-4 * bytes : took);
    if (took > kLongEnough && size != kSizes[0]) break;  // of a single point no slope is known
  }
}

}  // namespace

void agree_on_largest(Transport& transport, std::span<double> values) {
  struct Block {
    double values[8];
  };
  static_assert(sizeof(Block) == kPayloadAlign);
  Block mine{};
  std::copy(values.begin(), values.end(), mine.values);
  std::vector<Block> all(static_cast<std::size_t>(transport.size()));
  transport.wait(transport.start_allgather(&mine, all.data(), sizeof mine));
  for (std::size_t i = 0; i < values.size(); ++i)
    for (const Block& block : all) values[i] = std::max(values[i], block.values[i]);
}

NetworkModel measure_network(Transport& transport, const PlainAllreduce& plain) {
  NetworkModel model;
  model.ranks = transport.size();
  const auto n = static_cast<std::uint64_t>(transport.size()), others = std::max<std::uint64_t>(1, n - 1);
  const std::uint64_t most = n * round_up(div_up(std::end(kSizes)[-1], others), kPayloadAlign);
  std::vector<std::uint8_t> send, receive;
  const bool had = agreed_success(transport, "measure_network", [&] {
    send.resize(most);
    receive.resize(most);
  });
  if (!had) throw Error(ErrorCode::out_of_memory, std::to_string(2 * most) + " bytes for measuring the network were not given to every rank");
  const auto part = [&](std::uint64_t bytes) { return round_up(div_up(bytes, others), kPayloadAlign); };
  fill(model.allgather, transport, [&](std::uint64_t bytes) {
    transport.wait(transport.start_allgather(send.data(), receive.data(), part(bytes)));
    return part(bytes) * others;
  });
  fill(model.alltoall, transport, [&](std::uint64_t bytes) {
    const std::vector<std::uint64_t> sizes(n, part(bytes));
    const auto offsets = multiples(n, part(bytes));
    transport.wait(transport.start_alltoallv(send.data(), sizes, offsets, receive.data(), sizes, offsets));
    return part(bytes) * others;
  });
  fill(model.plain, transport, [&](std::uint64_t bytes) {
    plain(reinterpret_cast<float*>(receive.data()), bytes / sizeof(float));
    return bytes;
  });
  return model;
}

CodecCost time_codec(const Codec& codec, std::span<const float> sample, Workers& workers) {
  // A few values would give the price of a call's overheads and padding for that of an element: they are repeated up to a whole piece.
  std::vector<float> values(sample.empty() ? 0 : std::max<std::uint64_t>(sample.size(), kPieceElements));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = sample[i % sample.size()];
  double largest = magnitude(Dtype::f32, values.data(), values.size());
  if (values.empty() || !(largest > 0 && largest <= codec.traits().max_magnitude)) {
    values.resize(kSampleElements);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 16 & 0xffff) - 32768) * 0x1p-20f;
  }
  const std::uint64_t count = values.size();
  Shape shape;
  shape.add_group(count);
  const bool keeps = codec.memory().kept();
  std::vector<float> memory(keeps ? codec.memory_elements(count) : 0), out(count);
  std::vector<float> scratch(scratch_elements(codec, count, keeps));
  std::vector<std::uint8_t> body(shape.body_bound(codec));
  const Feedback feedback = feedback_of(codec, keeps ? memory.data() : nullptr, codec.memory().planes(), count, 0);
  BodyView view;
  double all[4] = {};
  for (int i = 0; i < kRepeats; ++i) {
    const auto noted = [&](double& to, auto work) {
      const auto begin = Clock::now();
      work();
      const double took = seconds(Clock::now() - begin) / static_cast<double>(count);
      to = i == 0 ? took : std::min(to, took);
    };
    noted(all[0], [&] { largest = std::max(largest, magnitude(Dtype::f32, values.data(), count)); });
    std::uint64_t bytes = 0;
    noted(all[1], [&] {
      bytes = encode_body(codec, shape, values.data(), keeps ? std::span(&feedback, 1) : std::span<const Feedback>(), {0, 0, 0}, body.data(),
                          scratch.data(), workers);
    });
    all[2] = static_cast<double>(bytes) / static_cast<double>(count);
    view.open(codec, shape, std::span(body).first(bytes));
    noted(all[3], [&] { decode_add(codec, shape, std::span(&view, 1), {0, 0, 0}, out.data(), false, workers); });
  }
  return {.encode_s = all[1], .decode_s = all[3], .payload_bytes = all[2], .scan_s = all[0]};
}

CodecCost measure_codec(Transport& transport, const Codec& codec, const std::function<std::vector<float>()>& sample, Workers& workers) {
  CodecCost mine;
  if (!agreed_success(transport, "measure_codec", [&] { mine = time_codec(codec, sample(), workers); }))
    throw Error(ErrorCode::out_of_memory, "memory for measuring the codec " + codec.spec() + " was not given to every rank");
  double all[4] = {mine.encode_s, mine.decode_s, mine.payload_bytes, mine.scan_s};
  agree_on_largest(transport, all);
  return {.encode_s = all[0], .decode_s = all[1], .payload_bytes = all[2], .scan_s = all[3]};
}

double predicted(const AlgorithmEntry& entry, const NetworkModel& network, const CodecCost& cost, const ChoiceQuery& query) {
  const std::uint64_t chunk = entry.chunk_elements(query.chunk_setting, *query.codec, network.ranks);
  return cost.scan_s * static_cast<double>(query.count) + entry.cost({network, cost, query.count, chunk});
}

std::optional<HierarchyModel> measure_hierarchy(Transport& all, const Hierarchy& h, const PlainAllreduce& plain_between_leaders) {
  HierarchyModel model;
  if (h.leaders) model.leaders = measure_network(*h.leaders, plain_between_leaders);
  model.leaders.ranks = h.nodes;
  // The leaders agree among themselves already; the others learn it.
  for (Curve* curve : {&model.leaders.allgather, &model.leaders.alltoall, &model.leaders.plain}) {
    double points[2 * std::size(kSizes)] = {};
    for (std::size_t i = 0; i < curve->points().size(); ++i) points[2 * i] = curve->points()[i].bytes, points[2 * i + 1] = curve->points()[i].s;
    for (std::size_t i = 0; i < std::size(points); i += 8) agree_on_largest(all, std::span(points).subspan(i, std::min<std::size_t>(8, std::size(points) - i)));
    *curve = {};
    for (std::size_t i = 0; i < std::size(points) && points[i + 1] > 0; i += 2) curve->add(points[i], points[i + 1]);
  }
  double ranks = h.node->size();
  agree_on_largest(all, {&ranks, 1});
  model.node.ranks = static_cast<int>(ranks);
  std::vector<float> values;
  std::byte* memory = nullptr;
  const bool had = agreed_success(all, "measure_node", [&] {
    memory = h.node->memory(node_bytes(kNodeSample, h.node->size()));
    values.resize(kNodeSample);
  });
  if (!had) return {};
  model.node.barrier_s = agreed_time(all, kRepeats, [&] { h.node->barrier(); });
  const double took = agreed_time(all, kRepeats, [&] {
    const float* sums = sum_in_node(*h.node, memory, values.data(), kNodeSample);
    h.node->barrier();
    std::copy(sums, sums + kNodeSample, values.data());
    h.node->barrier();
  });
  model.node.byte_s = std::max(0.0, took - 2 * model.node.barrier_s) / (kNodeSample * sizeof(float));
  return model;
}

Choice cheapest(const NetworkModel& network, const HierarchyModel* hierarchy, const CodecCost& cost, const ChoiceQuery& query) {
  Choice best{.why = "cheapest by the model", .plain_s = network.plain.at(static_cast<double>(query.plain_bytes))};
  bool any = false, predictable = false;
  const auto consider = [&](const AlgorithmEntry& entry, const NetworkModel& of, double more, bool nodes) {
    if (!entry.obstacle(*query.codec, of.ranks).empty() || entry.algorithm == Algorithm::hierarchical) return;
    if (!entry.cost) {
      if (!any && !nodes) any = true, best.algorithm = entry.algorithm, best.why = "the only one for this codec";
      return;
    }
    const double s = more + predicted(entry, of, cost, query);
    if (predictable && s >= best.predicted_s) return;
    any = predictable = true;
    best.algorithm = nodes ? Algorithm::hierarchical : entry.algorithm;
    best.inner = entry.algorithm;
    best.predicted_s = s;
    best.why = "cheapest by the model";
  };
  for (const auto& entry : algorithms()) consider(entry, network, 0, false);
  if (hierarchy)
    for (const auto& entry : algorithms())
      consider(entry, hierarchy->leaders, 4 * static_cast<double>(query.count) * hierarchy->node.byte_s + 3 * hierarchy->node.barrier_s, true);
  // What plain MPI would do as fast is not worth its loss.
  best.plain = predictable && best.predicted_s >= best.plain_s;
  return best;
}

Choice Chooser::choose(Transport& transport, Workers& workers, const ChoiceQuery& query, const PlainAllreduce& plain,
                       const std::function<std::vector<float>()>& sample) {
  const auto can = [&](const AlgorithmEntry& entry, int ranks) {
    return entry.algorithm != Algorithm::hierarchical && entry.obstacle(*query.codec, ranks).empty();
  };
  const auto first = [&](int ranks) {
    for (const auto& entry : algorithms())
      if (can(entry, ranks)) return entry.algorithm;
    throw Error(ErrorCode::codec_unknown, "no algorithm of this build runs the codec " + query.codec->spec());
  };
  if (forced_ == "hierarchical" && hierarchy_ && !query.codec->traits().whole_tensors) return {.algorithm = Algorithm::hierarchical, .why = "CRIMP_ALGORITHM", .inner = first(hierarchy_->nodes)};
  if (forced_ != "auto") {
    const AlgorithmEntry* entry = find_algorithm(forced_);
    if (entry && can(*entry, transport.size())) return {.algorithm = entry->algorithm, .why = "CRIMP_ALGORITHM"};
    return {.algorithm = first(transport.size()), .why = forced_ == "hierarchical" ? "no nodes of several ranks" : "CRIMP_ALGORITHM cannot run the codec"};
  }
  if (query.codec->traits().whole_tensors) return {.algorithm = first(transport.size()), .why = "the codec's only algorithm"};
  if (network_.plain.empty()) {
    network_ = measure_network(transport, plain);
    if (hierarchy_) hierarchy_model_ = measure_hierarchy(transport, *hierarchy_, between_leaders_);
    if (!hierarchy_model_) hierarchy_ = nullptr;
  }
  Measured& codec = codecs_[query.codec];
  if (due(codec.calls)) codec.cost = measure_codec(transport, *query.codec, sample, workers);
  ++codec.calls;  // not where a rank lacked memory: then the next call measures
  return cheapest(network_, hierarchy_ ? &*hierarchy_model_ : nullptr, codec.cost, query);
}

}  // namespace crimp
