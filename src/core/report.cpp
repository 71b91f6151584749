#include "core/report.hpp"

#include <bit>
#include <utility>

#include "core/progress.hpp"

namespace crimp {

void Report::Sum::note(const CallRecord& r, bool counts) {
  calls += counts;
  bytes_in += r.bytes_in;
  sent += r.sent_bytes;
  received += r.received_bytes;
  encode += r.encode_s;
  wire += r.wire_s;
  decode += r.decode_s;
  total += r.total_s;
  wait += r.wait_s;
  predicted += r.predicted_s;
  plain += r.plain_s;
}

double Report::Sum::ratio() const { return sent ? static_cast<double>(bytes_in) / static_cast<double>(sent) : 0.0; }

void Report::compressed(const CallRecord& r) {
  std::lock_guard lock(mutex_);
  // What can fail comes first, so that nothing is counted in part.
  Sum &codec = by_codec_[std::string(r.codec)], &algorithm = by_algorithm_[r.algorithm], &layout = by_layout_[r.layout],
      &size = by_size_[static_cast<int>(std::bit_width(r.bytes)) - 1];
  reasons_[r.algorithm][r.why] += r.first_for_why;
  for (Sum* sum : {&all_, &layout, &size}) sum->note(r, r.first);
  algorithm.note(r, r.first_by_algorithm);
  codec.note(r, true);  // all that a call has of a codec is one part
}

void Report::section(const std::string& name, const std::string& json, const std::string& clause) {
  std::lock_guard lock(mutex_);
  sections_[name] = {json, clause};
}

void Report::rules(std::vector<std::string> idle, std::string first) {
  std::lock_guard lock(mutex_);
  ruled_ = true;
  idle_rules_ = std::move(idle);
  first_name_ = std::move(first);
}

void Report::state(const StateRecord& r) {
  std::lock_guard lock(mutex_);
  state_.saved += r.saved;
  state_.failed += r.failed;
  state_.restored += r.restored;
  state_.unfit += r.unfit;
  state_.never_asked_for += r.never_asked_for;
  state_.saving_s += r.saving_s;
}

void Report::sequence(const SequenceRecord& r) {
  std::lock_guard lock(mutex_);
  sequence_.tensors += r.tensors;
  sequence_.ambiguous += r.ambiguous;
  sequence_.foreign += r.foreign;
  sequence_.withdrawn += r.withdrawn;
  sequence_.forgotten += r.forgotten;
}

void Report::skew(const SkewRecord& r) {
  std::lock_guard lock(mutex_);
  skew_.calls += r.calls;
  skew_.waited_s += r.waited_s;
  skew_.last += r.last;
  skew_.late_s += r.late_s;
}

void Report::control(const ControlRecord& r) {
  std::lock_guard lock(mutex_);
  constexpr std::size_t kMost = 64;  // of a program that makes a communicator in every step the first ones
  if (controls_.size() < kMost) controls_.push_back(r);
  else controls_.back().changes += r.changes;
}

void TimeRecord::Otherwise::operator+=(const Otherwise& more) {
  calls += more.calls;
  took_s += more.took_s;
  own_s += more.own_s;
  s += more.s;
  again += more.again;
}

void TimeRecord::operator+=(const TimeRecord& more) {
  calls += more.calls;
  elements += more.elements;
  took_s += more.took_s;
  best += more.best;
  plain_measured += more.plain_measured;
  plain_predicted += more.plain_predicted;
  again += more.again;
}

void Report::times(const std::string& codec, std::uint64_t from_elements, const TimeRecord& r) {
  std::lock_guard lock(mutex_);
  times_[{codec, from_elements}] += r;
}

JobProgress Report::progress() const {
  std::lock_guard lock(mutex_);
  JobProgress now{all_.calls, 0, all_.bytes_in, all_.sent, all_.total, {}};
  for (const auto& passes : passes_) now.passed += passes.load(std::memory_order_relaxed);
  for (const auto& [_, of] : times_) now.times += of;
  for (const auto& [_, of] : times_until_now_) now.times += of;
  return now;
}

void Report::times_until_now(const void* session, const TimeRecord& r) {
  std::lock_guard lock(mutex_);
  times_until_now_[session] = r;
}

void Report::times_ended(const void* session) {
  std::lock_guard lock(mutex_);
  times_until_now_.erase(session);
}

bool Report::has_room() const {
  std::lock_guard lock(mutex_);
  return decisions_.size() < kCommunicators && decision_bytes_ < kDecisionBytes;
}

void Report::decisions(std::string json) {
  std::lock_guard lock(mutex_);
  ++decisions_left_out_;  // unless it can be kept
  if (decisions_.size() >= kCommunicators || decision_bytes_ >= kDecisionBytes) return;
  const std::size_t bytes = json.size();
  decisions_.push_back(std::move(json));
  decision_bytes_ += bytes;
  --decisions_left_out_;
}

void Report::steps(std::string json) {
  std::lock_guard lock(mutex_);
  if (steps_.size() < kStepTraces) steps_.push_back(std::move(json));
}

void Report::excluded(std::string_view tensor, std::uint64_t count) {
  std::lock_guard lock(mutex_);
  ++excluded_calls_;
  if (const auto it = excluded_.find(tensor); it != excluded_.end()) {
    it->second.elements = count;
    ++it->second.calls;
  } else if (excluded_.size() < kListed) {
    excluded_.emplace(tensor, Excluded{count, 1});
  } else {
    ++excluded_unlisted_;
  }
}

void Report::on_device(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (why.empty()) ++device_calls_;
  else ++through_host_[why];
}

bool Report::compressed_any() const {
  std::lock_guard lock(mutex_);
  return all_.calls > 0;
}

}  // namespace crimp
