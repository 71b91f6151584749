#include "collective/measure.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <new>

#include "codec/payload.hpp"
#include "collective/relay.hpp"
#include "collective/wire.hpp"
#include "core/clock.hpp"
#include "core/convert.hpp"
#include "core/error.hpp"
#include "core/fault.hpp"
#include "core/reserve.hpp"
#include "schedule/layout.hpp"

namespace crimp {
namespace {

// Sizes grow until an exchange takes this: link shapers let the first 100 KiB or so pass at once, and a slope needs two
// sizes behind them.
constexpr double kLongEnough = 0.02;
constexpr std::uint64_t kSizes[] = {64, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20};
constexpr int kRepeats = 3;
constexpr int kSlowRepeats = 2;  // one alone, while ranks' other threads compute, was more than ten times too long
constexpr int kPayloads = 3;     // that are added, to learn what one more costs
constexpr std::uint64_t kNodeSample = 1 << 18;    // elements
constexpr std::uint64_t kDeviceSample = 1 << 22;  // likewise

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
    took = agreed_time(transport, took > kLongEnough / 4 ? kSlowRepeats : kRepeats, [&] { counted = exchange(size); });
    const auto bytes = static_cast<double>(counted);
    // Among many ranks the shortest sizes are one and the same, because every one sends a unit at least.
    if (!curve.empty() && bytes <= curve.points().back().bytes) continue;
    insist([&] { curve.add(bytes, fault::fires("slow_link") ? 1e-3 + 1e-4 * bytes : took); });
    if (took > kLongEnough && curve.points().size() > 1) break;  // of a single point no slope is known
  }
}

}  // namespace

void agree_on_largest(Transport& transport, std::span<double> values) {
  struct Block {
    double values[8];
  };
  static_assert(sizeof(Block) == sizeof(Header) && kWireMagic % 2 == 1);
  Block mine{};
  std::copy(values.begin(), values.end(), mine.values);
  // A header begins with a bit that is set, a block with one that is not: neither is taken for the other.
  const auto first = [](const Block& block) { return std::bit_cast<std::uint64_t>(block.values[0]); };
  mine.values[0] = std::bit_cast<double>(first(mine) & ~std::uint64_t{1});
  auto all = insist([&] { return std::vector<Block>(static_cast<std::size_t>(transport.size())); });
  transport.wait(transport.start_allgather(&mine, all.data(), sizeof mine));
  for (std::size_t r = 0; r < all.size(); ++r)
    if (first(all[r]) & 1)
      throw Error(ErrorCode::call_differs,
                  "rank " + std::to_string(r) + " and rank " + std::to_string(transport.rank()) +
                      " are not in the same call: here all are to measure what it takes (CRIMP_ALGORITHM=auto), there "
                      "it is under way. Tensors, their codecs, counts or types differ between the ranks");
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = mine.values[i];
    for (const Block& block : all) values[i] = std::max(values[i], block.values[i]);
  }
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
  if (!had)
    throw Error(ErrorCode::out_of_memory,
                std::to_string(2 * most) + " bytes for measuring the network were not given to every rank");
  const auto part = [&](std::uint64_t bytes) { return round_up(div_up(bytes, others), kPayloadAlign); };
  fill(model.allgather, transport, [&](std::uint64_t bytes) {
    transport.wait(transport.start_allgather(send.data(), receive.data(), part(bytes)));
    return part(bytes) * others;
  });
  fill(model.alltoall, transport, [&](std::uint64_t bytes) {
    const auto sizes = insist([&] { return std::vector<std::uint64_t>(n, part(bytes)); });
    const auto offsets = insist([&] { return multiples(n, part(bytes)); });
    transport.wait(transport.start_alltoallv(send.data(), sizes, offsets, receive.data(), sizes, offsets));
    return part(bytes) * others;
  });
  if (transport.size() >= kFewestRelayed) {
    const auto mine = static_cast<std::uint64_t>(transport.rank());
    auto to = insist([&] { return std::vector<std::uint64_t>(n); });
    auto from = to;
    const auto nowhere = to;
    fill(model.step, transport, [&](std::uint64_t bytes) {
      to[(mine + 1) % n] = from[(mine + n - 1) % n] = bytes;
      transport.wait(transport.start_alltoallv(send.data(), to, nowhere, receive.data(), from, nowhere));
      return bytes;
    });
  }
  if (!plain) return model;
  fill(model.plain, transport, [&](std::uint64_t bytes) {
    plain(reinterpret_cast<float*>(receive.data()), bytes / sizeof(float));
    return bytes;
  });
  return model;
}

