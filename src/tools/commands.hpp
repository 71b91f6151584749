// The commands of `crimp`. Each takes the arguments behind its name and returns the exit code: 0, 1 where something
// failed, 2 where the arguments are wrong. They throw crimp::Error; main says it and exits with 2.
#pragma once
#include "command_line.hpp"

namespace crimp::tools {

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

}  // namespace crimp::tools
