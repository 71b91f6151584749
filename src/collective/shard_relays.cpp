#include "collective/shard_relays.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "collective/pipeline.hpp"

namespace crimp {

ShardRelays::ShardRelays(Transport& transport, int radix, std::uint64_t largest, Wait wait, Started started)
    : largest_(largest), wait_(std::move(wait)), started_(std::move(started)),
      rank_(static_cast<std::size_t>(transport.rank())), ranks_(static_cast<std::size_t>(transport.size())),
      headers_(transport, radix), bodies_(transport, radix, true), sum_headers_(transport), sum_bodies_(transport),
      arriving_(ranks_), header_bytes_(ranks_, sizeof(Header)),
      parts_(static_cast<std::size_t>(relay_steps(transport.size(), 2))) {}

std::uint64_t ShardRelays::transit_bytes(std::uint64_t ranks, std::uint64_t largest) {
  return 2 * Arena::padded(ScatterRelay::room(ranks, largest));
}

void ShardRelays::take(Arena& arena) {
  for (auto* transit : {&leaving_, &arrived_})
    *transit = reinterpret_cast<std::uint8_t*>(arena.take(ScatterRelay::room(ranks_, largest_)));
}

void ShardRelays::scatter_headers(std::uint64_t chunk, const std::vector<Header>& mine, std::vector<Header>& theirs) {
  headers_.begin(mine, theirs, largest_);
  begun(kHeaders, chunk);
}

void ShardRelays::scatter(std::uint64_t chunk, const std::uint8_t* mine, std::span<const std::uint64_t> offsets,
                          std::uint8_t* theirs) {
  bodies_.begin({mine, offsets, theirs, largest_, leaving_, arrived_}, headers_.bodies);
  begun(kBodies, chunk);
}

void ShardRelays::gather_headers(std::uint64_t chunk, const Header& mine, std::vector<Header>& all) {
  gathered_ = &all;
  arriving_[0] = mine;
  sum_headers_.begin(reinterpret_cast<std::uint8_t*>(arriving_.data()), header_bytes_);
  begun(kSumHeaders, chunk);
}

void ShardRelays::gather(std::uint64_t chunk, const std::uint8_t* mine, std::span<const std::uint64_t> bytes,
                         std::uint8_t* all, std::span<std::uint64_t> offsets) {
  if (bytes[rank_]) std::memcpy(all, mine, bytes[rank_]);
  sum_bodies_.begin(all, bytes);
  for (std::size_t r = 0; r < ranks_; ++r) offsets[r] = sum_bodies_.offset_of(r);
  begun(kSumBodies, chunk);
}

void ShardRelays::begun(Kind kind, std::uint64_t chunk) {
  chunk_[kind] = chunk;
  if (all_[kind]->under_way()) started_(*all_[kind]);
}

void ShardRelays::advance(Kind kind) {
  Relay& relay = *all_[kind];
  wait_(relay.ticket(), chunk_[kind]);
  relay.advance();
  if (relay.under_way()) return started_(relay);
  if (kind == kSumHeaders)
    for (std::size_t d = 0; d < ranks_; ++d) (*gathered_)[(rank_ + d) % ranks_] = arriving_[d];
}

// kKinds: none has.
ShardRelays::Kind ShardRelays::to_end(Kind kind, std::uint64_t chunk) const {
  if (all_[kind]->under_way() && chunk_[kind] == chunk) return kind;
  const Kind next = static_cast<Kind>(kind + 1);
  return next < kKinds && all_[next]->under_way() ? next : kKinds;
}

Transport::Ticket ShardRelays::due(Kind kind, std::uint64_t chunk) const {
  const Kind at = to_end(kind, chunk);
  return at == kKinds ? Pipeline::kNothing : all_[at]->ticket();
}

bool ShardRelays::lead_on(Kind kind, std::uint64_t chunk) {
  const Kind at = to_end(kind, chunk);
  if (at == kKinds) return false;
  advance(at);
  return true;
}

ShardRelays::Kind ShardRelays::next_turn() const {
  int turn = turn_;
  while (turn < kKinds && !all_[turn]->under_way()) ++turn;
  return static_cast<Kind>(turn);
}

Transport::Ticket ShardRelays::turn() const {
  const Kind turn = next_turn();
  return turn == kKinds ? Pipeline::kNothing : all_[turn]->ticket();
}

bool ShardRelays::lead_turn() {
  const Kind turn = next_turn();
  if (turn == kKinds) return false;
  turn_ = static_cast<Kind>(turn + 1);
  advance(turn);
  return true;
}

std::optional<ShardRelays::Part> ShardRelays::next_part() {
  if (part_ == parts_) {
    part_ = 0;
    turn_ = kKinds;
    return {};
  }
  const Part part{ranks_ * part_ / parts_, ranks_ * (part_ + 1) / parts_};
  ++part_;
  turn_ = kHeaders;
  return part;
}

// Blocks are averages but in the last step, whose blocks are all the owner's own.
double shard_relays_s(const CostQuery& q, double largest_shard) {
  const Curve& step = q.network.step;
  const auto n = static_cast<std::uint64_t>(q.network.ranks), radix = static_cast<std::uint64_t>(q.radix);
  const double shard = q.per_chunk() / static_cast<double>(n);
  double s = 0;
  for (std::uint64_t weight = 1; weight < n; weight *= radix) {
    const RelayStep of = relay_step(n, radix, weight);
    const double blocks = static_cast<double>(of.blocks);
    const double bytes = blocks * (weight * radix < n ? shard : largest_shard) * q.codec.payload_bytes;
    s += 2 * (static_cast<double>(of.messages) - 1) * step.at(0) + step.at(blocks * sizeof(Header)) + step.at(bytes);
  }
  for (std::uint64_t held = 1; held < n; held *= 2) {
    const auto blocks = static_cast<double>(std::min(held, n - held));
    s += step.at(blocks * sizeof(Header)) + step.at(blocks * shard * q.codec.payload_bytes);
  }
  return s;
}

}  // namespace crimp
