// Memory that is the host's for certain, told by the address alone: the program's image and its heap up to the break,
// and what is in use of this thread's own stack. The small values that programs reduce step by step mostly lie there.
#pragma once

namespace crimp {

// Of both. False: not known. A few nanoseconds; a thread's first call asks where its stack ends, which for the first
// thread reads /proc/self/maps. Never throws.
bool in_program_memory(const void*, const void*) noexcept;

}  // namespace crimp
