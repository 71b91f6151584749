#include "support/reference.hpp"

#include <map>
#include <stdexcept>

namespace crimp::test {

std::unique_ptr<const ReferenceCodec> make_reference(const std::string& spec) {
  static const std::map<std::string, std::unique_ptr<const ReferenceCodec> (*)(const std::string&)> references{
      {"none", cast_reference},
      {"fp16", cast_reference},
      {"bf16", cast_reference},
      {"3lc", threelc_reference},
      {"qsgd", uniform_reference},
      {"terngrad", uniform_reference},
      {"natural", natural_reference},
      {"fp8", fp8_reference},
      {"maxmin", uniform_reference},
      {"8bit", eightbit_reference},
      {"1bit", signs_reference},
      {"signsgd", signs_reference},
      {"signum", signs_reference},
      {"efsignsgd", signs_reference},
      {"inceptionn", inceptionn_reference},
      {"sketchml", sketchml_reference},
      {"adaq", adaq_reference},
      {"topk", sparse_reference},
      {"randomk", randomk_reference},
      {"threshold", sparse_reference},
      {"dgc", sparse_reference},
      {"sidco", sparse_reference},
      {"thc", thc_reference},
  };
  const auto it = references.find(spec.substr(0, spec.find(':')));
  if (it == references.end()) throw std::invalid_argument("codec " + spec + " has no reference; add one to tests/support/");
  return it->second(spec);
}

std::string parameter(const std::string& spec, const std::string& key) {
  for (std::size_t at = spec.find(':'); at != spec.npos;) {
    const std::size_t end = spec.find(',', at + 1);
    const std::string item = spec.substr(at + 1, end == spec.npos ? end : end - at - 1);
    if (item.substr(0, item.find('=')) == key) return item.substr(item.find('=') + 1);
    at = end;
  }
  throw std::invalid_argument(spec + " has no parameter " + key);
}

}  // namespace crimp::test
