#include "collective/wire.hpp"

namespace crimp {

std::string disagreement(const Header& mine, const Header& got) {
  const auto differs = [](const char* what, std::uint64_t a, std::uint64_t b) {
    return std::string(what) + " is " + std::to_string(b) + ", here " + std::to_string(a);
  };
  if (got.magic != kWireMagic) return "no Crimp header (is Crimp loaded on every rank?)";
  if (got.version != mine.version) return differs("the wire version", mine.version, got.version);
  // What sends a call through MPI is said in stage 0.
  const std::uint8_t legal = got.stage != 0 ? kFlagCorrupt : got.chunk == 0 ? kKnownFlags & ~kFlagCorrupt : kKnownFlags;
  if (got.flags & ~legal) return "reserved header bits are set";
  if (got.stage != 0 && (got.period != 0 || got.wait != 0)) return "reserved header bytes are set";
  if (got.period == 0 && got.wait != 0) return "a wait is said without a period";
  if (got.call != mine.call) return differs("the call number", mine.call, got.call);
  if (got.chunk != mine.chunk) return differs("the chunk number", mine.chunk, got.chunk);
  if (got.algorithm != mine.algorithm)
    return differs("the algorithm", static_cast<std::uint64_t>(mine.algorithm),
                   static_cast<std::uint64_t>(got.algorithm));
  if (got.stage != mine.stage) return differs("the stage", mine.stage, got.stage);
  if (got.codec != mine.codec) return differs("the codec", mine.codec, got.codec);
  if (got.parameters != mine.parameters) return differs("the codec's parameter word", mine.parameters, got.parameters);
  if (got.dtype != mine.dtype) return differs("the element type", mine.dtype, got.dtype);
  if (got.count != mine.count) return differs("the element count", mine.count, got.count);
  if (got.layout != mine.layout) return differs("the layout's digest", mine.layout, got.layout);
  if (got.body_bytes % kPayloadAlign != 0)
    return differs("the body size (a multiple of 64)", mine.body_bytes, got.body_bytes);
  return {};
}

}  // namespace crimp
