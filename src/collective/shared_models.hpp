// What was measured on one communicator, for others of the same ranks: a program that duplicates communicators, or
// orders them anew, measures once.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "collective/measure.hpp"
#include "collective/trials.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

// Every number in it is agreed by the ranks.
struct Models {
  struct OfCodec {
    CodecCost cost;
    std::optional<CodecCost> halves = {};  // of what may stand in for it
    std::map<SizeClass, Trials> trials;    // finished ones
  };
  NetworkModel network;
  std::optional<HierarchyModel> hierarchy;
  std::map<std::string, OfCodec> codecs;  // by Codec::spec()
  // Equal where and only where all is equal; never 0.
  std::uint64_t digest() const;
};

// Who tell one another: communicators with the same number. They have the same ranks (of MPI_COMM_WORLD; `ranks`: in
// the communicator's order), and the n-th and the m-th one share a host in all of them or in none, because that decides
// how often MPI's rings and trees cross the network, and which nodes there are. hosts: of each rank; empty: they are
// not known, then in the same order.
std::uint64_t group_of(std::span<const int> ranks, std::span<const int> hosts);

// A process's. Threads may have published in another order on another rank, so what find() gives is compared between
// the ranks before it is used. Thread-safe.
class SharedModels {
 public:
  static constexpr std::size_t kMostGroups = 1024;  // that are remembered

  std::shared_ptr<const Models> find(std::uint64_t group) const;  // null: nothing was measured
  void publish(std::uint64_t group, Models);                      // codecs that are not in it stay
  std::uint64_t calls(std::uint64_t group) const;
  void count_call(std::uint64_t group);
  // Communicators that were freed before the trials could end on which they spent much of their calls.
  std::uint64_t unfinished(std::uint64_t group) const;
  void count_unfinished(std::uint64_t group);  // one more; of a group that has calls

 private:
  struct Group {
    std::shared_ptr<const Models> models;
    std::uint64_t calls = 0, unfinished = 0;
  };
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Group> groups_;
};

}  // namespace crimp
