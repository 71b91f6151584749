#include "mpi/arguments.hpp"

#include <charconv>
#include <string_view>

#include "codec/codec.hpp"
#include "core/error.hpp"

namespace crimp {

std::string quoted(const char* text) { return text ? "'" + std::string(text) + "'" : std::string("NULL"); }

std::string text_of(double value) {
  char text[32];
  return std::string(text, std::to_chars(text, text + sizeof text, value).ptr);
}

void check_pattern(const char* pattern) {
  if (!pattern || !*pattern)
    throw Error(
        ErrorCode::argument_invalid,
        "crimp_set_codec was given no pattern; legal is a shell pattern over tensors' names, as in \"*.weight\" or \"*\"");
}

void check_codec(const char* pattern, const char* spec) {
  check_pattern(pattern);
  if (spec && std::string_view(spec) != "none") make_codec(spec);
}

void check_learning_rate(double rate) {
  if (!(rate >= 1e-12 && rate <= 1e12))
    throw Error(ErrorCode::argument_invalid,
                "crimp_set_learning_rate was given the learning rate " + text_of(rate) + "; legal is 1e-12 to 1e12");
}

void check_extents(const char* name, std::uint64_t rows, std::uint64_t cols) {
  if (!name || !*name)
    throw Error(ErrorCode::argument_invalid,
                "crimp_set_extents was given no name; it is the tensor's name in crimp_allreduce");
  if (rows == 0 || cols == 0 || rows > UINT64_MAX / cols)
    throw Error(ErrorCode::argument_invalid,
                "crimp_set_extents was given " + std::to_string(rows) + " x " + std::to_string(cols) + " for '" + name +
                    "'; legal are extents from 1 whose product is the tensor's element count");
}

}  // namespace crimp
