// Codecs element by element, written from WIRE_FORMAT.md and the papers alone: no SIMD, no shared code with src/codec. One class per codec in
// <name>_reference.cpp, one line in reference.cpp.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.hpp"  // Place and Selection only

namespace crimp::test {

using Bytes = std::vector<std::uint8_t>;

struct ReferencePiece {
  std::span<const float> a;  // what is encoded: values and memory
  Place place;
  Selection selection;
  std::size_t in_group = 0;
};

class ReferenceCodec {
 public:
  virtual ~ReferenceCodec() = default;
  virtual bool fixed_size() const = 0;
  virtual Bytes encode(const ReferencePiece&) const = 0;
  virtual std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count, const Place&) const = 0;
  virtual Selection select(std::span<const float> /*group*/, const Place&) const { return {}; }
  virtual float finish(float sum, int /*ranks*/) const { return sum; }
  // How far decoded[i] may be from a[i]; negative: no bound of its own.
  virtual double allowed(std::span<const float> a, std::size_t i) const = 0;
};

// spec: canonical text. Throws std::invalid_argument where the codec has no reference.
std::unique_ptr<const ReferenceCodec> make_reference(const std::string& spec);
// The value of a parameter in a canonical text.
std::string parameter(const std::string& spec, const std::string& key);

std::unique_ptr<const ReferenceCodec> cast_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> fp8_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> natural_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> threelc_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> uniform_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> eightbit_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> inceptionn_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> signs_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> sketchml_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> adaq_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> sparse_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> randomk_reference(const std::string& spec);
std::unique_ptr<const ReferenceCodec> thc_reference(const std::string& spec);

}  // namespace crimp::test
