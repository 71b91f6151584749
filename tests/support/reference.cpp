#include "support/reference.hpp"

#include <stdexcept>

namespace crimp::test {

std::unique_ptr<const ReferenceCodec> make_reference(const std::string& spec) {
  for (const MakeReference make : references())
    if (auto reference = make(spec)) return reference;
  throw std::invalid_argument("codec " + spec +
                              " has no reference; add <family>_reference.cpp to its folder in src/codec");
}

std::string codec_of(const std::string& spec) { return spec.substr(0, spec.find(':')); }

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
