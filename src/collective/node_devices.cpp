#include "collective/node_devices.hpp"

#include <algorithm>
#include <atomic>
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

}  // namespace

void Attempts::fail(ErrorCode code, const char* what) {
  insist([&] { failed.emplace(code, what); });
}

Error not_handed_on() {
  return Error(ErrorCode::payload_corrupt, "a rank of this rank's node could not hand on the sums");
}

bool NodeDevices::open(Node& node, Backend* backend, std::uint64_t block) {
  const auto notes = node.notes();
  if (std::any_of(notes.begin(), notes.end(), [](const Node::Note& n) { return n.device < 0; })) return false;
  constexpr int kMost = 4096;
  block = round_up(std::clamp<std::uint64_t>(block, 1, kMostBlock), kLine);
  const bool same = std::equal(notes.begin(), notes.end(), devices_.begin(), devices_.end(),
                               [](const Node::Note& n, int device) { return n.device == device; });
  if (same && slots_ && block_ >= block) return true;
  if (same && left_ > 0) return --left_, false;
  if (!same) next_ = 8;
  slots_.reset();
  block_ = block;
  if (make(node, *backend)) return next_ = 8, true;
  slots_.reset();
  left_ = next_;
  next_ = std::min(2 * next_, kMost);
  return false;
}

bool NodeDevices::make(Node& node, Backend& backend) {
  const auto notes = node.notes();
  Node::Note& mine = notes[static_cast<std::size_t>(node.rank())];
  std::vector<SharedSlots::Handle> handles;
  insist([&] { devices_.resize(notes.size()); });  // all ranks remember the same
  Attempts attempt;
  attempt([&] {
    handles.resize(notes.size());
    slots_ = backend.shared_slots(2 * block_);
    mine.slot = slots_->handle();
  });
  for (std::size_t r = 0; r < devices_.size(); ++r) devices_[r] = notes[r].device;
  const auto all = [&](std::uint8_t Node::Note::*step) {
    mine.*step = !attempt.failed;
    node.barrier();
    return std::all_of(notes.begin(), notes.end(), [&](const Node::Note& n) { return n.*step != 0; });
  };
  const bool had = all(&Node::Note::has_slot) && [&] {
    attempt([&] {
      for (std::size_t r = 0; r < notes.size(); ++r) handles[r] = notes[r].slot;
      slots_->open(handles);
    });
    return all(&Node::Note::has_slots);
  }();
  if (attempt.failed && !told.exchange(true))
    log(LogLevel::warn, std::string(attempt.failed->what()) +
                            ": the ranks of this node cannot share device memory, their sums (algorithm hierarchical) "
                            "go through the host's until they can");
  return had;
}

// Sums form in the leader's slot, half of it for every other block. While it takes them away, the others may already
// fill theirs of that half again.
std::optional<Error> NodeDevices::sum(Node& node, const float* in, float* sums, std::uint64_t count) {
  const auto n = static_cast<std::size_t>(node.size()), mine = static_cast<std::size_t>(node.rank());
  const std::uint64_t blocks = div_up(count, block_);
  Attempts attempt;
  std::vector<const float*> from;
  attempt([&] { from.resize(n); });
  const auto of = [&](std::size_t rank, std::uint64_t b) { return slots_->slot(rank) + b % 2 * block_; };
  const auto length = [&](std::uint64_t b) { return std::min(block_, count - b * block_); };
  const auto meet = [&] {
    attempt([&] { slots_->finish(); });
    if (attempt.failed) node.notes()[mine].failed = 1;
    node.barrier();
  };
  const auto take = [&](std::uint64_t b) {
    if (mine == 0) attempt([&] { slots_->copy(sums + b * block_, of(0, b), length(b)); });
  };
  for (std::uint64_t b = 0; b < blocks; ++b) {
    attempt([&] { slots_->copy(of(mine, b), in + b * block_, length(b)); });
    meet();
    if (b > 0) take(b - 1);
    const OwnPart own = part_of(length(b), mine, n);
    attempt([&] {
      for (std::size_t r = 0; r < n; ++r) from[r] = of(r, b) + own.from;
      slots_->add(of(0, b) + own.from, from, own.to - own.from);
    });
  }
  meet();
  if (blocks > 0) take(blocks - 1);
  attempt([&] { slots_->finish(); });
  return attempt.failed;
}

// The leader's link would carry every float once for each rank. So each rank takes its part of a block first, and all
// have the parts from one another.
std::optional<Error> NodeDevices::share(Node& node, const Layout& layout, const float* sums, float* out,
                                        std::uint64_t count) {
  const auto n = static_cast<std::size_t>(node.size()), mine = static_cast<std::size_t>(node.rank());
  const bool in_parts = n > 2;
  Attempts attempt;
  const auto meet = [&] {
    attempt([&] { slots_->finish(); });
    if (attempt.failed) node.notes()[mine].failed = 1;
    node.barrier();
  };
  auto segment = layout.segments.begin();
  for (std::uint64_t b = 0, at = 0; at < count; ++b, at += block_) {
    const std::uint64_t length = std::min(block_, count - at);
    const auto of = [&](std::size_t rank) { return slots_->slot(rank) + b % 2 * block_; };
    if (mine == 0) attempt([&] { slots_->copy(of(0), sums + at, length); });
    meet();
    if (in_parts) {
      const OwnPart own = part_of(length, mine, n);
      if (mine != 0) attempt([&] { slots_->copy(of(mine) + own.from, of(0) + own.from, own.to - own.from); });
      meet();
    }
    if (mine == 0) continue;
    for (; segment != layout.segments.end(); ++segment) {
      const std::uint64_t begin = segment->offset, end = begin + segment->count;
      for (std::size_t r = 0; r < (in_parts ? n : 1) && segment->summed(); ++r) {
        const OwnPart its = in_parts ? part_of(length, r, n) : OwnPart{0, length};
        const std::uint64_t from = std::max(at + its.from, begin), to = std::min(at + its.to, end);
        if (from < to) attempt([&] { slots_->copy(out + from, of(r) + (from - at), to - from); });
      }
      if (end > at + length) break;
    }
  }
  const auto notes = node.notes();
  for (std::size_t r = 0; r < (in_parts ? n : 1); ++r)
    if (r != mine && notes[r].failed) attempt([] { throw not_handed_on(); });
  // Nobody leaves while another one reads its slot: it may be another communicator's by then.
  meet();
  return attempt.failed;
}

}  // namespace crimp
