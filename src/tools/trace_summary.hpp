// What a file of CRIMP_TRACE comes to: sums by rank and track, who waited for whom, the tensors that waited longest for
// the network, and how much of the encoding ran while something was under way.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace crimp::tools {

struct TraceSummary {
  template <class Count>
  struct RankSums {
    std::string host;
    double uncertainty_us = 0;                               // of its clock against rank 0's
    std::uint64_t dropped = 0;                               // spans
    Count calls = 0, passed = 0, bytes = 0, sent_bytes = 0;  // bytes: bytes_in
    // Seconds in each track; under_way_s: in which something was.
    double calls_s = 0, encode_s = 0, wire_s = 0, under_way_s = 0, decode_s = 0, passed_s = 0;
    double asked_s = 0;   // waits for the headers of calls that MPI then did
    double hidden_s = 0;  // of encode_s, while something of this rank's was under way
    std::uint64_t meetings = 0, last = 0;
    double waited_s = 0, late_s = 0;  // as SkewRecord (core/records.hpp)
  };
  using Rank = RankSums<std::uint64_t>;
  struct Tensors {
    std::string name;
    std::uint64_t calls = 0, bytes = 0, sent_bytes = 0;  // of all ranks
    double wire_s = 0, calls_s = 0;
  };
  std::string version;
  std::map<int, Rank> ranks;
  std::vector<Tensors> tensors;  // by wire_s, the most first
  double span_s = 0;             // from the first event to the last
  bool measured = false;         // by CRIMP_SKEW; else waited_s and late_s are estimates, from when calls began
  std::uint64_t dropped() const;
  double uncertainty_us() const;  // of all ranks
  RankSums<double> mean() const;  // of seconds, bytes and calls
};

// Throws Error{argument_invalid} with the file's name.
TraceSummary read_trace(const std::string& file);

}  // namespace crimp::tools
