#include "mpi/call_part.hpp"

#include <algorithm>

#include "collective/algorithms.hpp"

namespace crimp {

CallParts parts_of(const AllreduceRequest& request, const Layout& layout, const std::vector<const Codec*>& codecs, const Settings& settings) {
  CallParts parts;
  for (const Codec* codec : codecs) {
    if (!codec || std::any_of(parts.begin(), parts.end(), [&](const auto& p) { return p->call.codec == codec; })) continue;
    CallPart& part = *parts.emplace_back(std::make_unique<CallPart>());
    part.layout = layout;
    std::uint64_t elements = 0;
    for (std::size_t s = 0; s < codecs.size(); ++s) {
      if (codecs[s] != codec) part.layout.segments[s].use = Segment::Use::skip;
      elements += part.layout.segments[s].use == Segment::Use::skip ? 0 : layout.segments[s].count;
    }
    CollectiveCall& call = part.call;
    call.count = request.count;
    call.codec = codec;
    call.layout = &part.layout;
    call.dtype = request.dtype;
    call.checksum = settings.checksum;
    part.query = {codec, elements, settings.chunk, elements * size_of(request.dtype), settings.quality};
  }
  return parts;
}

void CallPart::take(const Choice& chosen, const Hierarchy& nodes, int ranks) {
  choice = chosen;
  call.algorithm = chosen.algorithm;
  if (chosen.algorithm != Algorithm::hierarchical) {
    call.chunk = chunk_elements(query.chunk_setting, *call.codec, ranks, chosen.algorithm);
    return;
  }
  hierarchy = nodes;
  hierarchy.inner = chosen.inner;
  call.hierarchy = &hierarchy;
  call.chunk = chunk_elements(query.chunk_setting, *call.codec, nodes.nodes, chosen.inner);
}

bool CallPart::host_bodies() const { return entry_of(call.algorithm).host_bodies; }

bool CallPart::owner_memory() const {
  if (!call.hierarchy) return entry_of(call.algorithm).owner_memory(*call.codec);
  return call.hierarchy->leaders && entry_of(call.hierarchy->inner).owner_memory(*call.codec);
}

}  // namespace crimp
