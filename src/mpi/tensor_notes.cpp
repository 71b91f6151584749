#include "mpi/tensor_notes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>

namespace crimp {

void note_tensors(History& history, const PartPlan& part, const char* source, std::uint64_t bytes_in,
                  std::uint64_t sent_bytes) {
  std::uint64_t elements = 0;
  for (const Segment& segment : part.layout->segments)
    if (segment.summed()) elements += segment.count;
  const std::string codec = part.codec->spec();
  for (const Segment& segment : part.layout->segments) {
    if (!segment.summed() || segment.key.empty()) continue;
    const double share = static_cast<double>(segment.count) / static_cast<double>(elements);
    history.tensor(segment.key, source, segment.count, codec, share * static_cast<double>(bytes_in),
                   share * static_cast<double>(sent_bytes));
  }
}

TensorNotes::TensorNotes(History& history, const CallPlan& plan, const BoundCall& bound,
                         MemoryResource& memory) noexcept
    : history_(history), memory_(memory) {
  if (bound.failed || bound.parts[0].flags) return;
  try {
    for (std::size_t p = 0; p < bound.residuals.size(); ++p)
      for (std::size_t s = 0; s < bound.residuals[p].size(); ++s) {
        const Residual* const kept = bound.residuals[p][s];
        const PartPlan& part = plan.parts[p].plan;
        const Segment& segment = part.layout->segments[s];
        if (!kept || segment.key.empty() || !TensorLog::samples(kept->turns)) continue;
        due_.push_back({segment.key, name_of(part.codec->feedback().kind), kept, segment.count,
                        norm(bound.parts[p].in + segment.offset, segment.count)});
      }
  } catch (const std::exception&) {
    due_.clear();
  }
}

void TensorNotes::ended() {
  for (const Due& due : due_)
    history_.sampled(due.name, due.memory, due.residual->turns, norm(due.residual->values, due.elements),
                     due.values_norm);
}

double TensorNotes::norm(ConstValues values, std::uint64_t elements) {
  std::array<float, kBlock> block;
  const std::uint64_t blocks = std::min((elements + kBlock - 1) / kBlock, kElements / kBlock);
  double squares = 0;
  std::uint64_t seen = 0;
  for (std::uint64_t b = 0; b < blocks; ++b) {
    const std::uint64_t first = elements <= kElements ? b * kBlock : (elements - kBlock) / (blocks - 1) * b;
    const std::uint64_t n = std::min(kBlock, elements - first);
    read_floats(memory_, values + first, std::span(block).first(n));
    for (std::uint64_t i = 0; i < n; ++i) squares += static_cast<double>(block[i]) * static_cast<double>(block[i]);
    seen += n;
  }
  return seen ? std::sqrt(squares * static_cast<double>(elements) / static_cast<double>(seen)) : 0;
}

}  // namespace crimp
