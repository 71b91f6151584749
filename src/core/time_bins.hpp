// When a rank's calls were: the job's time in a fixed number of bins, whose width doubles as the job goes on. All ranks
// begin with the same width, so that of any two ranks' bins one is a power of two times as wide as the other.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace crimp {

// Not thread-safe.
class TimeBins {
 public:
  static constexpr std::size_t kBins = 256;
  static constexpr double kFirstWidth_s = 1.0 / 1024;
  // What calls were: their number, bytes, and seconds. wait: ahead of them, for a late rank, where that is told apart;
  // in_calls: all of the calls, with what is neither encoding, wire nor decoding.
  enum Kind : std::size_t {
    calls,
    passed,
    bytes_in,
    sent_bytes,
    encode_s,
    wire_s,
    decode_s,
    wait_s,
    in_calls_s,
    kinds
  };
  using Amounts = std::array<double, kinds>;

  // Of a call from begin_s to end_s, seconds since the origin: shared out among the bins by the time in each. Times
  // that are none are left out. Throws std::bad_alloc at the first call only.
  void note(double begin_s, double end_s, const Amounts&);

  double width_s() const { return width_s_; }
  const std::vector<Amounts>& bins() const { return bins_; }  // none before the first note(), then kBins
  std::size_t used() const;                                   // up to the last one that holds anything

 private:
  void widen();
  double width_s_ = kFirstWidth_s;
  std::vector<Amounts> bins_;
};

}  // namespace crimp
