// crimp bench select: the exact selection of the k largest magnitudes beside std::nth_element on the same data.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>

#include "codec/codec.hpp"
#include "codec/coding/select.hpp"
#include "codec/simd.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "memory/memory_resource.hpp"
#include "sample_data.hpp"
#include "simd_option.hpp"
#include "stopwatch.hpp"
#include "table.hpp"

namespace crimp::tools {

int bench_select(Arguments arguments) {
  std::vector<std::string> distributions;
  std::vector<double> ratios;
  std::string json_file;
  std::uint64_t count = std::uint64_t{1} << 24;
  int repeat = 5;
  CommandLine app(
      "Finds the k largest magnitudes of float32 values, exactly, and compares with std::nth_element (on magnitudes made beforehand)\n"
      "and memcpy: medians of one thread, milliseconds.",
      "crimp bench select");
  app.option("--count", count, "Elements (16M; suffix k, M, G)")
      .sizes()
      .within(std::uint64_t{1}, std::uint64_t{1} << 32);
  app.option("--ratio", ratios, "k / count, may repeat (0.01)").one_each().within(0.0, 1.0);
  app.option("--data", distributions, "normal, laplace or sparse, may repeat (normal)")
      .one_each()
      .one_of(kDistributions);
  app.option("--repeat", repeat, "Rounds (5)").within(1, 100000);
  const SimdOption simd(app);
  const auto json = app.option("--json", json_file, "Write JSON to a file, or in place of the table").value_optional();
  if (const auto code = app.parse(arguments)) return *code;
  simd.apply();
  if (json.given() && json_file.empty()) json_file = "-";
  if (ratios.empty()) ratios = {0.01};
  if (distributions.empty()) distributions = {"normal"};

  const std::size_t bytes = count * sizeof(float);
  const Memory values_memory(bytes), keys_memory(bytes);
  auto* const values = reinterpret_cast<float*>(values_memory.data());
  auto* const keys = reinterpret_cast<float*>(keys_memory.data());
  nlohmann::ordered_json out{
      {"bench", "select"}, {"crimp", CRIMP_VERSION}, {"simd", simd_target()}, {"count", count}, {"repeat", repeat}};
  const bool show = json_file != "-";
  const Table table({{"data", "", 8},
                     {"ratio", "", 8},
                     {"k", "", 10},
                     {"memcpy", "ms", 8},
                     {"nth_element", "ms", 11},
                     {"select", "ms", 8},
                     {"select", "GB/s", 8},
                     {"faster", "", 7}});
  if (show) {
    std::printf("# %llu float32 values, %s\n", static_cast<unsigned long long>(count), simd_target().c_str());
    table.head();
  }
  for (const auto& data : distributions) {
    fill(data, 0, values, count);
    for (const double ratio : ratios) {
      const std::uint64_t k = std::clamp<std::uint64_t>(
          static_cast<std::uint64_t>(std::llround(ratio * static_cast<double>(count))), 1, count);
      std::vector<double> copying, sorting, selecting;
      for (int i = 0; i < repeat; ++i) {
        copying.push_back(timed([&] { std::memcpy(keys, values, bytes); }));
        for (std::uint64_t j = 0; j < count; ++j) keys[j] = std::fabs(keys[j]);
        sorting.push_back(timed([&] { std::nth_element(keys, keys + (k - 1), keys + count, std::greater<>()); }));
        select::Threshold threshold;
        selecting.push_back(
            timed([&] { threshold = select::largest(values, nullptr, count, k, select::Side::magnitude); }));
        if (k < count && threshold.value != keys[k - 1])
          throw Error(ErrorCode::argument_invalid, "the k-th largest magnitude is " + std::to_string(keys[k - 1]) +
                                                       ", select found " + std::to_string(threshold.value));
      }
      nlohmann::ordered_json r;
      r["data"] = data;
      r["ratio"] = ratio;
      r["k"] = k;
      r["memcpy_ms"] = 1e3 * median(copying);
      r["nth_element_ms"] = 1e3 * median(sorting);
      r["select_ms"] = 1e3 * median(selecting);
      r["select_GBps"] = 1e-9 * static_cast<double>(bytes) / median(selecting);
      r["times_faster"] = median(sorting) / median(selecting);
      out["results"].push_back(r);
      const auto cell = [&](const char* key) { return number(r[key].get<double>()); };
      if (show)
        table.row({data, cell("ratio"), std::to_string(k), cell("memcpy_ms"), cell("nth_element_ms"), cell("select_ms"),
                   cell("select_GBps"), cell("times_faster")});
    }
  }
  if (!json_file.empty()) write_json(json_file, out);
  return 0;
}

}  // namespace crimp::tools
