#include "support/dither_tile.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "support/dither_tile.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/coding/dither-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::test::HWY_NAMESPACE {
void Tile(const RandomCounter& counter, std::uint32_t stream, std::uint32_t tile, std::uint32_t* bits) {
  namespace in = crimp::dither::HWY_NAMESPACE;
  in::for_tile(counter, stream, tile, [&](std::size_t half, std::size_t lane, in::V32 v) HWY_ATTR {
    hwy::HWY_NAMESPACE::StoreU(v, in::D32(), bits + half * 16 + lane);
  });
}
}  // namespace crimp::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp::test {
HWY_EXPORT(Tile);
void dither_tile(const RandomCounter& counter, std::uint32_t stream, std::uint32_t tile, std::uint32_t* bits) {
  HWY_DYNAMIC_DISPATCH(Tile)(counter, stream, tile, bits);
}
}  // namespace crimp::test
#endif
