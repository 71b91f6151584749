// crimp bench codec: each codec beside memcpy. What is measured is what a collective does per rank: one encode with
// error feedback, and one decode_add of the payloads of all ranks (allgather) or of one (sums in two_shot).
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "bench_codec.hpp"
#include "codec/payload.hpp"
#include "codec/simd.hpp"
#include "collective/algorithms.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/output_file.hpp"
#include "loopback.hpp"
#include "memory/memory_resource.hpp"
#include "memory/streamed.hpp"
#include "memory/workers.hpp"
#include "sample_data.hpp"
#include "simd_option.hpp"
#include "stopwatch.hpp"
#include "table.hpp"

namespace crimp::tools {
namespace {

// One size of it.
struct Setup : CodecBench {
  std::uint64_t count = 0;
};

struct Buffer : Memory {
  Buffer() = default;
  explicit Buffer(std::uint64_t count) : Memory(count * sizeof(float)) {}
  float* values() const { return reinterpret_cast<float*>(data()); }
};

// One codec at work on one shape.
class Bench {
 public:
  Bench(const Setup& setup, const Codec& codec, const float* sample, Workers& workers)
      : setup_(setup), codec_(codec), sample_(sample), workers_(workers), out_(setup.count) {
    for (std::uint64_t at = 0; at < setup.count; at += setup.tensor)
      shape_.add_group(std::min(setup.tensor, setup.count - at));
    const int arrays = codec.feedback().arrays();
    const auto padded = [&](const Group& g) {
      return round_up(codec.feedback_elements(g.count), kPayloadAlign / sizeof(float));
    };
    std::uint64_t elements = 0;
    for (const Group& g : shape_.groups()) elements += arrays ? padded(g) : 0;
    memory_ = Buffer(elements);
    scratch_ = Buffer(scratch_elements(codec, setup.count, arrays > 0));
    float* memory = memory_.values();
    if (arrays)
      for (const Group& g : shape_.groups()) {
        feedback_.push_back(feedback_of(codec, memory, arrays, g.count, 0));
        memory += padded(g);
      }
    for (int r = 0; r < setup.ranks; ++r) bodies_.emplace_back(shape_.body_bound(codec));
    views_.resize(bodies_.size());
    std::memset(out_.data(), 0, out_.bytes());
  }

  nlohmann::ordered_json measure() {
    for (int r = setup_.ranks - 1; r > 0; --r) settle(r);
    if (memory_.bytes()) std::memset(memory_.data(), 0, memory_.bytes());
    encode(0);
    const double first_error = error_of_one();
    settle(0);

    double bytes = 0;
    std::vector<double> copy, encoding, decoding, adding, one, encode_ratio, decode_ratio;
    const std::size_t n = setup_.count * sizeof(float);
    const auto memcpy_time = [&] { return timed([&] { std::memcpy(out_.data(), sample_, n); }); };
    for (int i = 0; i < setup_.repeat; ++i) {
      copy.push_back(memcpy_time());
      encoding.push_back(timed([&] { encode(0); }));
      bytes += static_cast<double>(bytes_) / setup_.repeat;
      encode_ratio.push_back(copy.back() / encoding.back());
      open(0);
      copy.push_back(memcpy_time());
      decoding.push_back(timed([&] { decode(views_, false); }));
      decode_ratio.push_back(setup_.ranks * copy.back() / decoding.back());
      adding.push_back(timed([&] { decode({views_.data(), 1}, true); }));
      one.push_back(timed([&] { decode({views_.data(), 1}, false); }));
    }
    const double gigabytes = 1e-9 * static_cast<double>(n);
    nlohmann::ordered_json out;
    out["codec"] = codec_.spec();
    out["memcpy_GBps"] = gigabytes / median(copy);
    out["encode_GBps"] = gigabytes / median(encoding);
    out["decode_add_GBps"] = setup_.ranks * gigabytes / median(decoding);
    out["decode_add_one_GBps"] = gigabytes / median(adding);
    out["decode_one_GBps"] = gigabytes / median(one);
    out["encode_vs_memcpy"] = median(encode_ratio);
    out["decode_add_vs_memcpy"] = median(decode_ratio);
    out["bits_per_value"] = 8.0 * bytes / static_cast<double>(setup_.count);
    out["ratio"] = static_cast<double>(n) / bytes;
    out["relative_error"] = first_error;
    out["relative_error_with_feedback"] = error_of_one();
    out["simd"] = simd_target();
    return out;
  }

