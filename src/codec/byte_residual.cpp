#include "codec/byte_residual.hpp"

#include <algorithm>
#include <cstring>
#include <functional>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "codec/byte_residual.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "codec/coding/dither-inl.h"

HWY_BEFORE_NAMESPACE();
namespace crimp::byte_residual::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, dither::kLanes>;

float Largest(const float* values) {
  const DF d;
  const std::size_t lanes = hn::Lanes(d);
  auto largest = hn::Zero(d);
  for (std::size_t i = 0; i < kBlock; i += lanes) largest = hn::Max(largest, hn::Abs(hn::LoadU(d, values + i)));
  return hn::GetLane(hn::MaxOfLanes(d, largest));
}

// A whole block; `first`: its first tile in what `random` draws.
void RoundBlock(const float* values, const dither::HWY_NAMESPACE::Tiles& random, std::uint32_t first, float* scale,
                std::int8_t* to) {
  const float largest = Largest(values);
  if (largest < kLeast) {
    // Pages that nobody has written stay so.
    if (*scale == 0.0f) return;
    *scale = 0.0f;
    std::memset(to, 0, kBlock);
    return;
  }
  *scale = largest / kMost;
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::int8_t, DF> d8;
  const auto gain = hn::Set(d, kMost / largest), most = hn::Set(d, kMost), least = hn::Set(d, -kMost);
  random.draw<2>(first, [&](std::uint32_t tile, std::size_t half, std::size_t lane, auto bits) HWY_ATTR {
    const std::size_t i = tile * dither::kTile + half * dither::kLanes + lane;
    const auto chance =
        hn::Add(hn::Mul(hn::ConvertTo(d, hn::BitCast(di, bits)), hn::Set(d, 0x1p-16f)), hn::Set(d, 0x1p-17f));
    const auto up = hn::Floor(hn::Add(hn::Mul(hn::LoadU(d, values + i), gain), chance));
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, hn::Max(hn::Min(up, most), least))), d8, to + i);
  });
}

// Elements [first, first + count) behind the counter's, of up to 2^20; blocks whole but for the last.
void Round(const float* values, std::uint64_t first, std::uint64_t count, const RandomCounter& counter, float* scales,
           std::int8_t* to) {
  const dither::HWY_NAMESPACE::Tiles random(counter, kStream);
  for (std::uint64_t at = 0, block = 0; at < count; at += kBlock, ++block) {
    const auto tile = static_cast<std::uint32_t>((first + at) / dither::kTile);
    const std::uint64_t n = std::min(kBlock, count - at);
    if (n == kBlock) {
      RoundBlock(values + at, random, tile, scales + block, to + at);
      continue;
    }
    float padded[kBlock] = {};
    std::int8_t rounded[kBlock];
    std::memcpy(padded, values + at, n * sizeof(float));
    std::memcpy(rounded, to + at, n);
    RoundBlock(padded, random, tile, scales + block, rounded);
    std::memcpy(to + at, rounded, n);
  }
}

void Expand(const float* scales, const std::int8_t* from, std::uint64_t count, float* to) {
  const DF d;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<std::int8_t, DF> d8;
  const std::size_t lanes = hn::Lanes(d);
  for (std::uint64_t at = 0, block = 0; at < count; at += kBlock, ++block) {
    const std::uint64_t end = std::min(count, at + kBlock);
    const auto scale = hn::Set(d, scales[block]);
    std::uint64_t i = at;
    for (; i + lanes <= end; i += lanes)
      hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, from + i))), scale), d, to + i);
    for (; i < end; ++i) to[i] = static_cast<float>(from[i]) * scales[block];
  }
}

}  // namespace crimp::byte_residual::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace crimp::byte_residual {
HWY_EXPORT(Round);
HWY_EXPORT(Expand);

namespace {

// work(at, count) for runs of elements that begin with a block, shared by threads where there are some.
template <class Work>
void in_runs(std::uint64_t count, Workers* workers, Work&& work) {
  constexpr std::uint64_t kRun = std::uint64_t{1} << 16;
  const std::uint64_t runs = (count + kRun - 1) / kRun;
  const auto some = [&](int part, int parts) {
    const auto of = [&](int p) { return runs * static_cast<std::uint64_t>(p) / static_cast<std::uint64_t>(parts); };
    for (std::uint64_t run = of(part); run < of(part + 1); ++run) work(run * kRun, std::min(kRun, count - run * kRun));
  };
  if (!workers || runs < 2) return some(0, 1);
  workers->run(std::ref(some));
}

}  // namespace

void round(const float* values, std::uint64_t count, const RandomCounter& counter, std::byte* to, Workers* workers) {
  auto* const scales = reinterpret_cast<float*>(to);
  auto* const elements = reinterpret_cast<std::int8_t*>(scales + blocks(count));
  in_runs(count, workers, [&](std::uint64_t at, std::uint64_t n) {
    constexpr std::uint64_t kCounted = std::uint64_t{1} << 20;
    RandomCounter here = counter;
    here.element += at / kCounted * kCounted;
    HWY_DYNAMIC_DISPATCH(Round)(values + at, at % kCounted, n, here, scales + at / kBlock, elements + at);
  });
}

void expand(const std::byte* from, std::uint64_t count, float* to, Workers* workers) {
  const auto* const scales = reinterpret_cast<const float*>(from);
  const auto* const elements = reinterpret_cast<const std::int8_t*>(scales + blocks(count));
  in_runs(count, workers, [&](std::uint64_t at, std::uint64_t n) {
    HWY_DYNAMIC_DISPATCH(Expand)(scales + at / kBlock, elements + at, n, to + at);
  });
}

}  // namespace crimp::byte_residual
#endif
