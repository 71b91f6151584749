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
    if (info.name == "3lc" || info.name == "dgc") continue;
    all.push_back(make_codec(info.name));
  }
  for (const char* s : {"1", "1.5", "1.75", "1.9999999"})
    for (const char* zero_run : {"0", "1"}) all.push_back(make_codec(std::string("3lc:s=") + s + ",zero_run=" + zero_run));
  // Few of them: one per way to select and per form of the bytes. dgc's own memory needs scratch (dgc_test).
  for (const char* spec : {"topk:ratio=0.3,value=f16", "randomk:ratio=0.3,scale=1", "dgc:memory=residual,ratio=0.001", "sidco:dist=gp,stages=3,ratio=0.02", "sidco:dist=gamma"})
    all.push_back(make_codec(spec));
  return all;
}

}  // namespace crimp::test
