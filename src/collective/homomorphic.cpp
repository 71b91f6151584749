// Integer sums by owners: a chunk's indices go to the ranks that own shares of its coordinates, who add up the integers
// that they stand for; the sums go to all ranks, in as many bits as they need.
#include <algorithm>
#include <array>
#include <cstring>

#include "collective/frame.hpp"
#include "collective/integer_sums.hpp"
#include "core/reserve.hpp"

namespace crimp {
namespace {

// What this takes of the arena beside IntegerSums::Scratch. Frames lie `shard` or `sums` bytes apart, those of the
// largest share.
struct Frames {
  Frames(const IntegerRoute& route, ArenaParts& parts) {
    const auto ranks = static_cast<std::uint64_t>(route.ranks);
    const std::uint64_t share = div_up(route.coordinates / kSumUnit, ranks) * kSumUnit;
    shard = sizeof(Header) + share * route.codec().index_bits() / 8;
    sums = sizeof(Header) + share * static_cast<std::uint64_t>(route.width) / 8;
    for (Of& of : chunk) {
      of.send = parts.host<std::uint8_t>(ranks * shard);
      of.receive = parts.host<std::uint8_t>(ranks * shard);
      of.my_sums = parts.host<std::uint8_t>(sums);
      of.sums = parts.host<std::uint8_t>(ranks * sums);
      of.receive_there = parts.mirror(of.receive, ranks * shard);
      of.my_sums_there = parts.mirror(of.my_sums, sums);
      of.sums_there = parts.mirror(of.sums, ranks * sums);
    }
    largest = parts.host<std::uint32_t>(ranks);
    largest_there = parts.mirror(largest, ranks);
  }
  std::uint64_t shard, sums;
  struct Of {
    std::uint8_t *send, *receive;  // indices, of every rank's share and of this rank's
    std::uint8_t *my_sums, *sums;  // of this rank's share, and of all
    std::uint8_t *receive_there, *my_sums_there, *sums_there;
  };
  Of chunk[IntegerRoute::kSumming];
  std::uint32_t *largest, *largest_there;  // of each share's sums, where it is too large
};

class OwnersRoute final : public IntegerRoute {
 public:
  OwnersRoute(const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : IntegerRoute(Algorithm::homomorphic, of, chunk_elements, transport_ranks) {
    ArenaParts parts(nullptr, nullptr);
    const IntegerSums::Scratch common(*this, parts);
    const Frames frames(*this, parts);
    set_bytes(parts);
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
};

class SumsByOwners final : public Rounds<SumsByOwners, IntegerSums> {
 public:
  SumsByOwners(Transport& transport, const OwnersRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : Rounds(transport, workers, route, call, trace, route.chunks().size()), width_(route.width),
        frames_(route, parts_), lists_(3 * ranks()) {}

 private:
  friend class Rounds<SumsByOwners, IntegerSums>;
  static const Step kSteps[7];
  Transport::Ticket indices_of(std::uint64_t i) { return indices_under_way(i); }
  Transport::Ticket sums_of(std::uint64_t i) { return sums_under_way(i); }

  const Frames::Of& frames(std::uint64_t i) const { return frames_.chunk[i % kSumming]; }
  Transport::Ticket& indices_under_way(std::uint64_t i) { return indices_under_way_[i % kSumming]; }
  Transport::Ticket& sums_under_way(std::uint64_t i) { return sums_under_way_[i % kSumming]; }
  // Where rank r's share of a chunk's coordinates begins, and its length.
  std::uint64_t share(const Chunk& c, std::size_t r) const { return share_begin(c.coordinates, r, ranks()); }
  std::uint64_t length(const Chunk& c, std::size_t r) const { return share(c, r + 1) - share(c, r); }
  std::uint64_t sum_bytes(std::uint64_t n) const { return n * static_cast<std::uint64_t>(width_) / 8; }

  // Completes a frame whose body is in place. The header alone counts, with zeros behind it, where what this rank
  // received was corrupt.
  void put(std::span<std::uint8_t> frame, std::uint64_t i, std::uint8_t stage) {
    const Chunk& c = chunk(i);
    Header h = header(i, c.bound.partition().count(), stage);
    if (c.good) return seal_frame(h, frame, part_.checksum);
    h.flags = kFlagCorrupt;
    std::fill(frame.begin(), frame.end(), std::uint8_t{0});
    std::memcpy(frame.data(), &h, sizeof h);
  }
  // Whether what rank r sent is what it should be.
  bool check(std::span<const std::uint8_t> frame, std::uint64_t i, std::uint8_t stage, std::size_t r) {
    return usable(frame_defect(header(i, chunk(i).bound.partition().count(), stage), frame), r, i);
  }

  void send_indices(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(c.norms_under_way, i);
    const auto begin = Clock::now();
    quantise(i, [&] {
      for (std::size_t r = 0; r < ranks(); ++r)
        fetch(frames(i).send + r * frames_.shard + sizeof(Header), indices() + index_bytes(share(c, r)),
              index_bytes(length(c, r)));
    });
    const auto [send, receive, at] = lists();
    std::fill(receive.begin(), receive.end(), sizeof(Header) + index_bytes(length(c, rank())));
    for (std::size_t r = 0; r < ranks(); ++r) {
      at[r] = r * frames_.shard;
      send[r] = sizeof(Header) + index_bytes(length(c, r));
      put({frames(i).send + at[r], send[r]}, i, 1);
      if (r == rank()) continue;
      result_.sent_bytes += send[r];
      result_.received_bytes += receive[r];
    }
    indices_under_way(i) =
        under_way(transport_.start_alltoallv(frames(i).send, send, at, frames(i).receive, receive, at));
    result_.encode_s += span("encode", i, begin);
  }

  void add(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(indices_under_way(i), i);
    const auto begin = Clock::now();
    const std::uint64_t n = length(c, rank());
    const std::uint64_t frame = sizeof(Header) + index_bytes(n);
    may_corrupt_wire({frames(i).receive + sizeof(Header), index_bytes(n)});
    for (std::size_t r = 0; r < ranks(); ++r)
      c.good = check({frames(i).receive + r * frames_.shard, frame}, i, 1, r) && c.good;
    if (c.good) c.good = attempt([&] { add_indices(i, n); });
    put({frames(i).my_sums, sizeof(Header) + sum_bytes(n)}, i, 2);
    const auto [bytes, _, at] = lists();
    for (std::size_t r = 0; r < ranks(); ++r) {
      bytes[r] = sizeof(Header) + sum_bytes(length(c, r));
      at[r] = r * frames_.sums;
      if (r != rank()) result_.received_bytes += bytes[r];
    }
    result_.sent_bytes += bytes[rank()];
    sums_under_way(i) = under_way(transport_.start_allgatherv(frames(i).my_sums, bytes, at, frames(i).sums));
    result_.decode_s += span("add", i, begin);
  }
  // Of this rank's share.
  void add_indices(std::uint64_t i, std::uint64_t coordinates) {
    const Frames::Of& f = frames(i);
    bring(f.receive_there, f.receive, (ranks() - 1) * frames_.shard + sizeof(Header) + index_bytes(coordinates));
    steps_->add({f.receive_there + sizeof(Header), frames_.shard, static_cast<std::uint32_t>(ranks())}, coordinates,
                width_, sums(), f.my_sums_there + sizeof(Header), mover());
    fetch(f.my_sums + sizeof(Header), f.my_sums_there + sizeof(Header), sum_bytes(coordinates));
    steps_->finish(mover());
  }

  void decode(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(sums_under_way(i), i);
    const auto begin = Clock::now();
    for (std::size_t r = 0; r < ranks(); ++r)
      c.good = check({frames(i).sums + r * frames_.sums, sizeof(Header) + sum_bytes(length(c, r))}, i, 2, r) && c.good;
    if (c.good) c.good = attempt([&] { unpack(i); });
    for (std::size_t r = 0; c.good && r < ranks(); ++r) {
      if (frames_.largest[r] == 0) continue;
      blame(r, i, "a sum of it is beyond " + std::to_string(most()));
      c.good = false;
    }
    decode_sums(i);
    result_.decode_s += span("decode", i, begin);
  }
  std::uint32_t most() const { return codec_.granularity() * static_cast<std::uint32_t>(ranks()); }
  void unpack(std::uint64_t i) {
    const Frames::Of& f = frames(i);
    const std::size_t words = ranks() * sizeof *frames_.largest, last = ranks() - 1;
    std::memset(frames_.largest, 0, words);
    bring(frames_.largest_there, frames_.largest, words);
    bring(f.sums_there, f.sums, last * frames_.sums + sizeof(Header) + sum_bytes(length(chunk(i), last)));
    steps_->unpack({f.sums_there + sizeof(Header), frames_.sums, static_cast<std::uint32_t>(ranks()), width_},
                   chunk(i).coordinates, most(), sums(), frames_.largest_there);
    fetch(frames_.largest, frames_.largest_there, words);
    steps_->finish(mover());
  }

  // One after another, for an exchange's sizes and places.
  std::array<std::span<std::uint64_t>, 3> lists() {
    const std::span all(lists_);
    return {all.first(ranks()), all.subspan(ranks(), ranks()), all.last(ranks())};
  }

  int width_;
  Frames frames_;
  std::vector<std::uint64_t> lists_;
  Transport::Ticket indices_under_way_[kSumming] = {}, sums_under_way_[kSumming] = {};
};

constexpr SumsByOwners::Step SumsByOwners::kSteps[] = {
    {0, &SumsByOwners::find_norms},
    {1, &SumsByOwners::accept_headers, &SumsByOwners::headers_of},
    {0, &SumsByOwners::start_headers},
    {1, &SumsByOwners::start_norms},
    {2, &SumsByOwners::send_indices, &SumsByOwners::norms_of},
    {3, &SumsByOwners::add, &SumsByOwners::indices_of},
    {4, &SumsByOwners::decode, &SumsByOwners::sums_of},
};

std::unique_ptr<Exchange> OwnersRoute::exchange(Transport& transport, const CallBuffers& call, Workers& workers,
                                                Trace* trace) const {
  return std::make_unique<SumsByOwners>(transport, *this, call, workers, trace);
}

}  // namespace

AlgorithmEntry homomorphic_algorithm() {
  AlgorithmEntry entry = integer_sums_entry();
  entry.algorithm = Algorithm::homomorphic;
  entry.name = "homomorphic";
  entry.summary = "indices to owners, who add integers; sums to every rank, which decodes once";
  entry.plan = [](const PartPlan& part, std::uint64_t chunk, int ranks) -> std::unique_ptr<RoutePlan> {
    return std::make_unique<OwnersRoute>(part, chunk, ranks);
  };
  entry.cost = [](const CostQuery& q) {
    // Sums have a bit more than indices (g is about 2^(bits+1)) and one for every doubling of the ranks. Norms cost a
    // sixth of an encoding, looking up and adding a quarter of a decoding, the decoding in floats two of a payload's.
    const double n = q.network.ranks, m = q.per_chunk(), others = n - 1;
    double sum_bytes = q.codec.payload_bytes + 0.125;
    for (double ranks = 1; ranks < n; ranks *= 2) sum_bytes += 0.125;
    const double wire = q.network.allgather.at(others * sizeof(Header)) + q.network.allgather.at(others * m / 256) +
                        q.network.alltoall.at(others * (sizeof(Header) + m / n * q.codec.payload_bytes)) +
                        q.network.allgather.at(others * (sizeof(Header) + m / n * sum_bytes));
    return pipelined(q.chunks(), m * (1.17 * q.codec.encode_s + 2.25 * q.codec.decode_s) + 5 * q.codec.launch_s, wire);
  };
  return entry;
}

}  // namespace crimp
