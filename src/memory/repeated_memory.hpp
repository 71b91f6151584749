// Memory to hand to somebody who must be given some, where there is none: a few pages stand for all of it, again and
// again, so that what is written to it is lost. It takes addresses and a MiB, not what is counted as a process's own
// (overcommitting, ulimit -d).
#pragma once
#include "memory/memory_resource.hpp"

namespace crimp {

// Throws Error{out_of_memory} where not even the addresses can be had (ulimit -v).
MemoryResource& repeated_memory();

}  // namespace crimp
