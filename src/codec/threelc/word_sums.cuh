// Base bytes in shared memory, added up in registers: what zero runs were expanded to.
#pragma once
#include "codec/device/sums.cuh"
#include "codec/threelc/threelc.hpp"

namespace crimp::threelc {

// What a base byte's digits add, as floats without what is zero in them: 2 for the digit 0, 0 and -2, to be multiplied
// by minus half the scale, so that a zero adds -0, which changes no bit. Only a float's first byte is not zero: digit k
// is byte k of `four`, and the last one a float.
struct Digits {
  struct alignas(8) Entry {
    std::uint32_t four, last;
  };
  Entry of[256];

  // A barrier is due behind it. By warps that often have no codes to wait for.
  __device__ void fill() {
    const std::uint32_t byte = threadIdx.x - (device::kThreads - 256);
    if (byte >= 256) return;
    std::uint32_t fraction = byte * ((0xffffffffu / kFirstRun) + 1), four = 0;
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      four |= ((1 - __umulhi(fraction, 3)) & 3) << (8 * k + 6);
      fraction *= 3;
    }
    of[byte] = {four, (1 - __umulhi(fraction, 3)) << 30};
  }
  __device__ Entry operator[](std::uint32_t offset) const {  // in bytes
    return *reinterpret_cast<const Entry*>(reinterpret_cast<const std::uint8_t*>(of) + offset);
  }
  __device__ static float digit(const Entry& entry, std::uint32_t k) {
    return __uint_as_float(k == 4   ? entry.last
                           : k == 0 ? entry.four << 24
                                    : __byte_perm(entry.four, 0, 0x444 | k << 12));
  }
  // Below 2^-125 half the scale may be no float.
  __device__ static bool halves(float scale) { return __float_as_uint(scale) - 1 >= 0x00ffffffu; }
};

// Sums of up to four payloads that begin at nothing: of an element there are 81, which are made once for a piece, in
// the order of the payloads, and looked up. A place has two bits of each payload's digit, that it is no zero and that
// it is negative, the former of payloads 0, 2, 1, 3 first: where most digits are zeros, few lanes want another place of
// a bank.
struct SumsOfFour {
  static constexpr std::uint32_t kAll = 81;
  // Of a base byte: payload 0's bits for each digit, of the first three in bytes 0 to 2, of the others beside them.
  std::uint32_t digits[3 * kAll];
  float sums[256];

  // work(digits, number) by threads of warps that often have no codes to wait for: four digits, less one, of a number.
  template <class Work>
  __device__ static void for_all(Work&& work) {
    const std::uint32_t number =
        threadIdx.x - (device::kThreads - (kAll + device::kWarp - 1) / device::kWarp * device::kWarp);
    if (number >= kAll) return;
    std::uint32_t fraction = number * (0xffffffffu / kAll + 1), digits[4];
#pragma unroll
    for (std::uint32_t k = 0; k < 4; ++k) {
      digits[k] = __umulhi(fraction, 3) - 1;
      fraction *= 3;
    }
    work(digits, number);
  }
  __device__ static std::uint32_t bits(std::uint32_t digit, std::uint32_t at) { return digit << at & 0x11u << at; }

  // A barrier is due behind it.
  __device__ void fill_digits() {
    for_all([&](const std::uint32_t(&of)[4], std::uint32_t number) {
      const std::uint32_t front = bits(of[0], 0) | bits(of[1], 8) | bits(of[2], 16) | bits(of[3], 1);
#pragma unroll
      for (std::uint32_t last = 0; last < 3; ++last) digits[3 * number + last] = front | bits(last - 1, 9);
    });
  }
  // Of payloads with these scales. Likewise. A sum is never -0, which adding a zero's +0 would change.
  __device__ void fill_sums(const float* scales) {
    for_all([&](const std::uint32_t(&of)[4], std::uint32_t) {
      float sum = 0.0f;
      std::uint32_t place = 0;
#pragma unroll
      for (std::uint32_t p = 0; p < 4; ++p) {
        place |= bits(of[p], p % 2 * 2 + p / 2);
        sum = fmaf(static_cast<float>(static_cast<int>(of[p])), scales[p], sum);
      }
      sums[place] = sum;
    });
  }
  // The places of the five digits of a byte of each payload.
  struct Places {
    std::uint32_t first, last;
    __device__ std::uint32_t offset(std::uint32_t k) const {  // in bytes
      return __dp4a(k < 3 ? first : last, 4u << (8 * (k < 3 ? k : k - 3)), 0u);
    }
  };
  // even: 0x55555555, which the compiler is not to know: it would take one operation apart.
  __device__ Places places(std::uint32_t byte, const std::uint32_t (&words)[4], std::uint32_t even) const {
    std::uint32_t of[4];
#pragma unroll
    for (std::uint32_t p = 0; p < 4; ++p) of[p] = at(digits, __dp4a(words[p], 4u << (8 * byte), 0u));
    const std::uint32_t low = of[0] + 4 * of[1], high = of[2] + 4 * of[3];
    const auto mixed = [&](std::uint32_t a, std::uint32_t b) { return b ^ ((a ^ b) & even); };
    return {mixed(low, 2 * high), mixed(low / 2, high)};
  }
  template <class T>
  __device__ static T at(const T* table, std::uint32_t offset) {
    return *reinterpret_cast<const T*>(reinterpret_cast<const std::uint8_t*>(table) + offset);
  }
};

