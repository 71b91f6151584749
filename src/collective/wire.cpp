#include "collective/wire.hpp"

#include "codec/codec.hpp"
#include "collective/algorithms.hpp"

namespace crimp {
namespace {

// A header may name what this build does not have.
std::string type_of(std::uint8_t id) {
  for (const Dtype t : {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16})
    if (id == static_cast<std::uint8_t>(t)) return name_of(t);
  return std::to_string(id);
}

std::string codec_of(std::uint8_t id) {
  for (const CodecInfo& codec : codecs())
    if (id == codec.traits.wire_id) return std::string(codec.name);
  return std::to_string(id);
}

std::string algorithm_of(Algorithm id) {
  for (const AlgorithmEntry& entry : algorithms())
    if (id == entry.algorithm) return entry.name;
  if (id == scattering().algorithm) return scattering().name;
  return std::to_string(static_cast<int>(id));
}

// What a program gives comes first: codec, algorithm and how long chunks are follow from it.
std::string other_call(const Header& mine, const Header& got, const char* where) {
  const auto named = [&](const char* what, const std::string& its, const std::string& first) {
    return differing(what, its, first, where);
  };
  const auto other_count = [&] {
    return named("the element count", std::to_string(got.count) + " (in chunk " + std::to_string(got.chunk) + ")",
                 std::to_string(mine.count));
  };
  if (got.dtype != mine.dtype) return named("the element type", type_of(got.dtype), type_of(mine.dtype));
  // Chunks may be of other lengths where calls are as long.
  if (got.layout != mine.layout && got.count != mine.count)
    return other_count() + "; the tensors or their sizes are others";
  if (got.layout != mine.layout) return other_tensors(where);
  if (got.codec != mine.codec) return named("the codec", codec_of(got.codec), codec_of(mine.codec));
  if (got.parameters != mine.parameters)
    return "the parameters of the codec " + codec_of(got.codec) + " are others than " + where;
  if (got.algorithm != mine.algorithm)
    return named("the algorithm", algorithm_of(got.algorithm), algorithm_of(mine.algorithm));
  if (got.stage != mine.stage) return differing("the stage", got.stage, mine.stage, where);
  return got.count != mine.count ? other_count() : std::string();
}

}  // namespace

std::string differing(const char* what, const std::string& its, const std::string& mine, const char* where) {
  return std::string(what) + " is " + its + ", " + where + " " + mine;
}

std::string differing(const char* what, std::uint64_t its, std::uint64_t mine, const char* where) {
  return differing(what, std::to_string(its), std::to_string(mine), where);
}

std::string other_tensors(const char* where) {
  return std::string("the tensors' names, sizes, order or shares are others than ") + where;
}

std::string disagreement(const Header& mine, const Header& got, const char* where) {
  if (got.magic != kWireMagic) return "no Crimp header (is Crimp loaded on every rank?)";
  if (got.version != mine.version) return differing("the wire version", got.version, mine.version, where);
  // What sends a call through MPI is said in stage 0.
  const std::uint8_t legal = got.stage != 0 ? kFlagCorrupt : got.chunk == 0 ? kKnownFlags & ~kFlagCorrupt : kKnownFlags;
  if (got.flags & ~legal) return "reserved header bits are set";
  if (got.stage != 0 && (got.period != 0 || got.wait != 0)) return "reserved header bytes are set";
  if (got.period == 0 && got.wait != 0) return "a wait is said without a period";
  if ((got.call ^ mine.call) == kNoCall) return std::string("(or ") + where + ") a node's ranks are in different calls";
  if (got.call != mine.call) return differing("the call number", got.call, mine.call, where);
  if (got.chunk != mine.chunk) return differing("the chunk number", got.chunk, mine.chunk, where);
  std::string other = other_call(mine, got, where);
  if (other.empty() && got.body_bytes % kPayloadAlign != 0)
    return "the body size is " + std::to_string(got.body_bytes) + ", no multiple of 64";
  return other;
}

std::string not_in_one(const char* call, std::size_t rank, const std::string& what) {
  const std::string name = "rank " + std::to_string(rank);
  return name + (rank ? " and rank 0 are" : " is") + " not in the same " + call + ": on " + name + " " + what;
}

}  // namespace crimp
