// A call's tensors may have several codecs: one collective for each, in which the others' segments are gaps.
#pragma once
#include <memory>
#include <vector>

#include "collective/choice.hpp"
#include "collective/node.hpp"
#include "mpi/request.hpp"
#include "core/settings.hpp"

namespace crimp {

struct CallPart {
  Layout layout;
  CollectiveCall call{};
  ChoiceQuery query{};
  Choice choice;
  Hierarchy hierarchy{};
  std::vector<Residual*> kept;  // of the segments that this rank encodes (null where skipped), or empty

  // The chosen algorithm, with hierarchical's the one between its leaders.
  void take(const Choice&, const Hierarchy&, int ranks);
  // Whether this rank encodes, and whether it encodes sums as their owner and keeps what that loses.
  bool encodes() const { return !call.hierarchy || call.hierarchy->leaders; }
  bool owner_memory() const;
  bool host_bodies() const;  // the algorithm's scratch is in host memory wherever the values are
};
using CallParts = std::vector<std::unique_ptr<CallPart>>;

// codecs: of each segment; null: it is no part's.
CallParts parts_of(const AllreduceRequest&, const Layout&, const std::vector<const Codec*>& codecs, const Settings&);

}  // namespace crimp
