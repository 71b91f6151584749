// Codec texts: "name:key=value,key=value".
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "codec/codec.hpp"

namespace crimp {

std::string spec_number(double);  // shortest text that reads back as the same float

// The values of one codec text. Every failure throws Error{codec_unknown} that names the text, the value and what is legal.
class SpecValues {
 public:
  SpecValues(std::string_view text, const CodecInfo& info);  // throws on a key that the codec does not have
  double number(std::string_view key, double default_value) const;
  bool flag(std::string_view key, bool default_value) const;
  // One of `legal`, its index is returned.
  std::size_t word(std::string_view key, std::span<const std::string_view> legal, std::size_t default_index) const;
  MemoryPolicy memory(const Codec::Traits&) const;
  // The codec's own parameters and the memory where it is not the codec's default, all values in their shortest form.
  std::string canonical(const Codec::Traits&) const;
  [[noreturn]] void fail(std::string_view key, std::string_view legal) const;

 private:
  std::string text_;
  const CodecInfo& info_;
  std::map<std::string, std::string, std::less<>> values_;
};

// scale=piece|tensor: whether a codec's scale is a piece's or that of the whole group, which its select() then finds.
CodecParameter scale_parameter();
bool scales_tensors(const SpecValues&);

}  // namespace crimp
