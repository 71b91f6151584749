// One piece through a codec, where it is all of its group.
#pragma once
#include <doctest/doctest.h>

#include <bit>
#include <initializer_list>

#include "codec/codec.hpp"
#include "core/error.hpp"
#include "support/compare.hpp"
#include "support/reference.hpp"

namespace crimp::test {

inline Bytes encode(const Codec& codec, const std::vector<float>& a, const RandomCounter& counter, float* residual_out,
                    const float* residual_in) {
  const Selection selection =
      codec.traits().selects ? codec.select(a.data(), residual_in, a.size(), counter) : Selection{};
  Bytes bytes(codec.piece_bound(a.size()));
  bytes.resize(codec.encode_piece({a.data(), residual_in, residual_out, a.size(), counter, selection}, bytes.data()));
  if (codec.traits().fixed_size) CHECK(bytes.size() == codec.piece_bound(a.size()));
  return bytes;
}
inline Bytes encode(const Codec& codec, const std::vector<float>& a, const RandomCounter& counter) {
  return encode(codec, a, counter, nullptr, nullptr);
}
inline Bytes encode(const Codec& codec, const std::vector<float>& a, float* residual_out = nullptr,
                    const float* residual_in = nullptr) {
  return encode(codec, a, {}, residual_out, residual_in);
}
// Adds to acc, whose size is the piece's. False where the codec refuses the bytes.
inline bool decodes(const Codec& codec, const Bytes& bytes, std::vector<float>& acc) {
  const Bytes exact(bytes);  // no room behind it
  return codec.decode_add_piece(exact, acc.size(), {}, acc.data());
}
inline std::vector<float> decode(const Codec& codec, const Bytes& bytes, std::size_t count) {
  std::vector<float> acc(count);
  CHECK(decodes(codec, bytes, acc));
  return acc;
}
inline std::vector<float> through(const Codec& codec, const std::vector<float>& a) {
  return decode(codec, encode(codec, a), a.size());
}

// Whether the codec refuses the piece after change(piece), and writes nothing outside its elements.
template <class Change>
bool refuses(const Codec& codec, Bytes piece, std::size_t count, Change&& change) {
  change(piece);
  Guarded<float> out(count);
  return !codec.decode_add_piece(piece, count, {}, out.data()) && out.intact();
}

// Floats, then bytes.
inline Bytes piece_of(std::initializer_list<float> floats, const Bytes& rest) {
  Bytes bytes;
  for (const float x : floats)
    for (int shift = 0; shift < 32; shift += 8)
      bytes.push_back(static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(x) >> shift));
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

// What make_codec says against a text, or that it says nothing.
inline std::string refusal(const std::string& spec) {
  try {
    return "accepted as " + make_codec(spec)->spec();
  } catch (const Error& e) {
    CHECK(e.code() == ErrorCode::codec_unknown);
    return e.what();
  }
}

}  // namespace crimp::test
