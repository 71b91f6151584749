// What was done: counted while running, said once at the end (summary line, CRIMP_REPORT). Thread-safe.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace crimp {

// Why a call went through MPI unchanged. One list makes the enum and the texts.
#define CRIMP_PASSES(ITEM)                                              \
  ITEM(off, "switched off")                                             \
  ITEM(operation, "not a sum")                                          \
  ITEM(type, "not a recognised floating-point type")                    \
  ITEM(small, "fewer elements than CRIMP_MIN_COUNT")                    \
  ITEM(communicator, "one rank or an intercommunicator")                \
  ITEM(odd_arguments, "arguments left to MPI to judge")                 \
  ITEM(no_codec, "no lossy codec chosen")                               \
  ITEM(settings_differ, "settings differ between ranks")                \
  ITEM(unknown_layout, "tensors unknown and CRIMP_UNKNOWN_LAYOUT=none") \
  ITEM(rules, "tensors excluded by CRIMP_RULES")                        \
  ITEM(range, "NaN, Inf or values outside the codec's range")           \
  ITEM(memory, "a rank was out of memory")                              \
  ITEM(slower, "plain MPI predicted to be faster")

enum class Pass : std::size_t {
#define CRIMP_ITEM(name, text) name,
  CRIMP_PASSES(CRIMP_ITEM)
#undef CRIMP_ITEM
      count
};
const char* name_of(Pass);
const char* text_of(Pass);

struct CallRecord {
  std::string codec;        // canonical text of the codec that ran
  const char* layout = "";  // name_of(Layout::Source)
  const char* algorithm = "";
  const char* why = "";       // this algorithm
  double predicted_s = 0, plain_s = 0;  // by the model, of this algorithm and of plain MPI; 0: not predicted
  std::uint64_t bytes_in = 0, sent_bytes = 0, received_bytes = 0;
  double encode_s = 0, wire_s = 0, decode_s = 0, total_s = 0;
};

class Report {
 public:
  void passed(Pass why) { passes_[static_cast<std::size_t>(why)].fetch_add(1, std::memory_order_relaxed); }
  void compressed(const CallRecord&);
  void error() { errors_.fetch_add(1, std::memory_order_relaxed); }
  void residuals(std::uint64_t bytes) { residual_bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  std::string summary() const;  // one or two lines for people
  std::string json() const;     // one rank's object

 private:
  struct Sum {
    std::uint64_t calls = 0, bytes_in = 0, sent = 0, received = 0;
    double encode = 0, wire = 0, decode = 0, total = 0, predicted = 0, plain = 0;
    void add(const CallRecord&);
  };
  mutable std::mutex mutex_;
  Sum all_;
  std::map<std::string, Sum> by_codec_;
  std::map<std::string, Sum> by_algorithm_;
  std::map<std::string, std::map<std::string, std::uint64_t>> reasons_;  // by algorithm
  std::map<std::string, Sum> by_layout_;
  std::map<int, Sum> by_size_;  // key: floor(log2(bytes))
  std::array<std::atomic<std::uint64_t>, static_cast<std::size_t>(Pass::count)> passes_{};
  std::atomic<std::uint64_t> errors_{0}, residual_bytes_{0};
};

}  // namespace crimp
