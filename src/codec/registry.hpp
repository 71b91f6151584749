// What a codec's host file gives to the registry (registry.def).
#pragma once
#include <memory>

#include "codec/codec.hpp"
#include "codec/spec.hpp"

namespace crimp {

struct CodecEntry {
  CodecInfo info;  // without its name, which is the row's
  std::shared_ptr<Codec> (*make)(const SpecValues&);
};

template <class Made>
std::shared_ptr<Codec> make_as(const SpecValues& values) {
  return std::make_shared<Made>(values);
}

#define CRIMP_CODEC(codec, name, kernels) CodecEntry codec##_entry();
#include "codec/registry.def"
#undef CRIMP_CODEC

}  // namespace crimp
