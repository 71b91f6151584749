#include "core/trace.hpp"

#include <functional>
#include <map>
#include <new>
#include <thread>

namespace crimp {

void Trace::add(const char* name, std::uint32_t call, std::uint32_t chunk, Clock::time_point begin,
                Clock::time_point end) noexcept {
  std::lock_guard lock(mutex_);
  try {
    if (spans_.size() < kMost) {
      spans_.push_back({name, call, chunk, begin, end, std::hash<std::thread::id>()(std::this_thread::get_id())});
      return;
    }
  } catch (const std::bad_alloc&) {
  }
  ++dropped_;
}

std::string Trace::events(int rank, Clock::time_point origin) const {
  std::lock_guard lock(mutex_);
  const std::string pid = std::to_string(rank);
  std::string text = R"({"ph":"M","name":"process_name","pid":)" + pid + R"(,"args":{"name":"rank )" + pid + "\"}}";
  std::map<std::uint64_t, int> threads;
  const auto us = [](Clock::duration d) { return std::to_string(1e6 * seconds(d)); };
  for (const Span& s : spans_) {
    const int tid = threads.emplace(s.thread, static_cast<int>(threads.size())).first->second;
    text += std::string(",\n{\"ph\":\"X\",\"name\":\"") + s.name + "\",\"pid\":" + pid +
            ",\"tid\":" + std::to_string(tid) + ",\"ts\":" + us(s.begin - origin) + ",\"dur\":" + us(s.end - s.begin) +
            ",\"args\":{\"call\":" + std::to_string(s.call) + ",\"chunk\":" + std::to_string(s.chunk) + "}}";
  }
  if (dropped_)
    text += ",\n{\"ph\":\"M\",\"name\":\"dropped spans\",\"pid\":" + pid +
            ",\"args\":{\"count\":" + std::to_string(dropped_) + "}}";
  return text;
}

}  // namespace crimp
