// Integer sums by MPI: it adds the integers of the indices themselves, as uint8 or, where the sums do not fit, as uint16.
#include <algorithm>
#include <cstring>

#include "collective/integer_sums.hpp"

namespace crimp {
namespace {

// What MPI adds of a chunk: the integers, then a word that counts the ranks that had to send zeros.
struct Addends {
  Addends(const CollectiveCall& call, std::size_t ranks) : type(IntegerSums::width_of(call, ranks) <= 8 ? Integer::u8 : Integer::u16) {}
  std::uint64_t values(std::uint64_t coordinates) const { return coordinates * (type == Integer::u8 ? 1 : 2); }
  std::uint64_t bytes(std::uint64_t coordinates) const { return values(coordinates) + kPayloadAlign; }
  Integer type;
};

// What this takes of the arena beside IntegerSums::Scratch.
struct Buffers {
  Buffers(const Addends& addends, std::uint64_t coordinates, ArenaParts& parts) {
    for (Of& of : chunk) {
      of.send = parts.take<std::uint8_t>(addends.bytes(coordinates));
      of.receive = parts.take<std::uint8_t>(addends.bytes(coordinates));
    }
  }
  struct Of {
    std::uint8_t *send, *receive;
  };
  Of chunk[IntegerSums::kSumming];
};

class SumsByMpi : IntegerSums {
 public:
  SumsByMpi(Transport& transport, Workers& workers, const CollectiveCall& call, Trace* trace, ArenaParts& parts)
      : IntegerSums(transport, workers, call, trace, parts), addends_(call, ranks()), buffers_(addends_, most_coordinates(), parts) {}

  static std::uint64_t arena_bytes(const CollectiveCall& call, int ranks) {
    ArenaParts parts(nullptr);
    const Scratch common(call, static_cast<std::size_t>(ranks), parts);
    const Buffers buffers(Addends(call, static_cast<std::size_t>(ranks)), common.coordinates, parts);
    return parts.bytes();
  }

  CollectiveResult run() {
    for (std::uint64_t round = 0; round < chunks() + 3; ++round) {
      if (!exchange_norms(round)) return result_;
      if (due(round, 2)) start_sums(round - 2);
      if (due(round, 3)) decode(round - 3);
    }
    return result_;
  }

 private:
  const Buffers::Of& buffers(std::uint64_t i) const { return buffers_.chunk[i % kSumming]; }
  Transport::Ticket& sums_under_way(std::uint64_t i) { return sums_under_way_[i % kSumming]; }

  void start_sums(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(c.norms_under_way, i);
    const auto begin = Clock::now();
    quantise(i);
    std::uint8_t *const send = buffers(i).send, *const word = send + addends_.values(c.coordinates);
    std::memset(sums(), 0, c.coordinates * sizeof *sums());
    if (c.good) codec_.add(indices(), c.coordinates, sums());
    if (addends_.type == Integer::u16)
      std::memcpy(send, sums(), c.coordinates * sizeof *sums());
    else
      std::transform(sums(), sums() + c.coordinates, send, [](std::uint16_t x) { return static_cast<std::uint8_t>(x); });
    std::memset(word, 0, kPayloadAlign);
    *word = !c.good;
    const std::uint64_t bytes = addends_.bytes(c.coordinates);
    sums_under_way(i) = under_way(transport_.start_sum(send, buffers(i).receive, bytes, addends_.type));
    result_.sent_bytes += 2 * bytes * (ranks() - 1) / ranks();
    result_.received_bytes += 2 * bytes * (ranks() - 1) / ranks();
    result_.encode_s += span("encode", i, begin);
  }

  void decode(std::uint64_t i) {
    Chunk& c = chunk(i);
    wait(sums_under_way(i), i);
    const auto begin = Clock::now();
    const std::uint8_t* const received = buffers(i).receive;
    if (received[addends_.values(c.coordinates)] != 0) {
      blame(rank(), i, "some rank received corrupt norms");
      c.good = false;
    }
    if (addends_.type == Integer::u16)
      std::memcpy(sums(), received, c.coordinates * sizeof *sums());
    else
      std::copy(received, received + c.coordinates, sums());
    decode_sums(i);
    result_.decode_s += span("decode", i, begin);
  }

  Addends addends_;
  Buffers buffers_;
  Transport::Ticket sums_under_way_[kSumming] = {};
};

}  // namespace

AlgorithmEntry integer_sum_algorithm() {
  AlgorithmEntry entry = integer_sums_entry();
  entry.algorithm = Algorithm::integer_sum;
  entry.name = "integer_sum";
  entry.summary = "the integers of the indices, added by MPI; every rank decodes the sums once";
  entry.arena_bytes = SumsByMpi::arena_bytes;
  entry.run = [](Transport& transport, Arena* arena, Workers& workers, const CollectiveCall& call, Trace* trace) {
    ArenaParts parts(arena);
    return SumsByMpi(transport, workers, call, trace, parts).run();
  };
  entry.cost = [](const CostQuery& q) {
    const double m = q.per_chunk(), others = q.network.ranks - 1.0;
    double bits = 8 * q.codec.payload_bytes + 1;
    for (double ranks = 1; ranks < q.network.ranks; ranks *= 2) ++bits;
    const double wire = q.network.allgather.at(others * sizeof(Header)) + q.network.allgather.at(others * m / 256) +
                        q.network.plain.at(m * (bits > 8 ? 2 : 1));
    return pipelined(q.chunks(), m * (1.17 * q.codec.encode_s + 2.25 * q.codec.decode_s), wire);
  };
  entry.mpi_adds = true;
  return entry;
}

}  // namespace crimp