// Sums in registers of base bytes in shared memory: a thread has the four bytes of one word of all payloads, whose
// elements are neighbours in each of the five stripes of a tile.
struct WordSums {
  float sums[5][4];
  std::uint32_t begin, first, count;  // the tile; the lane of the first byte; of the piece

  __device__ explicit WordSums(std::uint32_t of)
      : sums{}, begin(device::afresh(threadIdx.x) / (kStripe / 4) * kTile), first(4 * (threadIdx.x % (kStripe / 4))),
        count(of) {}
  __device__ bool empty() const { return begin >= count; }
  __device__ bool whole() const { return begin + kTile <= count; }
  // Sums that wait in shared memory, and those there that are on their way from `out`.
  using Waiting = device::Floats<4>[5][device::kThreads];
  __device__ void fetch(const float* out, Waiting& waiting) const {
    if (whole() && device::in_quads(out)) {
#pragma unroll
      for (std::uint32_t k = 0; k < 5; ++k)
        device::copy_async<4>(waiting[k][threadIdx.x].v, out + begin + first + k * kStripe);
    } else if (!empty()) {
      const std::uint32_t width = stripe(begin, count);
#pragma unroll 1
      for (std::uint32_t k = 0; k < 5; ++k)
#pragma unroll 1
        for (std::uint32_t b = 0; b < 4; ++b)
          if (const std::uint32_t i = begin + k * width + first + b; first + b < width && i < count)
            waiting[k][threadIdx.x].v[b] = out[i];
    }
  }
  __device__ void go_on(const Waiting& waiting) {
    device::wait_async();
#pragma unroll
    for (std::uint32_t k = 0; k < 5; ++k) {
      const device::Floats<4> x = waiting[k][threadIdx.x];
#pragma unroll
      for (std::uint32_t b = 0; b < 4; ++b) sums[k][b] = x.v[b];
    }
  }
  __device__ void wait(Waiting& waiting) const {
#pragma unroll
    for (std::uint32_t k = 0; k < 5; ++k) waiting[k][threadIdx.x] = {sums[k][0], sums[k][1], sums[k][2], sums[k][3]};
  }
  // Not where it is empty. What is not float32, or is no quad, comes from there: fewer registers.
  template <class To>
  __device__ void store(const To& out, Waiting& waiting) const {
    const bool quads = whole() && device::in_quads(out);
    if constexpr (std::is_pointer_v<To>)
      if (quads) {
#pragma unroll
        for (std::uint32_t k = 0; k < 5; ++k)
          device::put<4>(out + begin + first, k * kStripe, {sums[k][0], sums[k][1], sums[k][2], sums[k][3]});
        return;
      }
    wait(waiting);
    const std::uint32_t width = stripe(begin, count);
#pragma unroll 1
    for (std::uint32_t k = 0; k < 5; ++k) {
      const float* const four = waiting[k][threadIdx.x].v;
      if (!std::is_pointer_v<To> && quads) {
        device::put<4>(out, begin + k * kStripe + first, device::load<4>(four));
      } else {
#pragma unroll 1
        for (std::uint32_t b = 0; b < 4; ++b)
          if (const std::uint32_t i = begin + k * width + first + b; first + b < width && i < count)
            device::put<1>(out, i, {four[b]});
      }
    }
  }
  // Words of four payloads, to nothing.
  __device__ void begin_with(const std::uint32_t (&words)[4], const SumsOfFour& all) {
    const std::uint32_t even = device::afresh(0x55555555);
#pragma unroll
    for (std::uint32_t b = 0; b < 4; ++b) {
      const SumsOfFour::Places places = all.places(b, words, even);
#pragma unroll
      for (std::uint32_t k = 0; k < 5; ++k) sums[k][b] = SumsOfFour::at(all.sums, places.offset(k));
    }
  }
  // Of legal bytes. All products are exact.
  template <bool halves>
  __device__ void add(std::uint32_t bytes, float scale, const Digits& digits) {
    const float by = halves ? -0.5f * scale : -scale;
#pragma unroll
    for (std::uint32_t b = 0; b < 4; ++b) {
      const Digits::Entry entry = digits[__dp4a(bytes, 8u << (8 * b), 0u)];
#pragma unroll
      for (std::uint32_t k = 0; k < 5; ++k) {
        const float digit = Digits::digit(entry, k);
        sums[k][b] = fmaf(halves ? digit : 0.5f * digit, by, sums[k][b]);
      }
    }
  }
};

}  // namespace crimp::threelc
