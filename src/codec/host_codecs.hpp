// What a codec's host file gives to the registry.
#pragma once
#include <memory>

#include "codec/spec.hpp"
#include "crimp/codec.hpp"

namespace crimp {

struct CodecEntry {
  CodecInfo info;
  std::shared_ptr<Codec> (*make)(const SpecValues&);
};

CodecEntry none_entry();
CodecEntry fp16_entry();
CodecEntry bf16_entry();
CodecEntry threelc_entry();
CodecEntry powersgd_entry();

}  // namespace crimp
