// What a codec's host file gives to the registry.
#pragma once
#include <memory>

#include "codec/spec.hpp"
#include "codec/codec.hpp"

namespace crimp {

struct CodecEntry {
  CodecInfo info;
  std::shared_ptr<Codec> (*make)(const SpecValues&);
};

CodecEntry none_entry();
CodecEntry fp16_entry();
CodecEntry bf16_entry();
CodecEntry threelc_entry();
CodecEntry qsgd_entry();
CodecEntry terngrad_entry();
CodecEntry natural_entry();
CodecEntry maxmin_entry();
CodecEntry fp8_entry();
CodecEntry eightbit_entry();
CodecEntry onebit_entry();
CodecEntry signsgd_entry();
CodecEntry signum_entry();
CodecEntry efsignsgd_entry();
CodecEntry inceptionn_entry();
CodecEntry sketchml_entry();
CodecEntry adaq_entry();
CodecEntry topk_entry();
CodecEntry randomk_entry();
CodecEntry threshold_entry();
CodecEntry dgc_entry();
CodecEntry sidco_entry();
CodecEntry thc_entry();
CodecEntry powersgd_entry();

}  // namespace crimp
