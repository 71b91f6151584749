// Which rank receives which elements of a sum.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/digest.hpp"

namespace crimp {

// What a program asks for. All but allreduce come with Shares.
enum class Collective : std::uint8_t { allreduce, reduce_scatter, reduce };

constexpr const char* name_of(Collective c) {
  return c == Collective::allreduce ? "MPI_Allreduce" : c == Collective::reduce ? "MPI_Reduce" : "MPI_Reduce_scatter";
}

// Never changes once it is made. Equal on all ranks.
struct Shares {
  struct Run {
    std::uint64_t begin, end;  // elements of the call
    std::uint64_t count() const { return end - begin; }
  };
  Shares(Collective asked, std::vector<std::uint64_t> ends) : collective(asked), borders(std::move(ends)) {}

  Run of(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return {borders[r], borders[r + 1]};
  }
  int ranks() const { return static_cast<int>(borders.size()) - 1; }
  std::uint64_t largest() const {
    std::uint64_t most = 0;
    for (std::size_t r = 1; r < borders.size(); ++r) most = std::max(most, borders[r] - borders[r - 1]);
    return most;
  }
  std::uint64_t digest() const { return crimp::digest(borders.data(), borders.size() * sizeof borders[0]); }
  bool operator==(const Shares& o) const { return collective == o.collective && borders == o.borders; }
  // "reduce_scatter", with how much of the elements one rank receives where that is not the same for all.
  std::string text() const;

  const Collective collective;
  const std::vector<std::uint64_t> borders;  // rank r receives [borders[r], borders[r + 1]); from 0 to the call's count
};

}  // namespace crimp