 private:
  void encode(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    bytes_ =
        encode_body(codec_, shape_, sample_ + r * kShift, feedback_, {0, step_++, static_cast<std::uint32_t>(rank)},
                    reinterpret_cast<std::uint8_t*>(bodies_[r].data()), scratch_.values(), workers_);
  }
  void open(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::string what =
        views_[r].open(codec_, shape_, {reinterpret_cast<const std::uint8_t*>(bodies_[r].data()), bytes_});
    if (!what.empty()) throw Error(ErrorCode::payload_corrupt, codec_.spec() + ": " + what);
  }
  void settle(int rank) {
    if (rank > 0 && memory_.bytes()) std::memset(memory_.data(), 0, memory_.bytes());
    for (int i = 0; i < kSettle; ++i) encode(rank);
    open(rank);
  }
  void decode(std::span<const BodyView> views, bool accumulate) {
    if (decode_add(codec_, shape_, views, {0, step_ - 1, 0}, out_.values(), accumulate, workers_, {}, 0,
                   outgrows_caches(setup_.count)) >= 0)
      throw Error(ErrorCode::payload_corrupt, codec_.spec() + ": a piece that it encoded itself does not decode");
  }
  // Of rank 0's last payload against its values: |decoded - values| / |values|.
  double error_of_one() {
    open(0);
    decode({views_.data(), 1}, false);
    double wrong = 0, right = 0;
    for (std::uint64_t i = 0; i < setup_.count; ++i) {
      const double x = sample_[i], d = out_.values()[i] - x;
      wrong += d * d;
      right += x * x;
    }
    return right > 0 ? std::sqrt(wrong / right) : 0;
  }

