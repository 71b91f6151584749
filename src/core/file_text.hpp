// Files that Crimp reads in somebody else's job.
#pragma once
#include <cstddef>
#include <string>

namespace crimp {

enum class Links { followed, refused };

// All of a regular file. Throws std::runtime_error, which says of the file why not: "cannot be read: Permission
// denied", "is no regular file", "is a link, which is not followed", "is longer than 64 bytes". What is no file is not
// opened.
std::string file_text(const std::string& path, std::size_t most, Links links = Links::followed);

}  // namespace crimp
