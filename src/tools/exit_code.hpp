// What commands of `crimp` return. `crimp run` returns what the launcher does, once that has started.
#pragma once
#include <span>

namespace crimp::tools {

enum ExitCode : int {
  kDone = 0,
  kNotSo = 1,        // what was asked is not so, or it failed
  kArguments = 2,    // an argument, or a file or setting that it names, is not what it must be
  kLacking = 77,     // something that this needs is not here: a GPU, its driver
  kNotStarted = 127  // the launcher or program that was to be run could not be
};

struct ExitText {
  ExitCode code;
  const char* text;
};
inline constexpr ExitText kExitTexts[] = {
    {kDone, "done; of a question: it is so"},
    {kNotSo, "what was asked is not so, or what was to be done failed"},
    {kArguments, "an argument is wrong, or a file or setting that it names; nothing was done"},
    {kLacking, "something that is needed is not here, as a GPU"},
    {kNotStarted, "the program that was to be started could not be"},
};

}  // namespace crimp::tools
