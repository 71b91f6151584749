// Text that comes from elsewhere (a file, a program, another rank) and is shown to a person.
#pragma once
#include <string>
#include <string_view>

namespace crimp {

// With '?' in place of what a terminal would obey in place of showing it: control characters, those of eight bits
// (U+0080 to U+009F) included, and bytes that are no UTF-8, but for those in `kept`.
std::string plain_text(std::string_view text, std::string_view kept = "");
// Whether that is the text itself.
bool is_plain_text(std::string_view text, std::string_view kept = "") noexcept;
// As one word of a command line that a person copies into a shell: quoted where it must be.
std::string in_shell(std::string_view word);

}  // namespace crimp
