#include "collective/relay.hpp"

#include <algorithm>
#include <cstring>

namespace crimp {
namespace {

int doublings(int ranks) { return relay_steps(ranks, 2); }

}  // namespace

int relay_steps(int ranks, int radix) {
  int steps = 0;
  for (std::int64_t reach = 1; reach < ranks; reach *= radix) ++steps;
  return steps;
}

RelayStep relay_step(std::uint64_t ranks, std::uint64_t radix, std::uint64_t weight) {
  const std::uint64_t period = radix * weight;
  const std::uint64_t stay = ranks / period * weight + std::min(ranks % period, weight);
  return {std::min(radix - 1, (ranks - 1) / weight), ranks - stay};
}

std::vector<int> relay_radices(int ranks) {
  std::vector<int> all;
  if (ranks < kFewestRelayed) return all;
  for (int steps = 2; all.empty() || all.back() > 2; ++steps) {
    int radix = 2;
    while (relay_steps(ranks, radix) > steps) ++radix;
    if (all.empty() || radix != all.back()) all.push_back(radix);
  }
  return all;
}

Relay::Relay(Transport& transport, int steps)
    : transport_(transport), rank_(static_cast<std::size_t>(transport.rank())),
      ranks_(static_cast<std::size_t>(transport.size())), steps_(steps), send_bytes_(ranks_), send_offsets_(ranks_),
      bytes_(ranks_), offsets_(ranks_) {}

void Relay::begin_steps() {
  step_ = 0;
  start();
}

void Relay::start() {
  under_way_ = step_ < steps_;
  if (!under_way_) return;
  for (auto* of : {&send_bytes_, &send_offsets_, &bytes_, &offsets_}) std::fill(of->begin(), of->end(), 0);
  sent_bytes_ = received_bytes_ = 0;
  const Places at = leave(step_);
  ticket_ = transport_.start_alltoallv(at.sent, send_bytes_, send_offsets_, at.received, bytes_, offsets_);
}

void Relay::advance() {
  arrive(step_++);
  start();
}

void Relay::send(std::size_t to, std::uint64_t bytes, std::uint64_t offset) {
  if (bytes == 0) return;
  send_bytes_[to] = bytes, send_offsets_[to] = offset;
  sent_bytes_ += bytes;
}

void Relay::receive(std::size_t from, std::uint64_t bytes, std::uint64_t offset) {
  if (bytes == 0) return;
  bytes_[from] = bytes, offsets_[from] = offset;
  received_bytes_ += bytes;
}

ScatterRelay::ScatterRelay(Transport& transport, int radix, bool vary)
    : Relay(transport, relay_steps(transport.size(), radix)), radix_(static_cast<std::uint64_t>(radix)) {
  if (vary) bytes_.resize(row(relay_steps(transport.size(), radix) + 1));
}

std::uint64_t ScatterRelay::weight(int step) const {
  std::uint64_t w = 1;
  while (step-- > 0) w *= radix_;
  return w;
}

template <class Of>
void ScatterRelay::each_moved(int step, Of of) const {
  const std::uint64_t w = weight(step);
  for (std::uint64_t digit = 1; digit < radix_ && digit * w < ranks(); ++digit)
    for (std::uint64_t run = digit * w; run < ranks(); run += radix_ * w)
      for (std::uint64_t d = run; d < std::min<std::uint64_t>(run + w, ranks()); ++d) of(digit * w, d);
}

void ScatterRelay::begin(const Blocks& blocks, std::vector<std::uint64_t>& bytes) {
  blocks_ = blocks;
  bytes_.swap(bytes);
  if (const std::uint64_t own = size(0, 0))
    std::memcpy(blocks_.to + at(0) * blocks_.stride, blocks_.from + blocks_.offsets[at(0)], own);
  begin_steps();
}

// Blocks in transit wait where the one of their distance will end: its place is free until then.
Relay::Places ScatterRelay::leave(int step) {
  std::uint64_t sent = 0, received = 0, message = 0, arrival = 0, to = 0;
  const auto close = [&] {
    send(at(to), sent - message, message);
    receive(before(to), received - arrival, arrival);
    message = sent, arrival = received;
  };
  const std::uint64_t w = weight(step);
  each_moved(step, [&](std::uint64_t peer, std::uint64_t distance) {
    if (peer != to) {
      if (to) close();
      to = peer;
    }
    const std::uint64_t bytes = size(step, distance);
    const bool first = distance % w == 0;  // it is this rank's own, and has not moved yet
    if (bytes)
      std::memcpy(blocks_.packed + sent, first ? blocks_.from + blocks_.offsets[at(distance)] : held(distance), bytes);
    sent += bytes;
    received += size(step + 1, distance);
  });
  if (to) close();
  const std::uint64_t first = size_of_message(step, step), from_first = size_of_message(step, step + 1);
  if (first == 0) {
    std::memset(blocks_.packed + sent, 0, kPayloadAlign);
    send(at(w), kPayloadAlign, sent);
  }
  if (from_first == 0) receive(before(w), kPayloadAlign, received);
  return {blocks_.packed, blocks_.arrived};
}

// Of a step's first message, before or after the step.
std::uint64_t ScatterRelay::size_of_message(int step, int row) const {
  const std::uint64_t w = weight(step);
  std::uint64_t bytes = 0;
  each_moved(step, [&](std::uint64_t peer, std::uint64_t distance) { bytes += peer == w ? size(row, distance) : 0; });
  return bytes;
}

void ScatterRelay::arrive(int step) {
  std::uint64_t received = 0;
  each_moved(step, [&](std::uint64_t, std::uint64_t distance) {
    const std::uint64_t bytes = size(step + 1, distance);
    if (bytes) std::memcpy(const_cast<std::uint8_t*>(held(distance)), blocks_.arrived + received, bytes);
    received += bytes;
  });
}

HeaderRelay::HeaderRelay(Transport& transport, int radix)
    : ScatterRelay(transport, radix, false), bodies(row(relay_steps(transport.size(), radix) + 1)), offsets_(ranks()),
      packed_(ranks()), arrived_(ranks()) {
  for (std::size_t q = 0; q < ranks(); ++q) offsets_[q] = q * sizeof(Header);
}

// No rank has looked at a header yet that is passed on: only its size matters, and both ends of a message find the
// same.
std::uint64_t HeaderRelay::body_bytes(const std::uint8_t* header) const {
  Header h;
  std::memcpy(&h, header, sizeof h);
  return std::min(h.body_bytes, most_) / kPayloadAlign * kPayloadAlign;
}

void HeaderRelay::begin(const std::vector<Header>& mine, std::vector<Header>& theirs, std::uint64_t most) {
  most_ = most;
  for (std::size_t d = 0; d < ranks(); ++d) bodies[d] = body_bytes(reinterpret_cast<const std::uint8_t*>(&mine[at(d)]));
  ScatterRelay::begin(
      {reinterpret_cast<const std::uint8_t*>(mine.data()), offsets_, reinterpret_cast<std::uint8_t*>(theirs.data()),
       sizeof(Header), reinterpret_cast<std::uint8_t*>(packed_.data()),
       reinterpret_cast<std::uint8_t*>(arrived_.data())},
      none_);
}

void HeaderRelay::arrive(int step) {
  ScatterRelay::arrive(step);
  for (std::uint64_t d = 0; d < ranks(); ++d)
    bodies[row(step + 1) + d] = moves(step, d) ? body_bytes(held(d)) : bodies[row(step) + d];
}

GatherRelay::GatherRelay(Transport& transport)
    : Relay(transport, doublings(transport.size())), ends_(static_cast<std::size_t>(transport.size()) + 1) {}

void GatherRelay::begin(std::uint8_t* all, std::span<const std::uint64_t> bytes) {
  all_ = all;
  for (std::size_t i = 0; i < ranks(); ++i) ends_[i + 1] = ends_[i] + bytes[at(i)];
  begin_steps();
}

Relay::Places GatherRelay::leave(int step) {
  const std::size_t held = std::size_t{1} << step, more = std::min(held, ranks() - held);
  const std::uint64_t sent = ends_[more], received = ends_[held + more] - ends_[held];
  send(before(held), std::max(sent, kPayloadAlign), 0);
  receive(at(held), std::max(received, kPayloadAlign), 0);
  return {sent ? all_ : nothing_, received ? all_ + ends_[held] : nothing_ + kPayloadAlign};
}

}  // namespace crimp
