// The codecs of this build with the parameter settings that tests run.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "crimp/codec.hpp"

namespace crimp::test {

inline std::vector<std::shared_ptr<const Codec>> all_codecs() {
  std::vector<std::shared_ptr<const Codec>> all;
  for (const auto& info : codecs()) {
    if (info.name == "3lc") continue;
    all.push_back(make_codec(info.name));
  }
  for (const char* s : {"1", "1.5", "1.75", "1.9999999"})
    for (const char* zero_run : {"0", "1"}) all.push_back(make_codec(std::string("3lc:s=") + s + ",zero_run=" + zero_run));
  for (const char* spec : {"thc:bits=3,g=17", "thc:g=62"}) all.push_back(make_codec(spec));
  return all;
}

}  // namespace crimp::test
