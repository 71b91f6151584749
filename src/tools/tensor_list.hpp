// The gradients of a model, as names and sizes: what `crimp plan` knows of it. Out of a text, or out of the header of a
// safetensors file, whose values are not looked at.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace crimp::tools {

struct TensorSize {
  std::string name;
  std::uint64_t count;  // elements, at least 1
  bool operator==(const TensorSize&) const = default;
};

struct TensorList {
  std::vector<TensorSize> tensors;       // in the file's order; names differ
  std::vector<std::string> no_gradient;  // left out: integers, running means and variances, tensors of no elements
  std::uint64_t elements() const;
  std::uint64_t largest() const;  // elements of the largest
};

// What a file may hold at most.
inline constexpr std::uint64_t kMostTensors = 100'000;
inline constexpr std::uint64_t kMostElements = std::uint64_t{1} << 50;  // of a model
inline constexpr std::uint64_t kMostListBytes = std::uint64_t{64} << 20;
inline constexpr std::uint64_t kMostHeaderBytes = 100'000'000;  // safetensors' own limit

// One tensor a line: NAME COUNT or NAME SHAPE (64x3x7x7, or 64,3,7,7), then perhaps a type (float32, BF16, int64, ...).
// '#' begins a comment. Of a name with spaces the last words are the size and the type. Throws std::runtime_error that
// names the line.
TensorList parse_tensor_list(std::string_view text);
// The JSON behind the 8 bytes of its length. data_bytes: of the file behind it. Throws std::runtime_error.
TensorList parse_safetensors_header(std::string_view json, std::uint64_t data_bytes);
// Either of them, by what the file begins with. Throws Error{argument_invalid} that names the file and says what to do.
TensorList read_tensors(const std::string& file);

}  // namespace crimp::tools
