// The codecs of this build that work on pieces, with the parameter settings that tests run.
#pragma once
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "codec/codec.hpp"
#include "support/sanitized.hpp"

namespace crimp::test {

// TEST_CODEC=NAME in the environment: suites of all codecs run this one alone, which is quicker while it is written.
inline bool one_is_asked_for() { return std::getenv("TEST_CODEC") != nullptr; }
inline bool is_asked_for(const Codec& codec) {
  const char* name = std::getenv("TEST_CODEC");
  return !name || std::string(codec.traits().name) == name;
}

inline std::vector<std::shared_ptr<const Codec>> every_codec() {
  std::vector<std::shared_ptr<const Codec>> all;
  for (const auto& info : codecs()) {
    if (info.name == "3lc" || info.name == "signum" || info.name == "dgc") continue;  // below
    if (info.traits.whole_tensors) continue;                                          // low_rank_test.cpp
    all.push_back(make_codec(info.name));
  }
  all.push_back(make_codec("3lc"));
  if (kSanitized) return all;  // what differs between the other settings is numbers
  for (const char* s : {"1", "1.5", "1.75", "1.9999999"})
    for (const char* zero_run : {"0", "1"})
      all.push_back(make_codec(std::string("3lc:s=") + s + ",zero_run=" + zero_run));
  all.push_back(make_codec("3lc:entropy=1"));
  for (const char* spec : {"3lc:scale=tensor", "3lc:s=1.5,zero_run=0,scale=tensor", "8bit:scale=tensor",
                           "efsignsgd:scale=tensor", "terngrad:scale=tensor"})
    all.push_back(make_codec(spec));
  all.push_back(make_codec("3lc:s=1.75,entropy=1"));
  for (const char* spec :
       {"qsgd:s=1,bucket=128", "qsgd:s=12,bucket=640", "qsgd:s=32767", "terngrad:clip=1", "maxmin:bits=8,block=1024",
        "fp8:format=e5m2,block=96", "maxmin:bits=3,block=128,rounding=nearest"})
    all.push_back(make_codec(spec));
  all.push_back(make_codec("inceptionn:log2_bound=-5"));
  all.push_back(make_codec("sketchml:quantiles=23"));
  all.push_back(make_codec("signum:memory=none"));  // averages need an optimizer's sequence of calls: signs_test.cpp
  // Few of them: one per way to select and per form of the bytes. dgc's own memory needs scratch (dgc_test).
  for (const char* spec : {"topk:ratio=0.3,value=f16", "randomk:ratio=0.3,scale=1", "dgc:memory=residual,ratio=0.001",
                           "sidco:dist=gp,stages=3,ratio=0.02", "sidco:dist=gamma"})
    all.push_back(make_codec(spec));
  for (const char* spec : {"thc:bits=3,g=17", "thc:g=62"}) all.push_back(make_codec(spec));
  return all;
}

inline std::vector<std::shared_ptr<const Codec>> all_codecs() {
  auto all = every_codec();
  std::erase_if(all, [](const auto& codec) { return !is_asked_for(*codec); });
  return all;
}

}  // namespace crimp::test