  const Setup& setup_;
  const Codec& codec_;
  const float* sample_;
  Workers& workers_;
  ChunkPartition shape_;
  Buffer memory_, scratch_, out_;
  std::vector<FeedbackView> feedback_;
  std::vector<Memory> bodies_;
  std::vector<BodyView> views_;
  std::size_t bytes_ = 0;  // of the last encode
  std::uint32_t step_ = 0;
};

// A codec of whole tensors: its algorithm on one rank. encode: both products; decode: the product of the factors and
// the new residual.
nlohmann::ordered_json measure_whole(const Setup& setup, const Codec& codec, const float* sample, Workers& workers) {
  std::vector<Segment> segments;
  CallBuffers call;
  std::vector<Buffer> memories;
  for (std::uint64_t at = 0; at < setup.count; at += setup.tensor) {
    const std::uint64_t n = std::min(setup.tensor, setup.count - at);
    segments.push_back({"tensor." + std::to_string(at), at, n});
    if (codec.feedback().kept()) call.residuals.push_back(memories.emplace_back(codec.feedback_elements(n)).values());
  }
  const Buffer out(setup.count);
  std::memset(out.data(), 0, out.bytes());
  call.in = sample;
  call.out = out.values();
  const auto route =
      plan_route(first_algorithm(codec, 1),
                 {&codec, Layout::make(Layout::Source::named, std::move(segments)), setup.count}, kPieceElements, 1);
  Arena arena;
  arena.reserve(route->bytes({}).together);
  call.arena = &arena;
  Loopback loopback;
  const auto error = [&] {
    double wrong = 0, right = 0;
    for (std::uint64_t i = 0; i < setup.count; ++i) {
      const double x = sample[i], d = out.values()[i] - x;
      wrong += d * d;
      right += x * x;
    }
    return right > 0 ? std::sqrt(wrong / right) : 0;
  };
  const auto run = [&] {
    arena.reset();
    const CollectiveResult result = allreduce_compressed(loopback, *route, call, workers);
    if (result.error) throw *result.error;
    ++call.sequence;
    return result;
  };
  run();
  const double first_error = error();
  std::vector<double> copy, encoding, decoding, encode_ratio, decode_ratio;
  double sent = 0;
  const std::size_t n = setup.count * sizeof(float);
  for (int i = 0; i < setup.repeat; ++i) {
    copy.push_back(timed([&] { std::memcpy(out.data(), sample, n); }));
    const CollectiveResult result = run();
    sent = static_cast<double>(result.sent_bytes);
    encoding.push_back(result.encode_s);
    decoding.push_back(result.decode_s);
    encode_ratio.push_back(copy.back() / encoding.back());
    decode_ratio.push_back(copy.back() / decoding.back());
  }
  const double gigabytes = 1e-9 * static_cast<double>(n);
  return {{"codec", codec.spec()},
          {"memcpy_GBps", gigabytes / median(copy)},
          {"encode_GBps", gigabytes / median(encoding)},
          {"decode_add_GBps", gigabytes / median(decoding)},
          {"decode_add_one_GBps", gigabytes / median(decoding)},
          {"decode_one_GBps", gigabytes / median(decoding)},
          {"encode_vs_memcpy", median(encode_ratio)},
          {"decode_add_vs_memcpy", median(decode_ratio)},
          {"bits_per_value", 8.0 * sent / static_cast<double>(setup.count)},
          {"ratio", static_cast<double>(n) / sent},
          {"relative_error", first_error},
          {"relative_error_with_feedback", error()},
          {"simd", simd_target()}};
}

std::vector<std::string> row_of(const nlohmann::ordered_json& r, std::initializer_list<const char*> keys) {
  std::vector<std::string> cells{r["codec"].get<std::string>(), std::to_string(r["count"].get<std::uint64_t>())};
  for (const char* key : keys) cells.push_back(number(r[key].get<double>()));
  return cells;
}

void on_host(const CodecBench& bench, const std::vector<std::shared_ptr<const Codec>>& chosen, const Buffer& sample,
             bool show, nlohmann::ordered_json& out) {
  Workers workers(bench.threads);
  const Table table({{"codec", "", 24},
                     {"count", "", 10},
                     {"memcpy", "GB/s", 7},
                     {"encode", "GB/s", 7},
                     {"dec+add", "GB/s", 7},
                     {"+1", "GB/s", 7},
                     {"dec 1", "GB/s", 7},
                     {"encode", "/memcpy", 8},
                     {"dec+add", "/memcpy", 8},
                     {"bits", "/value", 7},
                     {"ratio", "", 6},
                     {"error", "", 8}});
  if (show) table.head();
  for (const auto& codec : chosen)
    for (const std::uint64_t count : bench.counts) {
      const Setup setup{bench, count};
      auto r = codec->traits().whole_tensors ? measure_whole(setup, *codec, sample.values(), workers)
                                             : Bench(setup, *codec, sample.values(), workers).measure();
      r["count"] = count;
      out["results"].push_back(r);
      if (!show) continue;
      auto cells = row_of(r, {"memcpy_GBps", "encode_GBps", "decode_add_GBps", "decode_add_one_GBps", "decode_one_GBps",
                              "encode_vs_memcpy", "decode_add_vs_memcpy", "bits_per_value", "ratio"});
      cells.push_back(scientific(r["relative_error"].get<double>()));
      table.row(cells);
    }
}

void on_device(const CodecBench& bench, const CudaDevice& device,
               const std::vector<std::shared_ptr<const Codec>>& chosen, const Buffer& sample, bool show,
               nlohmann::ordered_json& out) {
  // Complete after every codec: a fault in one of them, which ends the process, leaves the others' figures.
  const auto keep = [&] {
    if (!bench.json.empty() && bench.json != "-") OutputFile(bench.json).write(out.dump(2) + "\n");
  };
  out["device"] = device.json();
  out["results"] = nlohmann::ordered_json::array();
  out["no_kernels"] = nlohmann::ordered_json::array();
  const Memory values(sample.bytes(), device.memory);
  device.memory.write(values.data(), sample.data(), sample.bytes());
  const Table table({{"codec", "", 34},
                     {"count", "", 10},
                     {"copy", "GB/s", 7},
                     {"encode", "us", 8},
                     {"encode", "GB/s", 7},
                     {"encode", "/copy", 7},
                     {"dec+add", "us", 8},
                     {"dec+add", "GB/s", 7},
                     {"dec+add", "/copy", 7},
                     {"+1", "/copy", 7},
                     {"bits", "/value", 7}});
  if (show) {
    std::printf("# %s; GB/s: bytes that have to be read and written, each once, by the device's clock\n",
                device.name.c_str());
    table.head();
  }
  for (const auto& codec : chosen)
    for (const std::uint64_t count : bench.counts) {
      const auto r = measure_on_device(bench, device, *codec, count, reinterpret_cast<const float*>(values.data()));
      if (r.is_null()) {
        out["no_kernels"].push_back(codec->spec());
        if (show) std::printf("# %s has no kernels\n", codec->spec().c_str());
        keep();
        break;
      }
      out["results"].push_back(r);
      keep();
      if (show)
        table.row(row_of(r, {"copy_GBps", "encode_us", "encode_GBps", "encode_vs_copy", "decode_add_us",
                             "decode_add_GBps", "decode_add_vs_copy", "decode_add_one_vs_copy", "bits_per_value"}));
    }
}

}  // namespace

int bench_codec(Arguments arguments) {
  CodecBench setup;
  CommandLine app(
      "Measures codecs on this machine, medians. On the host: GB of float32 input a second (1 GB = 1e9 bytes), memcpy in between. On a device: kernels with buffers in\n"
      "its memory, bytes read and written a second, copies within its memory in between. dec+add sums the payloads of all ranks into one buffer, as the collective\n"
      "does; +1 adds one payload to a sum; dec 1 decodes one payload. dec+add and dec 1 write past the caches from 16 MiB on, as results are.",
      "crimp bench codec");
  app.option("--codec", setup.codecs, "Codec, may repeat (3lc)").one_each();
  app.flag("--all", setup.all, "All codecs with default parameters");
  app.option("--device", setup.device, "host, cuda or cuda:N, kernels on that GPU (host)")
      .check([](const std::string& text) {
        return text == "host" || names_cuda_device(text) ? ""
                                                         : "'" + text + "' is no device; legal: host, cuda, cuda:N";
      });
  app.option("--count", setup.counts, "Elements, may repeat (16M; suffix k, M, G)")
      .one_each()
      .sizes()
      .within(std::uint64_t{1}, std::uint64_t{1} << 36);
  app.option("--tensor", setup.tensor, "Elements per tensor (655360, the default chunk)")
      .sizes()
      .within(std::uint64_t{1}, std::uint64_t{1} << 36);
  app.option("--data", setup.data, "normal, laplace or sparse (normal)").one_of(kDistributions);
  app.option("--ranks", setup.ranks, "Payloads that are summed (4)").within(1, 1024);
  app.option("--threads", setup.threads, "Threads that encode and decode on the host (1)").within(1, 256);
  app.option("--repeat", setup.repeat, "Rounds of copy, encode, copy, decode (9)").within(1, 100000);
  const SimdOption simd(app);
  const auto json = app.option("--json", setup.json, "Write JSON to a file, or in place of the table").value_optional();
  if (const auto code = app.parse(arguments)) return *code;
  simd.apply();
  if (json.given() && setup.json.empty()) setup.json = "-";
  if (setup.all)
    for (const auto& c : codecs()) setup.codecs.emplace_back(c.name);
  if (setup.codecs.empty()) setup.codecs = {"3lc"};
  if (setup.counts.empty()) setup.counts = {std::uint64_t{1} << 24};
  std::vector<std::shared_ptr<const Codec>> chosen;
  for (const auto& text : setup.codecs) chosen.push_back(make_codec(text));
  std::optional<CudaDevice> device;
  if (setup.device != "host") device.emplace(open_cuda_device(setup.device));

  const Buffer sample(*std::max_element(setup.counts.begin(), setup.counts.end()) +
                      static_cast<std::uint64_t>(setup.ranks) * kShift);
  fill(setup.data, 0, sample.values(), sample.bytes() / sizeof(float));
  nlohmann::ordered_json out{
      {"bench", "codec"},       {"crimp", CRIMP_VERSION}, {"simd", simd_target()}, {"count", setup.counts.front()},
      {"tensor", setup.tensor}, {"data", setup.data},     {"ranks", setup.ranks},  {"threads", setup.threads},
      {"repeat", setup.repeat}};
  const bool show = setup.json != "-";
  if (show)
    std::printf("# float32 values (%s), tensors of %llu, %d payloads summed, %d thread%s, %s\n", setup.data.c_str(),
                static_cast<unsigned long long>(setup.tensor), setup.ranks, setup.threads,
                setup.threads == 1 ? "" : "s", simd_target().c_str());
  if (device) on_device(setup, *device, chosen, sample, show, out);
  else on_host(setup, chosen, sample, show, out);
  if (!setup.json.empty()) write_json(setup.json, out);
  return 0;
}

}  // namespace crimp::tools
