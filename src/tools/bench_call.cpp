// crimp bench call: what a call costs besides encoding, wire and decoding, by the number of its named tensors. Under
// mpirun or crimp run, on two ranks or more.
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "core/error.hpp"
#include "crimp/crimp.h"
#include "cuda_device.hpp"
#include "memory/memory_resource.hpp"
#include "sample_data.hpp"
#include "simd_option.hpp"
#include "stopwatch.hpp"
#include "table.hpp"

namespace crimp::tools {
namespace {

constexpr int kRank0 = 1;    // its process in a trace (core/trace_text.cpp)
constexpr int kWarmUp = 20;  // calls, or as many as are measured

struct Setup {
  std::string codec = "3lc", device = "host";
  std::uint64_t segments = 1, elements = 32768;
  int calls = 2000;
  int warm_up() const { return std::min(kWarmUp, calls); }
};

// Microseconds that rank 0's spans of CRIMP_TRACE fill, of each call.
std::vector<double> spans_of_calls(const std::string& file, std::size_t calls) {
  std::ifstream in(file);
  const auto trace = nlohmann::json::parse(in, nullptr, false);
  if (trace.is_discarded())
    throw Error(ErrorCode::argument_invalid, "no trace was written to " + file + "; was libcrimp.so loaded?");
  std::vector<double> us(calls);
  std::size_t found = 0;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || event["pid"] != kRank0) continue;
    const auto& track = event["cat"];
    if (track != "encode" && track != "wire" && track != "decode") continue;
    const auto call = event["args"]["call"].get<std::size_t>();
    if (call < calls) us[call] += event["dur"].get<double>(), ++found;
  }
  if (found == 0)
    throw Error(ErrorCode::argument_invalid, "no call was compressed; do CRIMP_RULES or CRIMP_ENABLE leave it to MPI?");
  return us;
}

// Seconds of each call on this rank, those that warm up first.
std::vector<double> measure(const Setup& setup, int rank, const CudaDevice* device) {
  std::vector<std::string> names;
  std::vector<crimp_segment> segments;
  for (std::uint64_t i = 0; i < setup.segments; ++i) names.push_back("module.layer" + std::to_string(i) + ".weight");
  for (std::uint64_t i = 0, at = 0; i < setup.segments; ++i) {
    const std::uint64_t end = setup.elements * (i + 1) / setup.segments;
    segments.push_back({names[i].c_str(), end - at});
    at = end;
  }
  const std::size_t bytes = setup.elements * sizeof(float);
  std::vector<float> values(setup.elements);
  fill("normal", static_cast<std::uint32_t>(rank), values.data(), values.size());
  const Memory in(bytes, device ? device->memory : host_memory()), out(bytes, device ? device->memory : host_memory());
  in.resource()->write(in.data(), values.data(), bytes);
  std::vector<double> times;
  for (int call = 0; call < setup.warm_up() + setup.calls; ++call) {
    const double s = timed([&] {
      crimp_allreduce(in.data(), out.data(), setup.elements, CRIMP_FLOAT32, MPI_COMM_WORLD, segments.data(),
                      segments.size());
    });
    times.push_back(s);
  }
  return times;
}

}  // namespace

int bench_call(Arguments arguments) {
  Setup setup;
  CommandLine app(
      "Time of a small call with named tensors, besides what is spent on encoding, on the wire and on decoding: finding out what the call is,\n"
      "looking at its values, finding residuals and memory. Two ranks or more: crimp run -np 2 -- crimp bench call --segments 300",
      "crimp bench call");
  app.option("--codec", setup.codec, "Codec (3lc)");
  app.option("--segments", setup.segments, "Named tensors in the call (1)").within(1, 32768);
  app.option("--elements", setup.elements, "float32 values of all of them (32768)").within(32768, 1 << 28);
  app.option("--calls", setup.calls, "Calls that are measured (2000)").within(1, 1 << 24);
  app.option("--device", setup.device, "Where the buffers are: host, cuda or cuda:N (host)")
      .check([](const std::string& text) {
        return text == "host" || names_cuda_device(text) ? ""
                                                         : "'" + text + "' is no device; legal: host, cuda, cuda:N";
      });
  const SimdOption simd(app);
  if (const auto code = app.parse(arguments)) return *code;
  simd.apply();
  std::optional<CudaDevice> device;
  if (setup.device != "host") device.emplace(open_cuda_device(setup.device));

  const std::string file =
      (std::filesystem::temp_directory_path() / ("crimp_bench_call." + std::to_string(::getppid()) + ".json")).string();
  setenv("CRIMP_CODEC", setup.codec.c_str(), 1);
  setenv("CRIMP_ALGORITHM", "allgather", 0);
  setenv("CRIMP_MIN_COUNT", "1", 0);
  setenv("CRIMP_TRACE", file.c_str(), 1);
  setenv("CRIMP_RULES", "*bias=none; *bn*=none; *[nN]orm*=none; *ln_*=none",
         0);  // as by default, without the least size
  MPI_Init(nullptr, nullptr);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 1) {
    std::fprintf(
        stderr,
        "crimp: bench call needs two ranks or more, because one has nobody to send to: crimp run -np 2 -- crimp bench call\n");
    MPI_Finalize();
    return 2;
  }
  const auto times = measure(setup, rank, device ? &*device : nullptr);
  MPI_Finalize();
  if (rank != 0) return 0;
  const auto spans = spans_of_calls(file, times.size());
  std::filesystem::remove(file);
  std::vector<double> all, besides;
  for (auto i = static_cast<std::size_t>(setup.warm_up()); i < times.size(); ++i) {
    all.push_back(1e6 * times[i]);
    besides.push_back(1e6 * times[i] - spans[i]);
  }
  const std::string where =
      device ? " in memory of cuda:" + std::to_string(device->index) + " (" + device->name + ")" : "";
  std::printf(
      "%llu tensors, %llu elements%s, %s, %d ranks: %.1f us a call, %.1f of them besides encoding, wire and decoding (medians of %d calls)\n",
      static_cast<unsigned long long>(setup.segments), static_cast<unsigned long long>(setup.elements), where.c_str(),
      setup.codec.c_str(), ranks, median(all), median(besides), setup.calls);
  return 0;
}

}  // namespace crimp::tools
