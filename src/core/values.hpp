// Elements of a buffer, by address and type.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/types.hpp"

namespace crimp {

struct ConstValues {
  const void* at = nullptr;
  Dtype type = Dtype::f32;
  ConstValues() = default;
  ConstValues(const float* values) : at(values) {}  // NOLINT(google-explicit-constructor)
  ConstValues(const void* values, Dtype of) : at(values), type(of) {}
  explicit operator bool() const { return at != nullptr; }
  // Null stays null.
  ConstValues operator+(std::uint64_t elements) const {
    return {at ? static_cast<const std::byte*>(at) + elements * size_of(type) : nullptr, type};
  }
  // Elements from `first` on to here; both of one buffer.
  std::uint64_t behind(const ConstValues& first) const {
    return static_cast<std::uint64_t>(static_cast<const std::byte*>(at) - static_cast<const std::byte*>(first.at)) /
           size_of(type);
  }
  const float* floats() const { return static_cast<const float*>(at); }  // of type f32
};

struct Values {
  void* at = nullptr;
  Dtype type = Dtype::f32;
  Values() = default;
  Values(float* values) : at(values) {}  // NOLINT(google-explicit-constructor)
  Values(void* values, Dtype of) : at(values), type(of) {}
  operator ConstValues() const { return {at, type}; }  // NOLINT(google-explicit-constructor)
  Values operator+(std::uint64_t elements) const {
    return {at ? static_cast<std::byte*>(at) + elements * size_of(type) : nullptr, type};
  }
  float* floats() const { return static_cast<float*>(at); }  // of type f32
};

}  // namespace crimp
