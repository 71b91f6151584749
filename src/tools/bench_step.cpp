// crimp bench step: steps that call as a training of a model does, to hold a prediction of `crimp plan` against.
#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "codec/codec.hpp"
#include "collective/algorithms.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "crimp/crimp.h"
#include "forecast.hpp"
#include "gradient_pool.hpp"
#include "schedule/merge_plan.hpp"
#include "stopwatch.hpp"
#include "table.hpp"

namespace crimp::tools {
namespace {

// As a program waits whose GPU computes: the core is free for others.
void sleep_until(Clock::time_point when) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(when - Clock::now()).count();
  if (left <= 0) return;
  timespec t{static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
  nanosleep(&t, nullptr);
}

struct Group {
  std::uint64_t begin, count;  // elements
  double ready_s;
  std::vector<crimp_segment> segments;
};

std::vector<Group> groups_of(const StepShape& step, const MergePlan& merge) {
  std::vector<std::uint64_t> bytes;
  for (const TensorSize& tensor : step.tensors) bytes.push_back(4 * tensor.count);
  const auto numbers = merge.groups(bytes);
  std::vector<Group> out;
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i == 0 || numbers[i] != numbers[i - 1]) out.push_back({at, 0, 0, {}});
    Group& group = out.back();
    group.ready_s = std::max(group.ready_s, step.overlaps ? step.ready_s[i] : step.compute_s);
    group.count += step.tensors[i].count;
    group.segments.push_back({step.tensors[i].name.c_str(), step.tensors[i].count});
    at += step.tensors[i].count;
  }
  return out;
}

}  // namespace

int bench_step(Arguments arguments) {
  std::string model, codec = "none", algorithm = "auto", merge = "off", json;
  double compute_ms = 0;
  int steps = 20, warm_up = 6;
  bool no_overlap = false;
  CommandLine app(
      "Times steps that call as a training does: a gradient is reduced when it is ready, computing is slept. Under crimp run or mpirun:\n"
      "  crimp run -np 4 -- crimp bench step --model model.txt --compute 30 --codec 3lc --merge all",
      "crimp bench step");
  app.option("--model", model, "Tensors, as crimp plan --model reads them");
  app.option("--compute", compute_ms,
             "Milliseconds of forward and backward pass; gradients come in the last two thirds (0)")
      .within(0.0, 1e7);
  app.flag("--no-overlap", no_overlap, "All calls behind the computing, as a program makes them that waits for each");
  app.option("--codec", codec, "Codec, or none: plain MPI (none)");
  app.option("--algorithm", algorithm, "As CRIMP_ALGORITHM (auto)");
  app.option("--merge", merge, "As CRIMP_MERGE: off, all, bytes=N, y=N, cuts=i,j,... (off)");
  app.option("--steps", steps, "Measured steps (20)").within(1, 1000000);
  app.option("--warm-up", warm_up, "Steps before those (6); auto needs 70").within(0, 1000000);
  const auto write = app.option("--json", json, "Write JSON to a file, or in place of the line").value_optional();
  if (const auto code = app.parse(arguments)) return *code;
  if (write.given() && json.empty()) json = "-";
  if (model.empty()) throw Error(ErrorCode::argument_invalid, "bench step needs --model, a list of tensors");
  const StepShape step = StepShape::of(read_tensors(model), 1e-3 * compute_ms, !no_overlap, 4);
  check_algorithm("--algorithm", algorithm);
  if (codec != "none") codec = make_codec(codec)->spec();
  const MergePlan plan(merge);
  if (plan.searched())
    throw Error(ErrorCode::argument_invalid,
                "--merge auto is found by Horovod's steps, not here; crimp plan names cuts");
  const auto groups = groups_of(step, plan);
  std::uint64_t elements = 0;
  for (const Group& group : groups) elements += group.count;
  setenv("CRIMP_CODEC", codec.c_str(), 1);
  setenv("CRIMP_ALGORITHM", algorithm.c_str(), 1);

  MPI_Init(nullptr, nullptr);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const GradientPool values(elements, rank);
  std::vector<float> sums(elements);
  std::vector<double> step_s, call_s;
  int failed = 0;
  for (int i = 0; i < warm_up + steps; ++i) {
    const float* const from = values.of(static_cast<std::uint64_t>(i));
    const auto begin = Clock::now();
    double calls = 0;
    for (const Group& group : groups) {
      sleep_until(begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(group.ready_s)));
      calls += timed([&] {
        failed |= crimp_allreduce(from + group.begin, sums.data() + group.begin, group.count, CRIMP_FLOAT32,
                                  MPI_COMM_WORLD, group.segments.data(), group.segments.size());
      });
    }
    sleep_until(begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(step.compute_s)));
    if (i < warm_up) continue;
    step_s.push_back(seconds(Clock::now() - begin));
    call_s.push_back(calls);
  }
  if (rank == 0) {
    const nlohmann::ordered_json out{{"bench", "step"},
                                     {"ranks", ranks},
                                     {"tensors", step.tensors.size()},
                                     {"elements", elements},
                                     {"codec", codec},
                                     {"algorithm", algorithm},
                                     {"merge", merge},
                                     {"groups", groups.size()},
                                     {"steps", steps},
                                     {"compute_ms", compute_ms},
                                     {"step_ms", 1e3 * median(step_s)},
                                     {"least_ms", 1e3 * *std::min_element(step_s.begin(), step_s.end())},
                                     {"exchange_ms", 1e3 * median(call_s)}};
    if (json != "-")
      std::printf(
          "%zu tensors in %zu calls, %d ranks, %s by %s: a step takes %.2f ms, of which %.2f in calls (medians of %d)\n",
          step.tensors.size(), groups.size(), ranks, codec.c_str(), algorithm.c_str(), 1e3 * median(step_s),
          1e3 * median(call_s), steps);
    if (!json.empty()) write_json(json, out);
  }
  MPI_Finalize();
  return failed ? 1 : 0;
}

}  // namespace crimp::tools