CodecCost time_codec(const Codec& codec, std::span<const float> sample, std::uint64_t most, Backend& backend) {
  // A few values would give the price of a call's overheads and padding for that of an element.
  std::uint64_t count = sample.empty() ? 0
                                       : std::max<std::uint64_t>(
                                             sample.size(), backend.asynchronous() ? std::min(most, kDeviceSample) : 0);
  if (count) count = std::max(count, kPieceElements);
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = sample[i % sample.size()];
  const double top = magnitude(Dtype::f32, values.data(), count);
  if (!(top > 0 && top <= codec.traits().max_magnitude)) {
    values.resize(std::max(count, kSampleElements));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(static_cast<int>(i * 2654435761u >> 16 & 0xffff) - 32768) * 0x1p-20f;
  }
  count = values.size();
  const Group group{0, count};
  ChunkPartition partition;
  partition.add_group(count);
  ChunkPartition piece;  // what it takes is what begins and ends any work
  piece.add_group(std::min(count, kPieceElements));
  const bool keeps = codec.feedback().kept();
  const auto floats = [&](std::uint64_t n) { return Memory(n * sizeof(float), backend.memory()); };
  const auto at = [](const Memory& m) { return reinterpret_cast<float*>(m.data()); };
  const Memory in = floats(count), out = floats(count), scratch = floats(scratch_elements(codec, count, keeps));
  const Memory kept = floats(keeps ? codec.feedback_elements(count) : 0);
  backend.memory().write(in.data(), values.data(), in.bytes());
  Arena bodies(backend.staging());
  bodies.reserve(Arena::padded(partition.body_bound(codec)));
  backend.prepare(codec, partition, kPayloads);
  backend.prepare(bodies);
  auto* const body = reinterpret_cast<std::uint8_t*>(bodies.take(partition.body_bound(codec)));
  const RandomCounter late{0, ~std::uint32_t{0}, 0};  // when warm-ups are over
  FeedbackView feedback = feedback_of(codec, keeps ? at(kept) : nullptr, codec.feedback().arrays(), count, 0);
  feedback.turn = late.step;
  const std::span<const FeedbackView> memories = keeps ? std::span(&feedback, 1) : std::span<const FeedbackView>();
  std::array<BodyView, kPayloads> views;
  CodecCost cost;
  double sum_s = 0, launch_encode_s = 0, launch_decode_s = 0;
  for (int i = 0; i < kRepeats; ++i) {
    const auto noted = [&](double& to, auto work) {
      const auto begin = Clock::now();
      work();
      const double took = seconds(Clock::now() - begin) / static_cast<double>(count);
      to = i == 0 ? took : std::min(to, took);
    };
    double largest;
    noted(cost.scan_s, [&] { backend.magnitudes(Dtype::f32, in.data(), std::span(&group, 1), &largest); });
    std::uint64_t bytes = 0;
    const auto encode = [&](const ChunkPartition& of) {
      const EncodeJob job{codec, of, at(in), memories, late, body, at(scratch), &bytes};
      backend.finish_encode(backend.start_encode({&job, 1}, {}), {});
    };
    const auto open = [&](const ChunkPartition& of) {
      for (BodyView& view : views)
        if (const std::string why = backend.open(view, codec, of, {body, bytes}); !why.empty())
          throw Error(ErrorCode::device_failed, why);
    };
    const auto decode = [&](const ChunkPartition& of, int payloads) {
      int bad;
      const DecodeJob job{codec, of,  std::span(views).first(static_cast<std::size_t>(payloads)), late, at(out), false,
                          0,     &bad};
      backend.finish_decode(backend.start_decode({&job, 1}, {}), {});
    };
    if (backend.asynchronous()) {
      noted(launch_encode_s, [&] { encode(piece); });
      open(piece);
      noted(launch_decode_s, [&] { decode(piece, 1); });
    }
    noted(cost.encode_s, [&] { encode(partition); });
    cost.payload_bytes = static_cast<double>(bytes) / static_cast<double>(count);
    open(partition);
    noted(cost.decode_s, [&] { decode(partition, 1); });
    noted(sum_s, [&] { decode(partition, kPayloads); });
  }
  if (backend.asynchronous()) {
    cost.launch_s = (launch_encode_s + launch_decode_s) / 2 * static_cast<double>(count);
    const auto less = [](double& all, double launch) { all = std::max(all - launch, all / 8); };  // as below
    less(cost.encode_s, launch_encode_s);
    less(cost.decode_s, launch_decode_s);
    less(sum_s, launch_decode_s);
  }
  cost.add_s = std::max(sum_s / kPayloads / 2, (sum_s - cost.decode_s) / (kPayloads - 1));  // whatever noise says
  backend.synchronize();
  return cost;
}

