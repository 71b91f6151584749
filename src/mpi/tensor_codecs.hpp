// What a program says of its tensors' codecs at run time (crimp_set_codec): by shell patterns over their names, ahead of CRIMP_RULES.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec.hpp"

namespace crimp {

// Of one communicator, equal on all its ranks. Codecs live as long as this: algorithms, choosers and kernels are known by their addresses.
class TensorCodecs {
 public:
  // Of tensors whose names match, ahead of all that was said before. spec: a codec's text; "none": exactly; null: as if nothing had been said of them.
  // Throws Error{codec_unknown}; nothing has changed then.
  void set(const std::string& pattern, const char* spec);
  // Null: exactly. Nothing: not said.
  std::optional<const Codec*> find(const std::string& name) const;
  bool any() const { return !said_.empty(); }

 private:
  struct Said {
    std::string pattern;
    std::optional<const Codec*> codec;
  };
  std::vector<Said> said_;  // the last one first
  std::map<std::string, std::shared_ptr<const Codec>> made_;  // by Codec::spec()
};

}  // namespace crimp
