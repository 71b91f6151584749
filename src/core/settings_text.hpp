// What all ranks of a communicator must have alike, as one text that is compared byte by byte.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/settings.hpp"

namespace crimp {

// Name and value of everything, each ended by a null byte: version and build of Crimp, the options with `agreed`, what
// the file of CRIMP_REPLAY says, and whether this rank's settings are legal.
std::string settings_text(const Settings&, bool legal = true);

// Whether it is of this build; allocates nothing.
bool of_this_build(std::string_view settings_text);
// The options in it, for a rank that was not given them all. Of another build: none.
std::vector<SettingText> options_in(std::string_view settings_text);

// How the text of `rank` differs from rank 0's: "CRIMP_CODEC is 'fp16' on rank 0 and '3lc' on rank 1; ...". Of long
// values what surrounds the first difference. The texts may be another version's.
std::string settings_difference(std::string_view of_rank_0, std::string_view of_rank, int rank);

}  // namespace crimp
