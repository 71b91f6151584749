#include "core/trace.hpp"

#include <functional>
#include <new>
#include <thread>

namespace crimp {
namespace {

std::uint64_t this_thread() { return std::hash<std::thread::id>()(std::this_thread::get_id()); }

struct Named {
  std::string_view name;
  Trace::Track track;
};
constexpr Named kSpans[] = {
    {"encode", Trace::Track::encode},       {"norms", Trace::Track::encode},       {"extents", Trace::Track::encode},
    {"node sum", Trace::Track::encode},     {"node exchange", Trace::Track::wire}, {"wire", Trace::Track::wire},
    {"under way", Trace::Track::under_way}, {"leader", Trace::Track::wire},        {"decode", Trace::Track::decode},
    {"add", Trace::Track::decode},          {"sum", Trace::Track::decode},         {"node copy", Trace::Track::decode},
};

Trace::Track track_of(std::string_view name) {
  for (const Named& named : kSpans)
    if (named.name == name) return named.track;
  return Trace::Track::other;
}

}  // namespace

bool Trace::has_room(Kind kind) noexcept {
  const auto k = static_cast<std::size_t>(kind);
  if (kept_[k] < kMost[k] / share_) return true;
  ++dropped_[k];
  return false;
}

void Trace::keep(Span span) noexcept {
  const auto k = static_cast<std::size_t>(span.kind);
  try {
    spans_.push_back(span);
    ++kept_[k];
  } catch (const std::bad_alloc&) {
    ++dropped_[k];
  }
}

std::uint32_t Trace::text(std::string_view of) {
  of = of.substr(0, kLongestText);
  if (const auto known = numbers_.find(of); known != numbers_.end()) return known->second;
  if (texts_.size() >= kMostTexts) of = "(one of more names than are kept)";
  if (const auto known = numbers_.find(of); known != numbers_.end()) return known->second;
  const auto number = static_cast<std::uint32_t>(texts_.size());
  texts_.emplace_back(of);
  try {
    numbers_.emplace(texts_.back(), number);
  } catch (const std::bad_alloc&) {
    texts_.pop_back();
    throw;
  }
  return number;
}

void Trace::add(const char* name, std::uint32_t call, std::uint32_t chunk, Clock::time_point begin,
                Clock::time_point end) noexcept {
  std::lock_guard lock(mutex_);
  if (has_room(Kind::work))
    keep({name, begin, end, this_thread(), 0, call, static_cast<std::int32_t>(chunk), 0, Kind::work, track_of(name)});
}

void Trace::call(const Call& call, Clock::time_point begin, Clock::time_point end) noexcept {
  const Kind kind = call.blocks ? Kind::call : Kind::nonblocking;
  const CallRecord& r = call.record;
  std::lock_guard lock(mutex_);
  if (!has_room(kind)) return;
  try {
    const std::uint32_t label = text(call.label), codec = text(r.codec);
    details_.push_back({.label = label,
                        .codec = codec,
                        .dtype = call.dtype,
                        .algorithm = r.algorithm,
                        .why = r.why,
                        .layout = r.layout,
                        .elements = call.elements,
                        .bytes = call.bytes,
                        .bytes_in = r.bytes_in,
                        .sent = r.sent_bytes,
                        .received = r.received_bytes});
  } catch (const std::bad_alloc&) {
    ++dropped_[static_cast<std::size_t>(kind)];
    return;
  }
  keep({"", begin, end, this_thread(), details_.size() - 1, call.call, 0, call.communicator, kind, Track::calls});
}

void Trace::passed(const char* why, std::uint64_t count, Clock::time_point begin, Clock::time_point end) noexcept {
  std::lock_guard lock(mutex_);
  if (has_room(Kind::passed)) keep({why, begin, end, this_thread(), count, 0, 0, 0, Kind::passed, Track::passed});
}

void Trace::waited(std::uint32_t communicator, std::uint32_t call, int last, double lost_s, Clock::time_point begin,
                   Clock::time_point end) noexcept {
  std::lock_guard lock(mutex_);
  if (has_room(Kind::waited))
    keep({"wait", begin, end, this_thread(), static_cast<std::uint64_t>(1e9 * lost_s), call, last, communicator,
          Kind::waited, Track::wait});
}

std::uint32_t Trace::communicator(const std::string& ranks) noexcept {
  std::lock_guard lock(mutex_);
  try {
    std::uint32_t others = 0;
    for (const std::string& c : communicators_) others += c.compare(0, c.find('#'), ranks + " ") == 0;
    if (communicators_.size() >= kMostTexts) return 0;
    communicators_.push_back(ranks + " #" + std::to_string(others));
    return static_cast<std::uint32_t>(communicators_.size());
  } catch (const std::bad_alloc&) {
    return 0;
  }
}

}  // namespace crimp