CodecCost measure_codec(Transport& transport, const Codec& codec, const std::function<CodecCost()>& time) {
  CodecCost mine;
  if (!agreed_success(transport, "measure_codec", [&] { mine = time(); }))
    throw Error(ErrorCode::out_of_memory,
                "memory for measuring the codec " + codec.spec() + " was not given to every rank");
  double all[6] = {mine.encode_s, mine.decode_s, mine.payload_bytes, mine.scan_s, mine.add_s, mine.launch_s};
  agree_on_largest(transport, all);
  return {.encode_s = all[0],
          .decode_s = all[1],
          .payload_bytes = all[2],
          .scan_s = all[3],
          .add_s = all[4],
          .launch_s = all[5]};
}

std::optional<HierarchyModel> measure_hierarchy(Transport& all, const Hierarchy& h, Backend* values) {
  HierarchyModel model;
  double failed = 0;
  try {
    if (h.leaders && h.nodes > 1) model.leaders = measure_network(*h.leaders, {});
  } catch (const Error& e) {  // of memory the leaders say so alike, but only to one another
    if (e.code() != ErrorCode::out_of_memory) throw;
    failed = 1;
  }
  agree_on_largest(all, {&failed, 1});
  if (failed != 0) return {};
  model.leaders.ranks = h.nodes;
  // The leaders agree among themselves already; the others learn it.
  for (Curve* curve : {&model.leaders.allgather, &model.leaders.alltoall, &model.leaders.step}) {
    double points[2 * std::size(kSizes)] = {};
    for (std::size_t i = 0; i < curve->points().size(); ++i)
      points[2 * i] = curve->points()[i].bytes, points[2 * i + 1] = curve->points()[i].s;
    for (std::size_t i = 0; i < std::size(points); i += 8)
      agree_on_largest(all, std::span(points).subspan(i, std::min<std::size_t>(8, std::size(points) - i)));
    *curve = {};
    for (std::size_t i = 0; i < std::size(points) && points[i + 1] > 0; i += 2)
      insist([&] { curve->add(points[i], points[i + 1]); });
  }
  double ranks = h.node->size();
  agree_on_largest(all, {&ranks, 1});
  model.node.ranks = static_cast<int>(ranks);
  // Through devices a node's sum takes long to begin and then little: what begins is of the barriers' share.
  Memory in, sums;
  const auto make = [&](std::uint64_t sample, MemoryResource& memory) {
    for (Memory* of : {&in, &sums}) *of = Memory(sample * sizeof(float), memory);
  };
  const bool had = agreed_success(all, "measure_node", [&] {
    if (values && h.nodes > 1) try {
        return make(kDeviceSample, values->memory());
      } catch (const Error&) {  // a full device has no part in it
        values = nullptr;
      }
    make(kNodeSample, host_memory());
    for (Memory* of : {&in, &sums}) std::memset(of->data(), 0, of->bytes());  // untouched, all pages are one of zeros
  });
  if (!had) return {};
  MemoryResource& memory = values ? values->memory() : host_memory();
  h.node->notes()[static_cast<std::size_t>(h.node->rank())].device = values ? values->device() : -1;
  h.node->barrier();
  const bool on_devices = h.nodes > 1 && h.node->devices.open(*h.node, values, kDeviceSample);
  double host = on_devices ? 0 : 1;  // of any node
  agree_on_largest(all, {&host, 1});
  const std::uint64_t sample = host != 0 ? kNodeSample : kDeviceSample;
  const auto layout = insist([&] { return Layout::unknown(sample); });
  auto* const from = reinterpret_cast<float*>(in.data());
  auto* const to = reinterpret_cast<float*>(sums.data());
  const auto sum = [&](std::uint64_t count) {
    if (h.nodes == 1) return sum_on_node(*h.node, from, to, count);
    if (on_devices)
      h.node->devices.sum(*h.node, from, to, count), h.node->devices.share(*h.node, *layout, to, from, count);
    else sum_in_node(*h.node, from, to, count, memory), share_in_node(*h.node, *layout, to, from, count, memory);
  };
  model.node.barrier_s = host != 0 ? agreed_time(all, kRepeats, [&] { h.node->barrier(); })
                                   : agreed_time(all, kRepeats, [&] { sum(1); }) / 3;
  const double took = agreed_time(all, kRepeats, [&] { sum(sample); });
  model.node.byte_s =
      std::max(0.0, took - (host != 0 ? 2 : 3) * model.node.barrier_s) / static_cast<double>(sample * sizeof(float));
  return model;
}

}  // namespace crimp
