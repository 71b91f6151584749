// What a program says of its tensors' codecs at run time (crimp_set_codec): by shell patterns over their names, ahead
// of CRIMP_RULES.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codec/codec_pool.hpp"

namespace crimp {

// Of one communicator, equal on all its ranks.
class TensorCodecs {
 public:
  explicit TensorCodecs(CodecPool& pool) : pool_(pool) {}
  // Of tensors whose names match, ahead of all that was said before. spec: a codec's text; "none": exactly; null: as if
  // nothing had been said of them. Whether that changes anything. Throws Error{codec_unknown}; nothing has changed
  // then.
  bool set(const std::string& pattern, const char* spec);
  // Null: exactly. Nothing: not said.
  std::optional<const Codec*> find(const std::string& name) const;
  bool any() const { return !said_.empty(); }
  bool any_codec(const std::function<bool(const Codec&)>& is) const;

 private:
  struct Said {
    std::string pattern;
    std::optional<std::shared_ptr<const Codec>> codec;
    bool operator==(const Said&) const = default;
  };
  CodecPool& pool_;
  std::vector<Said> said_;  // the last one first
};

}  // namespace crimp
