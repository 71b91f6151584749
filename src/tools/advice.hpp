// What to run, out of what was forecast: the shortest step whose risk is known and small, or nothing at all.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "forecast.hpp"
#include "risk.hpp"

namespace crimp::tools {

// Who makes the calls: Horovod, which Crimp can have merge tensors; PyTorch's DDP in its buckets; or the program
// itself, one call a tensor, which waits for each.
enum class Caller { horovod, ddp, program };

inline constexpr double kLeastGain = 1.05;  // of plain's step; less is not worth a codec's loss

struct Advice {
  bool pays = false;
  Forecast taken;          // of plain MPI, where it does not pay
  double gain = 1;         // plain's step over its
  double over_halves = 0;  // the step in 16 bits over its; 0: not forecast
  double most_gain = 0;    // what an exchange would gain that takes no time; 0: without computing there is no telling
  std::optional<Risk> risk;
  std::string line;  // to run
};

struct AdviceQuery {
  double most_loss = kChance;  // points of accuracy
  Caller caller = Caller::horovod;
  int threads = 1;
  std::string quality = {};  // CRIMP_QUALITY, where it is not the default
  std::string program = "./your_program";
  int ranks = 2;
};

// The shortest text that make_codec() takes for the same codec: "3lc" of all that its canonical text says.
std::string short_codec(const std::string& spec);
// Of the row's algorithm, of auto's the worst of those that it has to choose from. Nothing: not measured.
std::optional<Risk> risk_of(const Forecast&, const std::vector<Forecast>& all);
// all: plain MPI first.
Advice advise(const std::vector<Forecast>& all, const StepShape&, const AdviceQuery&);

}  // namespace crimp::tools
