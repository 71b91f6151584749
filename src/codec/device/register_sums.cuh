// Adds up the payloads of a piece in registers, for codecs that have the functions of sums.cuh.
#pragma once
#include "codec/device/piece.cuh"

namespace crimp::device {

// Adds up a piece in registers, slot by slot, what some payloads have for some elements on its way at once; body(r) is
// where the piece begins in rank r's. No barrier.
template <class To, class Device, class Body>
__device__ inline void decode_slots(const Device& device, const Piece& piece, std::int64_t count, Body&& body,
                                    const To& out, bool accumulate, typename Device::DecodeShared& own,
                                    std::int32_t* bad) {
  constexpr int at_once = Device::kPayloads;
#pragma unroll 1
  for (std::uint32_t j = 0; j < Device::kSlots; ++j) {
    if (j > 0 && !Device::begins(j, piece.count)) break;
    float sums[Device::kEach] = {};
    if constexpr (std::is_pointer_v<To>)
      if (accumulate) Device::load_slot(out, piece.count, j, sums);
#pragma unroll 1
    for (std::int64_t r = 0; r < count; r += at_once) {
      typename Device::Head head[at_once] = {};
      typename Device::Slot slot[at_once] = {};
#pragma unroll
      for (int b = 0; b < at_once; ++b)
        if (r + b < count) {
          const std::uint8_t* const in = body(r + b);
          head[b] = device.head(piece, in);
          slot[b] = device.fetch(piece, in, j);
        }
#pragma unroll
      for (int b = 0; b < at_once; ++b)
        if (r + b < count) {
          const bool legal = device.legal(piece, head[b]);
          if (!device.add(piece, head[b], slot[b], j, sums, own) || !legal)
            atomicMin(bad, static_cast<std::int32_t>(r + b));
        }
    }
    Device::store_slot(out, piece.count, j, sums);
  }
}

// Likewise a whole piece, of which a thread has some slots at once, from slot `first` on: addresses and what is not of
// elements are then made once for them and a payload, or are constants.
template <std::uint32_t first, class To, class Device, class Whole, class Body>
__device__ inline void decode_whole(const Device& device, const Whole& whole, std::int64_t count, Body&& body,
                                    const To& out, bool accumulate, typename Device::DecodeShared& own,
                                    std::int32_t* bad) {
  constexpr std::uint32_t n =
      first + Device::kWholeSlots < Device::kSlots ? Device::kWholeSlots : Device::kSlots - first;
  struct Payload {
    typename Whole::Head head;
    typename Whole::Slot slots[n];
  };
  float sums[n][Device::kEach] = {};
  if constexpr (std::is_pointer_v<To>)
    if (accumulate) {
#pragma unroll
      for (std::uint32_t j = 0; j < n; ++j) Device::load_whole(out, first + j, sums[j]);
    }
  const auto fetch = [&](std::int64_t r, Payload& payload) {
    if (r >= count) return;
    const std::uint8_t* const in = body(r);
    payload.head = whole.head(in);
#pragma unroll
    for (std::uint32_t j = 0; j < n; ++j) payload.slots[j] = whole.fetch(in, first + j);
  };
  const auto add = [&](std::int64_t r, Payload& payload) {
    bool legal = whole.open(device, payload.head);
#pragma unroll
    for (std::uint32_t j = 0; j < n; ++j)
      legal = whole.add(payload.head, payload.slots[j], first + j, sums[j], own) && legal;
    if (!legal) atomicMin(bad, static_cast<std::int32_t>(r));
  };
  if constexpr (Device::kAhead && std::is_pointer_v<To>) {
    Payload even = {}, odd = {};  // as GCC has it they might be used without
    fetch(0, even);
#pragma unroll 1
    for (std::int64_t r = 0; r < count; r += 2) {
      fetch(r + 1, odd);
      add(r, even);
      if (r + 1 == count) break;
      fetch(r + 2, even);
      add(r + 1, odd);
    }
  } else {
    constexpr int at_once = std::is_pointer_v<To> ? Device::kWholePayloads : 1;
#pragma unroll 1
    for (std::int64_t r = 0; r < count; r += at_once) {
      Payload payloads[at_once] = {};
#pragma unroll
      for (int b = 0; b < at_once; ++b) fetch(r + b, payloads[b]);
#pragma unroll
      for (int b = 0; b < at_once; ++b)
        if (r + b < count) add(r + b, payloads[b]);
    }
  }
#pragma unroll
  for (std::uint32_t j = 0; j < n; ++j) Device::store_whole(out, first + j, sums[j]);
  if constexpr (first + n < Device::kSlots)
    decode_whole<first + n>(device, whole, count, body, out, accumulate, own, bad);
}

template <class To, class Device, class Body>
__device__ inline void decode_in_registers(const Device& device, const Piece& piece, std::int64_t count, Body&& body,
                                           const To& out, bool accumulate, typename Device::DecodeShared& own,
                                           std::int32_t* bad) {
  device.prepare(own);
  if constexpr (Device::kWhole) {
    std::uintptr_t addresses = 0;
    for (std::int64_t r = 0; r < count; ++r) addresses |= reinterpret_cast<std::uintptr_t>(body(r));
    if (piece.count == kPieceElements && addresses % sizeof(std::uint32_t) == 0 && in_quads(out) &&
        device.with_whole(
            [&](const auto& whole) { decode_whole<0>(device, whole, count, body, out, accumulate, own, bad); }))
      return;
  }
  decode_slots(device, piece, count, body, out, accumulate, own, bad);
}

}  // namespace crimp::device
