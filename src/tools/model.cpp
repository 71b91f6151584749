// crimp model: the chooser's cost functions beyond this machine. The network is the alpha-beta model, codecs are timed
// here on one core.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "backend/host_backend.hpp"
#include "collective/candidates.hpp"
#include "collective/one_shot.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/settings.hpp"
#include "memory/workers.hpp"
#include "sample_data.hpp"
#include "table.hpp"

namespace crimp::tools {
namespace {

std::string milliseconds(double s) { return fmt::format("{:.{}f}", 1e3 * s, s < 1e-3 ? 3 : s < 0.1 ? 2 : 0); }

}  // namespace

int model(Arguments arguments) {
  std::vector<std::string> specs{"fp16", "3lc"};
  std::vector<int> ranks{16, 64, 256, 1024, 4096};
  std::vector<double> rates{10, 25, 100, 400};
  std::vector<std::uint64_t> sizes{1 << 20, 16 << 20, 128 << 20};
  double latency_us = 20, add = 5;
  double encode = 0, decode = 0, more = 0, scan = 0;
  int threads = 1, cores = 0;
  std::string json, relays = "auto";
  CommandLine app(
      "Predicts what a call takes with every algorithm, by the functions that choose algorithms at run time. Codecs are timed on this\n"
      "machine; a message costs --latency-us and a byte what the rate says; all links are used at once without contention. Markdown.",
      "crimp model");
  app.option("--codec", specs, "Codecs (fp16,3lc)").separated_by(',');
  app.option("--ranks", ranks, "Ranks, one to a link (16,64,256,1024,4096)").separated_by(',').within(2, 1 << 20);
  app.option("--gbit", rates, "Gbit/s of a rank's link (10,25,100,400)").separated_by(',').within(0.001, 100000.0);
  app.option("--size", sizes, "Bytes of float32 in a call (1M,16M,128M)").separated_by(',').sizes();
  app.option("--latency-us", latency_us, "Microseconds of a message (20)").positive();
  app.option("--add", add, "GB/s at which plain MPI adds (5)").positive();
  app.option("--threads", threads, "Threads that encode and decode (1)").within(1, 256);
  app.option("--cores", cores,
             "All ranks share so many cores, as hosts in namespaces of one machine do (0: each has its own)")
      .within(0, 1 << 20);
  app.option("--encode", encode, "GB/s of floats at which a rank encodes (0: as timed here)").within(0.0, 1e6);
  app.option("--decode", decode, "Likewise decodes and adds").within(0.0, 1e6);
  app.option("--add-payload", more, "Likewise adds a payload to the sum of others").within(0.0, 1e6);
  app.option("--scan", scan, "Likewise looks for values out of range").within(0.0, 1e6);
  app.option("--radix", relays, "As CRIMP_RADIX (auto)");
  const auto write = app.option("--json", json, "Write JSON to a file, or in place of the tables").value_optional();
  if (const auto code = app.parse(arguments)) return *code;
  if (write.given() && json.empty()) json = "-";
  const bool show = json != "-";
  Settings settings;
  for (const Option& option : option_table())
    if (option.name == std::string("CRIMP_RADIX") && !option.set(settings, relays))
      throw Error(ErrorCode::argument_invalid, "--radix is '" + relays + "'; legal is: " + option.legal);

  Workers workers(threads);
  HostBackend backend(workers);
  std::vector<float> sample(kSampleElements);
  fill("normal", 0, sample.data(), sample.size());
  nlohmann::ordered_json out{
      {"model", "allreduce"}, {"latency_us", latency_us}, {"add_GBps", add}, {"threads", threads}, {"cores", cores}};
  if (show)
    std::printf(
        "Predicted milliseconds of one call: plain MPI, then each algorithm; in bold what the chooser takes. Latency %g us, additions %g GB/s.\n",
        latency_us, add);
  for (const auto& spec : specs) {
    const auto codec = make_codec(spec);
    if (codec->traits().whole_tensors)
      throw Error(ErrorCode::argument_invalid,
                  "--codec " + spec +
                      ": what it takes follows from the tensors' shapes; legal are codecs of elements. " +
                      "`crimp bench allreduce` and `crimp plan` measure it");
    CodecCost alone = time_codec(*codec, sample, 0, backend);
    const auto said = [](double gb_per_s, double& s) {
      if (gb_per_s > 0) s = 4e-9 / gb_per_s;
    };
    said(encode, alone.encode_s), said(decode, alone.decode_s), said(more, alone.add_s), said(scan, alone.scan_s);
    std::vector<const AlgorithmEntry*> columns;
    for (const auto& entry : algorithms())
      if (entry.cost && std::any_of(ranks.begin(), ranks.end(),
                                    [&](const int n) { return entry.why_unsupported(*codec, n).empty(); }))
        columns.push_back(&entry);
    for (const double rate : rates) {
      if (show) {
        std::printf(
            "\n### %s, %g Gbit/s\n\nEncode %.2f GB/s, decode %.2f GB/s, add a payload %.2f GB/s, look at values %.2f GB/s, %.2f bits a value.\n\n| ranks | bytes | plain |",
            codec->spec().c_str(), rate, 4e-9 / alone.encode_s, 4e-9 / alone.decode_s, 4e-9 / alone.add_s,
            4e-9 / alone.scan_s, 8 * alone.payload_bytes);
        for (const auto* entry : columns) std::printf(" %s |", entry->name);
        std::printf(" gain |\n|---|---|---|");
        for (std::size_t i = 0; i <= columns.size(); ++i) std::printf("---|");
        std::printf("\n");
      }
      for (const int n : ranks) {
        const auto crowded = [&](int each) {
          return cores == 0 ? 1 : std::max(1.0, static_cast<double>(n) * each / cores);
        };
        const double crowd = crowded(threads);
        const CodecCost cost{alone.encode_s * crowd, alone.decode_s * crowd, alone.payload_bytes, alone.scan_s * crowd,
                             alone.add_s * crowd};
        const NetworkModel network =
            NetworkModel::of(n, 1e-6 * latency_us, 0.125e9 * rate, 1e9 * add / crowded(1));  // MPI adds with one thread
        for (const std::uint64_t bytes : sizes) {
          ChoiceQuery query{codec.get(), bytes / sizeof(float), settings.chunk,
                            bytes,       settings.quality,      settings.radix};
          query.frame_bytes = frame_bytes(*codec, *Layout::unknown(query.count), settings.chunk);
          const Choice best = cheapest(candidates(network, nullptr, cost, query));
          const auto cell = [](double s, bool chosen) {
            return chosen ? "**" + milliseconds(s) + "**" : milliseconds(s);
          };
          nlohmann::ordered_json row{{"codec", codec->spec()},
                                     {"gbit", rate},
                                     {"ranks", n},
                                     {"bytes", bytes},
                                     {"plain_us", 1e6 * best.plain_s}};
          std::string line = fmt::format("| {} | {} | {} |", n, bytes, cell(best.plain_s, best.plain));
          for (const auto* entry : columns) {
            if (!entry->fits(query, n) || !entry->why_unsupported(*codec, n).empty()) {
              line += " - |";
              continue;
            }
            const auto [s, chunk, radix] = entry->predicted(network, cost, query);
            row["algorithms_us"][entry->name] = 1e6 * s;
            row["chunk_settings"][entry->name] = chunk;
            if (entry->plan_relayed) row["radices"][entry->name] = radix;
            line += fmt::format(" {} |", cell(s, !best.plain && best.carriage.algorithm == entry->algorithm));
          }
          row["chosen"] = best.plain ? "plain" : entry_of(best.carriage.algorithm).name;
          out["rows"].push_back(std::move(row));
          if (show) std::printf("%s %.2f |\n", line.c_str(), best.plain ? 1.0 : best.plain_s / best.predicted_s);
        }
      }
    }
  }
  if (!json.empty()) write_json(json, out);
  return 0;
}

}  // namespace crimp::tools
