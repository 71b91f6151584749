// What a call takes where an algorithm is named: CRIMP_ALGORITHM, crimp_set_algorithm().
#pragma once
#include <functional>
#include <string>

#include "collective/choice.hpp"

namespace crimp {

struct Hierarchy;

// The algorithm of that name, or, where it cannot carry the call, the codec's first one. device: some rank's values lie
// in a device's memory, as far as all ranks know; chunks have lengths for that. open_nodes: the communicator's nodes,
// opened where the algorithm needs them; null: there are none. Collective where it is called; else local, and equal on
// all ranks.
Choice forced(const std::string& name, const ChoiceQuery&, int ranks, bool device,
              const std::function<const Hierarchy*()>& open_nodes);

}  // namespace crimp
