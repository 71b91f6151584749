// What programs give to the functions of crimp.h, which may be anything.
#pragma once
#include <cstdint>
#include <string>

namespace crimp {

// Throw Error{argument_invalid}, or Error{codec_unknown}, where the function may not be given this.
void check_extents(const char* name, std::uint64_t rows, std::uint64_t cols);
void check_pattern(const char* pattern);
void check_codec(const char* pattern, const char* spec);
void check_learning_rate(double);

// As texts, by which ranks compare what they were given.
std::string quoted(const char* text);  // of a null pointer "NULL"
std::string text_of(double);           // the shortest that reads back as itself

}  // namespace crimp
