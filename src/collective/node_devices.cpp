#include "collective/node_devices.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <string>

#include "backend/backend.hpp"
#include "collective/node.hpp"
#include "core/log.hpp"
#include "core/reserve.hpp"
#include "schedule/layout.hpp"

namespace crimp {
namespace {

constexpr std::uint64_t kLine = 64;  // floats of 256 bytes, which borders within slots are multiples of

std::atomic<bool> told{false};

// The floats of a block that one rank adds, or hands on.
struct OwnPart {
  std::uint64_t from, to;
};
OwnPart part_of(std::uint64_t length, std::size_t rank, std::size_t ranks) {
  const std::uint64_t lines = div_up(length, kLine);
  return {std::min(length, lines * rank / ranks * kLine), std::min(length, lines * (rank + 1) / ranks * kLine)};
}

// To copy it takes no memory.
const Error& no_memory() {
  static const Error error(ErrorCode::out_of_memory, "there is no memory to say what has failed");
  return error;
}

}  // namespace

void Attempts::fail(ErrorCode code, const char* what) noexcept {
  try {
    insist([&] { failed.emplace(code, what); });
  } catch (const std::bad_alloc&) {
    failed.emplace(no_memory());
  }
}

NodeDevices::NodeDevices() {
  insist([] { no_memory(); });
}

Error not_handed_on() {
  return Error(ErrorCode::payload_corrupt, "a rank of this rank's node could not hand on the sums");
}

bool NodeDevices::open(Node& node, Backend* backend, std::uint64_t block) {
  const auto notes = node.notes();
  if (std::any_of(notes.begin(), notes.end(), [](const Node::Note& n) { return n.device < 0; })) return false;
  constexpr std::size_t kMostKnown = 4;
  constexpr int kMostLeft = 4096;
  block = std::bit_ceil(std::clamp(block, kLeastBlock, kMostBlock));
  Slots& slots = *insist([&] {
    std::vector<int> devices;
    for (const Node::Note& n : notes) devices.push_back(n.device);
    if (known_.size() == kMostKnown && !known_.contains(devices)) known_.clear();
    return &known_[std::move(devices)];
  });
  now_ = &slots;
  if (slots.of && slots.block >= block) return true;
  if (!slots.of && slots.left > 0) return --slots.left, false;
  slots.of.reset();
  slots.block = block;
  if (make(node, *backend, slots)) return slots.next = 8, true;
  slots.of.reset();
  slots.left = slots.next;
  slots.next = std::min(2 * slots.next, kMostLeft);
  return false;
}

bool NodeDevices::make(Node& node, Backend& backend, Slots& slots) {
  const auto notes = node.notes();
  Node::Note& mine = notes[static_cast<std::size_t>(node.rank())];
  Attempts attempt;
  const auto all = [&](std::uint8_t Node::Note::*step) {
    mine.*step = !attempt.failed;
    node.barrier();
    return std::all_of(notes.begin(), notes.end(), [&](const Node::Note& n) { return n.*step != 0; });
  };
  // What a slot's handle says stands in it as well: between some devices only rubbish comes over, without an error.
  MemoryResource& memory = backend.memory();
  attempt([&] {
    slots.of = backend.shared_slots(2 * slots.block);
    mine.slot = slots.of->handle();
    memory.write(slots.of->own(), mine.slot.data(), mine.slot.size());
  });
  bool had = all(&Node::Note::has_slot);
  if (had) {
    attempt([&] {
      std::vector<SharedSlots::Handle> handles;
      for (const Node::Note& n : notes) handles.push_back(n.slot);
      slots.of->open(handles);
      float* const here = slots.of->own() + kLine;
      for (std::size_t r = 0; r < handles.size(); ++r) {
        const float* const there = slots.of->slot(r);
        slots.of->add(here, {&there, 1}, mine.slot.size() / sizeof(float));
        slots.of->finish();
        SharedSlots::Handle seen;
        memory.read(seen.data(), here, seen.size());
        if (seen != handles[r])
          throw Error(ErrorCode::device_failed, "memory of this node's rank " + std::to_string(r) +
                                                    "'s device does not have here what that rank has written");
      }
    });
    had = all(&Node::Note::has_slots);
  }
  if (attempt.failed && !told.exchange(true))
    logged("that a node shares no device memory", [&] {
      log(LogLevel::warn, std::string(attempt.failed->what()) +
                              ": the ranks of this node cannot share device memory, their sums (algorithm "
                              "hierarchical) go through the host's until they can");
    });
  return had;
}

namespace {

// Where ranks meet, nothing of one is under way, and they know who has failed.
void meet(Node& node, SharedSlots& slots, Attempts& attempt) {
  Attempts ended;
  ended([&] { slots.finish(); });
  if (ended.failed && !attempt.failed) attempt.failed = ended.failed;
  if (attempt.failed) node.notes()[static_cast<std::size_t>(node.rank())].failed = 1;
  node.barrier();
}

}  // namespace

// Sums form in the leader's slot, half of it for every other block. While it takes them away, the others may already
// fill theirs of that half again.
std::optional<Error> NodeDevices::sum(Node& node, const float* in, float* sums, std::uint64_t count) {
  const auto n = static_cast<std::size_t>(node.size()), mine = static_cast<std::size_t>(node.rank());
  SharedSlots& slots = *now_->of;
  const std::uint64_t block = now_->block, blocks = div_up(count, block);
  Attempts attempt;
  std::vector<const float*> from;
  attempt([&] { from.resize(n); });
  const auto of = [&](std::size_t rank, std::uint64_t b) { return slots.slot(rank) + b % 2 * block; };
  const auto length = [&](std::uint64_t b) { return std::min(block, count - b * block); };
  const auto take = [&](std::uint64_t b) {
    if (mine == 0) attempt([&] { slots.copy(sums + b * block, of(0, b), length(b)); });
  };
  for (std::uint64_t b = 0; b < blocks; ++b) {
    attempt([&] { slots.copy(of(mine, b), in + b * block, length(b)); });
    meet(node, slots, attempt);
    if (b > 0) take(b - 1);
    const OwnPart own = part_of(length(b), mine, n);
    attempt([&] {
      for (std::size_t r = 0; r < n; ++r) from[r] = of(r, b) + own.from;
      slots.add(of(0, b) + own.from, from, own.to - own.from);
    });
  }
  meet(node, slots, attempt);
  if (blocks > 0) take(blocks - 1);
  attempt([&] { slots.finish(); });
  return attempt.failed;
}

// The leader's link would carry every float once for each rank. So each rank takes its part of a block first, and all
// have the parts from one another.
std::optional<Error> NodeDevices::share(Node& node, const Layout& layout, const float* sums, float* out,
                                        std::uint64_t count) {
  const auto n = static_cast<std::size_t>(node.size()), mine = static_cast<std::size_t>(node.rank());
  SharedSlots& slots = *now_->of;
  const std::uint64_t block = now_->block;
  const bool in_parts = n > 2;
  Attempts attempt;
  SummedRuns runs(layout);
  for (std::uint64_t b = 0, at = 0; at < count; ++b, at += block) {
    const std::uint64_t length = std::min(block, count - at);
    const auto of = [&](std::size_t rank) { return slots.slot(rank) + b % 2 * block; };
    if (mine == 0) attempt([&] { slots.copy(of(0), sums + at, length); });
    meet(node, slots, attempt);
    if (in_parts) {
      const OwnPart own = part_of(length, mine, n);
      if (mine != 0) attempt([&] { slots.copy(of(mine) + own.from, of(0) + own.from, own.to - own.from); });
      meet(node, slots, attempt);
    }
    if (mine == 0) continue;
    runs.each(at, at + length, [&](std::uint64_t begin, std::uint64_t end) {
      for (std::size_t r = 0; r < (in_parts ? n : 1); ++r) {
        const OwnPart its = in_parts ? part_of(length, r, n) : OwnPart{0, length};
        const std::uint64_t from = std::max(at + its.from, begin), to = std::min(at + its.to, end);
        if (from < to) attempt([&] { slots.copy(out + from, of(r) + (from - at), to - from); });
      }
    });
  }
  const auto notes = node.notes();
  for (std::size_t r = 0; r < (in_parts ? n : 1) && mine != 0; ++r)
    if (r != mine && notes[r].failed) attempt([] { throw not_handed_on(); });
  // Nobody leaves while another one reads its slot: it may be another communicator's by then. Who fails from here on
  // fails alone.
  Attempts ended;
  ended([&] { slots.finish(); });
  node.barrier();
  return attempt.failed ? attempt.failed : ended.failed;
}

}  // namespace crimp
