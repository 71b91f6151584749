// What the algorithms that may carry a call are predicted to take.
#pragma once
#include <span>
#include <vector>

#include "collective/algorithms.hpp"
#include "collective/choice.hpp"
#include "collective/measure.hpp"

namespace crimp {

// All that can run the codec within the query's quality, with predictions; where none of them has a cost function, the
// first one without. Below infinity an algorithm that adds an error also gives way to sums of integers where these run
// the codec. halves: what ChoiceQuery::halves costs, whose candidates come behind; null: it is not measured, or there
// is none.
std::vector<Choice> candidates(const NetworkModel&, const HierarchyModel* hierarchy, const CodecCost&,
                               const ChoiceQuery&, const CodecCost* halves = nullptr);

}  // namespace crimp
