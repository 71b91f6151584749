// The codecs of a process, one of each text: tensors that get theirs from different rules, or from the program, are of
// one codec where the texts mean the same.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "codec/codec.hpp"

namespace crimp {

// Thread-safe.
class CodecPool {
 public:
  // The codec of the canonical text Codec::spec(), however it is written here. Throws Error{codec_unknown}.
  std::shared_ptr<const Codec> get(std::string_view spec);

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Codec>> codecs_;  // by Codec::spec()
};

}  // namespace crimp
