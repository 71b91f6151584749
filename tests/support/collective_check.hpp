// Calls with ranks as threads, compared with the model bit for bit.
#pragma once
#include <doctest/doctest.h>

#include "support/collective_run.hpp"
#include "support/compare.hpp"

namespace crimp::test {

// Two calls, so that the second one starts from residuals. exchanges: what every rank starts for each chunk.
inline void check_calls(const Setup& setup, int n, std::uint64_t seed, int exchanges) {
  CAPTURE(text_of(setup));
  CAPTURE(n);
  CAPTURE(seed);
  auto ranks = make_ranks(setup, n, seed);
  auto model = ranks;
  const std::uint64_t chunks = std::max<std::uint64_t>(1, div_up(setup.count, setup.chunk));
  for (std::uint32_t step = 0; step < 2; ++step) {
    for (auto& r : ranks) r.sequence = step;
    for (auto& r : model) r.sequence = step;
    run_all(setup, ranks);
    const auto expected = model_all(setup, model);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      CAPTURE(r);
      CAPTURE(step);
      CHECK(ranks[r].result.flags == 0);
      CHECK_FALSE(ranks[r].result.error.has_value());
      CHECK(difference(ranks[r].out, expected) == "");
      CHECK(difference(ranks[r].residual, model[r].residual) == "");
      CHECK(difference(ranks[r].owner_residual, model[r].owner_residual) == "");
      CHECK(ranks[r].exchanges == exchanges * static_cast<int>(chunks));
      CHECK(ranks[r].result.sent_bytes >= 64 * chunks);
      CHECK((n > 1) == (ranks[r].result.received_bytes > 0));
    }
  }
}

}  // namespace crimp::test
