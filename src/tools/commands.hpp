// The commands of `crimp`. Each takes the arguments behind its name and returns its exit code (exit_code.hpp). They
// throw Lacking, crimp::Error and other exceptions; main says what they say.
#pragma once
#include <span>

#include "command_line.hpp"
#include "core/error.hpp"

namespace crimp::tools {

// Something that the command needs is not on this machine.
class Lacking : public Error {
 public:
  using Error::Error;
};

struct Command {
  const char *name, *summary;  // "bench codec"
  int (*call)(Arguments);      // reads its command line first (text_of())
};
std::span<const Command> commands();

int run(Arguments);
int check(Arguments);
int info(Arguments);
int bench_codec(Arguments);
int bench_select(Arguments);
int bench_rotation(Arguments);
int bench_allreduce(Arguments);
int bench_call(Arguments);
int bench_step(Arguments);
int model(Arguments);
int plan(Arguments);
int trace(Arguments);
int report(Arguments);
int status(Arguments);
int completion(Arguments);
int complete(Arguments);  // for the scripts of completion(); in no list
int man(Arguments);

}  // namespace crimp::tools
