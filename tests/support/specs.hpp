// The codecs of this build that work on pieces, with the parameter settings that tests run.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "crimp/codec.hpp"

namespace crimp::test {

inline std::vector<std::shared_ptr<const Codec>> all_codecs() {
  std::vector<std::shared_ptr<const Codec>> all;
  for (const auto& info : codecs()) {
    if (info.name == "3lc" || info.traits.whole_tensors) continue;  // below; low_rank_test.cpp
    all.push_back(make_codec(info.name));
  }
  for (const char* s : {"1", "1.5", "1.75", "1.9999999"})
    for (const char* zero_run : {"0", "1"}) all.push_back(make_codec(std::string("3lc:s=") + s + ",zero_run=" + zero_run));
  return all;
}

}  // namespace crimp::test
