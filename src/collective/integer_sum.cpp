// Integer sums by MPI: it adds the integers of the indices themselves, as uint8 or, where the sums do not fit, as
// uint16.
#include <algorithm>
#include <cstring>

#include "collective/integer_sums.hpp"

namespace crimp {
namespace {

// What MPI adds of a chunk: the integers, then a word that counts the ranks that had to send zeros.
struct Addends {
  explicit Addends(const IntegerRoute& route) : type(route.width <= 8 ? Integer::u8 : Integer::u16) {}
  int size() const { return type == Integer::u8 ? 1 : 2; }
  std::uint64_t values(std::uint64_t coordinates) const { return coordinates * static_cast<std::uint64_t>(size()); }
  std::uint64_t bytes(std::uint64_t coordinates) const { return values(coordinates) + kPayloadAlign; }
  Integer type;
};

// What this takes of the arena beside IntegerSums::Scratch.
struct Buffers {
  Buffers(const IntegerRoute& route, ArenaParts& parts) {
    const std::uint64_t bytes = Addends(route).bytes(route.coordinates);
    for (Of& of : chunk) {
      of.send = parts.host<std::uint8_t>(bytes);
      of.receive = parts.host<std::uint8_t>(bytes);
      of.send_there = parts.mirror(of.send, bytes);
      of.receive_there = parts.mirror(of.receive, bytes);
    }
    largest = parts.backend<std::uint32_t>(1);
  }
  struct Of {
    std::uint8_t *send, *receive, *send_there, *receive_there;
  };
  Of chunk[IntegerRoute::kSumming];
  std::uint32_t* largest;  // that no sum of 8 bits is above needs no look
};

class MpiSumsRoute final : public IntegerRoute {
 public:
  MpiSumsRoute(const PartPlan& of, std::uint64_t chunk_elements, int transport_ranks)
      : IntegerRoute(Algorithm::integer_sum, of, chunk_elements, transport_ranks) {
    ArenaParts parts(nullptr, nullptr);
    const IntegerSums::Scratch common(*this, parts);
    const Buffers buffers(*this, parts);
    set_bytes(parts);
  }
  std::unique_ptr<Exchange> exchange(Transport&, const CallBuffers&, Workers&, Trace*) const override;
};

class SumsByMpi final : public Rounds<SumsByMpi, IntegerSums> {
 public:
  SumsByMpi(Transport& transport, const MpiSumsRoute& route, const CallBuffers& call, Workers& workers, Trace* trace)
      : Rounds(transport, workers, route, call, trace, route.chunks().size()), addends_(route),
        buffers_(route, parts_) {}

 private:
  friend class Rounds<SumsByMpi, IntegerSums>;
  static const Step kSteps[6];
  Transport::Ticket sums_of(std::uint64_t i) { return sums_under_way(i); }

  const Buffers::Of& buffers(std::uint64_t i) const { return buffers_.chunk[i % kSumming]; }
  Transport::Ticket& sums_under_way(std::uint64_t i) { return sums_under_way_[i % kSumming]; }

  void start_sums(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(c.norms_under_way, i);
    const auto begin = Clock::now();
    std::uint8_t *const send = buffers(i).send, *const word = send + addends_.values(c.coordinates);
    quantise(i, [&] {
      steps_->integers(indices(), c.coordinates, addends_.size(), buffers(i).send_there);
      fetch(send, buffers(i).send_there, addends_.values(c.coordinates));
    });
    if (!c.good) std::fill(send, word, std::uint8_t{0});
    std::memset(word, 0, kPayloadAlign);
    *word = !c.good;
    const std::uint64_t bytes = addends_.bytes(c.coordinates);
    sums_under_way(i) = under_way(transport_.start_sum(send, buffers(i).receive, bytes, addends_.type));
    result_.sent_bytes += bytes;
    result_.received_bytes += bytes;
    result_.encode_s += span("encode", i, begin);
  }

  void decode(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(sums_under_way(i), i);
    const auto begin = Clock::now();
    const std::uint8_t* const received = buffers(i).receive;
    if (received[addends_.values(c.coordinates)] != 0) {
      blame(rank(), i, "some rank received corrupt norms, or could not encode");
      c.good = false;
    }
    if (c.good) c.good = attempt([&] { take_sums(i); });
    decode_sums(i);
    result_.decode_s += span("decode", i, begin);
  }

  // To sums(): bytes side by side are packed sums of eight bits, of one share.
  void take_sums(std::uint64_t i) {
    const Buffers::Of& b = buffers(i);
    const std::uint64_t n = chunk(i).coordinates, bytes = addends_.values(n);
    if (addends_.type == Integer::u16) return take_words(b.receive, bytes);
    bring(b.receive_there, b.receive, bytes);
    steps_->unpack({b.receive_there, 0, 1, 8}, n, 255, sums(), buffers_.largest);
  }
  void take_words(const std::uint8_t* received, std::uint64_t bytes) {
    if (bytes) backend_.write(sums(), received, bytes);
  }

  Addends addends_;
  Buffers buffers_;
  Transport::Ticket sums_under_way_[kSumming] = {};
};

constexpr SumsByMpi::Step SumsByMpi::kSteps[] = {
    {0, &SumsByMpi::find_norms},
    {1, &SumsByMpi::accept_headers, &SumsByMpi::headers_of},
    {0, &SumsByMpi::start_headers},
    {1, &SumsByMpi::start_norms},
    {2, &SumsByMpi::start_sums, &SumsByMpi::norms_of},
    {3, &SumsByMpi::decode, &SumsByMpi::sums_of},
};

std::unique_ptr<Exchange> MpiSumsRoute::exchange(Transport& transport, const CallBuffers& call, Workers& workers,
                                                 Trace* trace) const {
  return std::make_unique<SumsByMpi>(transport, *this, call, workers, trace);
}

}  // namespace

AlgorithmEntry integer_sum_algorithm() {
  AlgorithmEntry entry = integer_sums_entry();
  entry.algorithm = Algorithm::integer_sum;
  entry.name = "integer_sum";
  entry.summary = "the integers of the indices, added by MPI; every rank decodes the sums once";
  entry.plan = [](const PartPlan& part, std::uint64_t chunk, int ranks) -> std::unique_ptr<RoutePlan> {
    return std::make_unique<MpiSumsRoute>(part, chunk, ranks);
  };
  entry.cost = [](const CostQuery& q) {
    const double m = q.per_chunk(), others = q.network.ranks - 1.0;
    double bits = 8 * q.codec.payload_bytes + 1;
    for (double ranks = 1; ranks < q.network.ranks; ranks *= 2) ++bits;
    const double wire = q.network.allgather.at(others * sizeof(Header)) + q.network.allgather.at(others * m / 256) +
                        q.network.plain.at(m * (bits > 8 ? 2 : 1));
    return pipelined(q.chunks(), m * (1.17 * q.codec.encode_s + 2.25 * q.codec.decode_s) + 5 * q.codec.launch_s, wire);
  };
  entry.mpi_adds = true;
  return entry;
}

}  // namespace crimp
