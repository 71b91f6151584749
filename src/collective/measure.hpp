// What the chooser's model is made of, measured: exchanges, codecs, the work within a node. What is collective gives
// all ranks the same numbers, those of the slowest.
#pragma once
#include <functional>
#include <optional>
#include <span>

#include "backend/backend.hpp"
#include "collective/node.hpp"
#include "collective/transport.hpp"
#include "schedule/cost_model.hpp"

namespace crimp {

// Sums floats in place over the transport's ranks by MPI itself. Throws Error{transport_failed}.
using PlainAllreduce = std::function<void(float* buffer, std::uint64_t count)>;

// Collective. The largest of each rank's values, in place; at most 8 of them, of the first one all but its last bit.
// Throws Error{call_differs} where a rank is not in it but sends the headers of a call.
void agree_on_largest(Transport&, std::span<double> values);
// Collective; exchanges of growing size until one takes kLongEnough. Without a PlainAllreduce the model has no curve of
// it.
NetworkModel measure_network(Transport&, const PlainAllreduce&);

// This rank's own, where the backend has its values: on `sample` repeated up to a whole piece, for a device up to
// `most` elements, which are needed to fill it; on values of our own where the sample holds none that the codec takes.
// Throws Error{out_of_memory}, Error{device_failed}.
CodecCost time_codec(const Codec&, std::span<const float> sample, std::uint64_t most, Backend&);
inline constexpr std::uint64_t kSampleElements = 16 * kPieceElements;
// Collective. `time` gives this rank's. Throws Error{out_of_memory} on all ranks where it threw on one.
CodecCost measure_codec(Transport&, const Codec&, const std::function<CodecCost()>& time);

// What a hierarchy costs: its leaders' network, and one rank's work within its node.
struct HierarchyModel {
  NetworkModel leaders;
  NodeModel node;
};
// Collective over `all`. Empty on all ranks where one has no memory for it. `values`: where this rank has its values;
// null: in host memory.
std::optional<HierarchyModel> measure_hierarchy(Transport& all, const Hierarchy&, Backend* values = nullptr);

}  // namespace crimp
