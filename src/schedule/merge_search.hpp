// The merge schedule that a timeline of a step predicts to end first (MergeComp's problem, arXiv 2103.15195, solved
// exactly), where tensors have several codecs to choose from together with the codec of each group.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace crimp {

// Where groups begin, as CRIMP_MERGE=cuts=...: tensors in rising order, without the first group's 0.
using Cuts = std::vector<std::uint32_t>;

// Consecutive tensors that are reduced together.
struct Grouping {
  Cuts cuts;
  std::vector<std::uint8_t> codecs;  // of each group, among those to choose from; empty: the first ones
  std::uint8_t codec(std::size_t group) const { return codecs.empty() ? std::uint8_t{0} : codecs[group]; }
  bool operator==(const Grouping&) const = default;
};

// What a group's call takes. Where calls do not overlap only the sum counts.
struct CallTime {
  double encode_s = 0, wire_s = 0, decode_s = 0;
  double total_s() const { return encode_s + wire_s + decode_s; }
};

// A step, seen from its begin. Tensors become ready one by one; a group is one call, which begins when all of its
// tensors are ready. Calls use the wire in the order of groups, and
//   blocking    a call begins when the one before has ended;
//   otherwise   a processor encodes and decodes beside the wire: groups in their order, a group's payloads decoded
//               either before or after the next group is encoded, whichever lets the step end sooner.
struct Timeline {
  std::vector<double> ready_s;       // of each tensor, in the recorded order
  std::vector<std::uint64_t> bytes;  // likewise
  std::function<CallTime(std::uint64_t bytes, std::uint8_t codec)> call;
  std::uint8_t codecs = 1;  // that a group may have
  bool blocking = true;
  // Where some of a tensor's bytes are summed exactly (CRIMP_RULES): so many, likewise, and what a group's call then
  // takes, in place of `call`. Empty: none are.
  std::vector<std::uint64_t> exact = {};
  std::function<CallTime(std::uint64_t bytes, std::uint64_t exact, std::uint8_t codec)> mixed = {};

  CallTime time(std::uint64_t of_bytes, std::uint64_t of_exact, std::uint8_t codec) const {
    return exact.empty() ? call(of_bytes, codec) : mixed(of_bytes, of_exact, codec);
  }
  std::uint64_t exact_of(std::size_t tensor) const { return exact.empty() ? 0 : exact[tensor]; }

  // When the last group's payloads are decoded.
  double end_s(const Grouping&) const;
};

// Of all groupings one with the least end_s; of equal ends those with fewer groups and earlier codecs, as far as the
// way there shows it. Nothing ends later where what came before ends earlier, so of all ways to a tensor only those are
// followed that no other one beats in all that the rest depends on: one, where calls are blocking (N^2 / 2 calls of
// `call` for each codec), and else a Pareto front of at most 8, or, where these are lost, what is best of blocking
// calls. Wider ones make it exact, and long: with three codecs and balanced resources it is a knapsack problem (of nets
// with 161 to 399 tensors 300 ways found steps shorter by 0.4 to 5 %, in up to 23 s instead of 0.08; of random nets of
// 9 tensors at most one in fifty has shorter ones, by up to 10 %).
Grouping best_grouping(const Timeline&);

}  // namespace crimp
