// What the report's History is told of a call's tensors. Of a communicator's rank 0, where there will be a report.
#pragma once
#include <cstdint>
#include <vector>

#include "core/history.hpp"
#include "mpi/bound_call.hpp"

namespace crimp {

// The tensors of a part that went: its bytes are shared out among them by elements. source: what is known of them.
void note_tensors(History&, const PartPlan&, const char* source, std::uint64_t bytes_in, std::uint64_t sent_bytes);

// How large residuals are behind a call, in a tensor's calls 1, 2, 4, 8 and so on: of tensors of more than kElements
// elements estimated from as many. In all other calls it looks at a number per tensor.
class TensorNotes {
 public:
  static constexpr std::uint64_t kElements = 65536, kBlock = 1024;
  // Before the call, whose values may be overwritten by its result. All that is given outlives this. Nothing is noted
  // where there is no memory for it.
  TensorNotes(History&, const CallPlan&, const BoundCall&, MemoryResource&) noexcept;
  void ended();  // behind the call, which has succeeded

 private:
  struct Due {
    std::string_view name;
    const char* memory;
    const Residual* residual;
    std::uint64_t elements;
    double values_norm;
  };
  double norm(ConstValues, std::uint64_t elements);
  History& history_;
  MemoryResource& memory_;
  std::vector<Due> due_;
};

}  // namespace crimp
