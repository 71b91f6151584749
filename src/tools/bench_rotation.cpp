// crimp bench rotation: THC's steps one by one, beside memcpy. GB of the float32 values that a step stands for a
// second.
#include <cstdio>
#include <cstring>

#include "codec/homomorphic.hpp"
#include "codec/simd.hpp"
#include "codec/thc/thc.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "memory/memory_resource.hpp"
#include "sample_data.hpp"
#include "simd_option.hpp"
#include "stopwatch.hpp"
#include "table.hpp"

namespace crimp::tools {

int bench_rotation(Arguments arguments) {
  std::uint64_t count = std::uint64_t{1} << 24;
  int repeat = 9, ranks = 4;
  std::string spec = "thc";
  CommandLine app(
      "Measures the steps of THC on one core, piece by piece as a collective runs them: GB of float32 values a second, medians, memcpy in between.",
      "crimp bench rotation");
  app.option("--codec", spec, "Codec that is summed as integers (thc)");
  app.option("--count", count, "Elements (16M; suffix k, M, G), rounded up to whole pieces of 10240")
      .sizes()
      .within(std::uint64_t{1}, std::uint64_t{1} << 36);
  app.option("--ranks", ranks, "Ranks whose integers a sum holds (4)").within(1, 1024);
  app.option("--repeat", repeat, "Rounds (9)").within(1, 100000);
  const SimdOption simd(app);
  if (const auto code = app.parse(arguments)) return *code;
  simd.apply();
  const auto codec = make_codec(spec);
  const Homomorphic* const sums = codec->homomorphic();
  if (!sums) throw Error(ErrorCode::argument_invalid, "codec '" + spec + "' is not summed as integers; thc is");

  count = round_up(count, kPieceElements);
  const Memory sample(count * sizeof(float)), residual(count * sizeof(float)), out(count * sizeof(float)),
      indices(count / 2);
  const auto floats = [](const Memory& m) { return reinterpret_cast<float*>(m.data()); };
  fill("normal", 0, floats(sample), count);
  std::memset(out.data(), 0, out.bytes());
  const std::uint64_t index_bytes = kPieceElements * sums->index_bits() / 8;
  alignas(64) float rotated[kPieceElements], norms[kPieceElements / thc::kBlock];
  alignas(64) std::uint16_t values[kPieceElements];
  const auto piece = [&](std::uint64_t at) {
    return PieceSource{
        floats(sample) + at, floats(residual) + at, floats(residual) + at, kPieceElements, {at, 0, 0}, {}, at};
  };
  const auto packed = [&](std::uint64_t at) {
    return reinterpret_cast<std::uint8_t*>(indices.data()) + at / kPieceElements * index_bytes;
  };
  struct Step {
    const char* name;
    std::function<void(std::uint64_t)> run;
    std::vector<double> times{}, copies{};
  };
  sums->norms(piece(0), norms);
  Step steps[] = {
      {"rotate (signs, Walsh-Hadamard, norm)",
       [&](std::uint64_t at) {
         thc::rotate(floats(sample) + at, nullptr, kPieceElements, {at, 0, 0}, rotated, norms);
       }},
      {"norms alone", [&](std::uint64_t at) { sums->norms(piece(at), norms); }},
      {"encode with shared norms and residual", [&](std::uint64_t at) { sums->encode(piece(at), norms, packed(at)); }},
      {"add the integers of one rank", [&](std::uint64_t at) { sums->add(packed(at), kPieceElements, values); }},
      {"decode a sum",
       [&](std::uint64_t at) {
         sums->decode(values, norms, ranks, kPieceElements, {at, 0, 0}, floats(out) + at);
       }},
  };
  for (int i = 0; i < repeat; ++i)
    for (auto& step : steps) {
      std::memset(values, 0, sizeof values);
      step.copies.push_back(timed([&] { std::memcpy(out.data(), sample.data(), out.bytes()); }));
      step.times.push_back(timed([&] {
        for (std::uint64_t at = 0; at < count; at += kPieceElements) step.run(at);
      }));
    }
  std::printf("# %llu float32 values (normal), %s, one thread, %s\n", static_cast<unsigned long long>(count),
              codec->spec().c_str(), simd_target().c_str());
  const Table table({{"step", "", 40}, {"memcpy", "GB/s", 8}, {"step", "GB/s", 8}, {"step", "/memcpy", 8}});
  table.head();
  const double gigabytes = 4e-9 * static_cast<double>(count);
  for (const auto& step : steps) {
    const double copy = median(step.copies), time = median(step.times);
    table.row({step.name, number(gigabytes / copy), number(gigabytes / time), number(copy / time)});
  }
  return 0;
}

}  // namespace crimp::tools
