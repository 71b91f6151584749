// What a codec has cost in accuracy where it was measured: docs/quality.md's two trainings on Fashion-MNIST. No promise
// for another model.
#pragma once
#include <optional>
#include <string>

namespace crimp::tools {

struct Risk {
  double points;  // of accuracy in % that are lost against fp32, the worse of MLP and CNN; below 0: none, but chance
  bool diverged = false;
};
// algorithm: as in CRIMP_ALGORITHM. "none" loses nothing. Nothing where the codec was not measured with it.
std::optional<Risk> risk_of(const std::string& codec, const std::string& algorithm);
inline constexpr double kChance = 0.5;  // points that seeds lie apart

}  // namespace crimp::tools
