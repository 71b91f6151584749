// Codecs element by element, written from WIRE_FORMAT.md and the papers alone: no SIMD, no shared code with src/codec.
// They lie in the codecs' folders: a file <family>_reference.cpp defines <family>_reference(spec), which makes the
// reference of a canonical text and is null where the codec is none of its own. The build finds the files and makes a
// table of their functions.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "codec/codec.hpp"  // RandomCounter and Selection only

namespace crimp::test {

using Bytes = std::vector<std::uint8_t>;

struct ReferencePiece {
  std::span<const float> a;  // what is encoded: values and memory
  RandomCounter counter;
  Selection selection;
  std::size_t in_group = 0;
};

class ReferenceCodec {
 public:
  virtual ~ReferenceCodec() = default;
  virtual bool fixed_size() const = 0;
  virtual Bytes encode(const ReferencePiece&) const = 0;
  virtual std::vector<float> decode(std::span<const std::uint8_t> piece, std::size_t count,
                                    const RandomCounter&) const = 0;
  virtual Selection select(std::span<const float> /*group*/, const RandomCounter&) const { return {}; }
  virtual float finish(float sum, int /*ranks*/) const { return sum; }
  // How far decoded[i] may be from a[i], of a piece; negative: no bound of its own.
  virtual std::vector<double> allowed(std::span<const float> a) const = 0;

 protected:
  // allowed() by bound(block), a function of an element, for each block of the piece.
  template <class Bound>
  static std::vector<double> by_block(std::span<const float> a, std::size_t block, Bound bound) {
    std::vector<double> all;
    for (std::size_t at = 0; at < a.size(); at += block) {
      const auto values = a.subspan(at, std::min(block, a.size() - at));
      const auto of = bound(values);
      for (const float x : values) all.push_back(of(static_cast<double>(x)));
    }
    return all;
  }
  template <class Bound>
  static std::vector<double> by_element(std::span<const float> a, Bound bound) {
    return by_block(a, a.size(), [&](std::span<const float>) { return bound; });
  }
};

using MakeReference = std::unique_ptr<const ReferenceCodec> (*)(const std::string& spec);
std::span<const MakeReference> references();  // the table

// spec: canonical text. Throws std::invalid_argument where the codec has no reference.
std::unique_ptr<const ReferenceCodec> make_reference(const std::string& spec);
std::string codec_of(const std::string& spec);  // "3lc" of "3lc:s=1"
// The value of a parameter in a canonical text.
std::string parameter(const std::string& spec, const std::string& key);

}  // namespace crimp::test
