// crimp bench codec: each codec beside memcpy. What is measured is what a collective does per rank: one encode with error feedback,
// and one decode_add of the payloads of all ranks.
#include <cstdio>
#include <cstring>

#include "backend/workers.hpp"
#include "comm/algorithms.hpp"
#include "commands.hpp"
#include "crimp/memory.hpp"
#include "crimp/error.hpp"
#include "crimp/payload.hpp"
#include "loopback.hpp"
#include "sample_data.hpp"
#include "stopwatch.hpp"
#include "table.hpp"

namespace crimp::tools {
namespace {

constexpr int kSettle = 24;  // encodes before anything is measured: residuals fill up, and payloads grow until they have
// Rank r's values begin r * kShift elements into the sample, so that payloads differ; a multiple of 16, to keep the alignment.
constexpr std::uint64_t kShift = 10256;

struct Setup {
  std::vector<std::string> codecs;
  std::string data = "normal", json;
  std::uint64_t count = std::uint64_t{1} << 24, tensor = 655360;
  int ranks = 4, threads = 1, repeat = 9;
  bool all = false;
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
    for (std::uint64_t at = 0; at < setup.count; at += setup.tensor) shape_.add_group(std::min(setup.tensor, setup.count - at));
    const int planes = codec.memory().planes();
    memory_ = Buffer(setup.count * static_cast<std::uint64_t>(planes));
    scratch_ = Buffer(scratch_elements(codec, setup.count, planes > 0));
    if (planes)
      for (const Group& g : shape_.groups()) {
        float* const residual = memory_.values() + g.offset;
        float* const momentum = planes == 2 ? residual + setup.count : nullptr;
        feedback_.push_back({residual, residual, momentum, momentum});
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
    std::vector<double> copy, encoding, decoding, adding, encode_ratio, decode_ratio;
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
    }
    const double gigabytes = 1e-9 * static_cast<double>(n);
    nlohmann::ordered_json out;
    out["codec"] = codec_.spec();
    out["memcpy_GBps"] = gigabytes / median(copy);
    out["encode_GBps"] = gigabytes / median(encoding);
    out["decode_add_GBps"] = setup_.ranks * gigabytes / median(decoding);
    out["decode_add_one_GBps"] = gigabytes / median(adding);
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
    bytes_ = encode_body(codec_, shape_, sample_ + r * kShift, feedback_, {0, step_++, static_cast<std::uint32_t>(rank)},
                         reinterpret_cast<std::uint8_t*>(bodies_[r].data()), scratch_.values(), workers_);
  }
  void open(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::string what = views_[r].open(codec_, shape_, {reinterpret_cast<const std::uint8_t*>(bodies_[r].data()), bytes_});
    if (!what.empty()) throw Error(ErrorCode::payload_corrupt, codec_.spec() + ": " + what);
  }
  void settle(int rank) {
    if (rank > 0 && memory_.bytes()) std::memset(memory_.data(), 0, memory_.bytes());
    for (int i = 0; i < kSettle; ++i) encode(rank);
    open(rank);
  }
  void decode(std::span<const BodyView> views, bool accumulate) {
    if (decode_add(codec_, shape_, views, {0, step_ - 1, 0}, out_.values(), accumulate, workers_) >= 0)
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
  Shape shape_;
  Buffer memory_, scratch_, out_;
  std::vector<Feedback> feedback_;
  std::vector<Memory> bodies_;
  std::vector<BodyView> views_;
  std::size_t bytes_ = 0;  // of the last encode
  std::uint32_t step_ = 0;
};

// A codec of whole tensors: its algorithm on one rank. encode: both products; decode: the product of the factors and the new residual.
nlohmann::ordered_json measure_whole(const Setup& setup, const Codec& codec, const float* sample, Workers& workers) {
  Layout layout{Layout::Source::named, {}};
  CollectiveCall call{};
  std::vector<Buffer> memories;
  for (std::uint64_t at = 0; at < setup.count; at += setup.tensor) {
    const std::uint64_t n = std::min(setup.tensor, setup.count - at);
    layout.segments.push_back({"tensor." + std::to_string(at), at, n});
    if (codec.memory().kept()) call.residuals.push_back(memories.emplace_back(codec.memory_elements(n)).values());
  }
  const Buffer out(setup.count);
  std::memset(out.data(), 0, out.bytes());
  call.in = sample;
  call.out = out.values();
  call.count = setup.count;
  call.codec = &codec;
  call.layout = &layout;
  call.algorithm = first_algorithm(codec, 1);
  call.chunk = chunk_elements(kPieceElements, codec, 1, call.algorithm);
  Arena arena;
  arena.reserve(arena_bytes(call, 1));
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
    const CollectiveResult result = allreduce_compressed(loopback, &arena, workers, call);
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
  return {{"codec", codec.spec()}, {"memcpy_GBps", gigabytes / median(copy)}, {"encode_GBps", gigabytes / median(encoding)},
          {"decode_add_GBps", gigabytes / median(decoding)}, {"decode_add_one_GBps", gigabytes / median(decoding)},
          {"encode_vs_memcpy", median(encode_ratio)}, {"decode_add_vs_memcpy", median(decode_ratio)},
          {"bits_per_value", 8.0 * sent / static_cast<double>(setup.count)}, {"ratio", static_cast<double>(n) / sent}, {"relative_error", first_error},
          {"relative_error_with_feedback", error()}, {"simd", simd_target()}};
}

}  // namespace

int bench_codec(Arguments arguments) {
  Setup setup;
  CLI::App app("Measures codecs on this machine: GB of float32 input a second (1 GB = 1e9 bytes), medians, memcpy in between.\n"
               "decode+add sums the payloads of all ranks into one buffer, as the collective does; +1 adds one payload to a sum.",
               "crimp bench codec");
  app.add_option("--codec", setup.codecs, "Codec, may repeat (3lc)")->allow_extra_args(false);
  app.add_flag("--all", setup.all, "All codecs with default parameters");
  app.add_option("--count", setup.count, "Elements (16M; suffix k, M, G)")->transform(CLI::AsSizeValue(false))->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 36));
  app.add_option("--tensor", setup.tensor, "Elements per tensor (655360, the default chunk)")->transform(CLI::AsSizeValue(false))->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 36));
  app.add_option("--data", setup.data, "normal, laplace or sparse (normal)")->check(CLI::IsMember(kDistributions));
  app.add_option("--ranks", setup.ranks, "Payloads that are summed (4)")->check(CLI::Range(1, 1024));
  app.add_option("--threads", setup.threads, "Threads that encode and decode (1)")->check(CLI::Range(1, 256));
  app.add_option("--repeat", setup.repeat, "Rounds of memcpy, encode, memcpy, decode (9)")->check(CLI::Range(1, 100000));
  auto* json = app.add_option("--json", setup.json, "Write JSON to a file, or in place of the table")->expected(0, 1);
  if (const auto code = parse(app, arguments)) return *code;
  if (*json && setup.json.empty()) setup.json = "-";
  if (setup.all)
    for (const auto& c : codecs()) setup.codecs.emplace_back(c.name);
  if (setup.codecs.empty()) setup.codecs = {"3lc"};
  std::vector<std::shared_ptr<const Codec>> chosen;
  for (const auto& text : setup.codecs) chosen.push_back(make_codec(text));

  const Buffer sample(setup.count + static_cast<std::uint64_t>(setup.ranks) * kShift);
  fill(setup.data, 0, sample.values(), sample.bytes() / sizeof(float));
  Workers workers(setup.threads);
  nlohmann::ordered_json out{{"bench", "codec"},        {"crimp", CRIMP_VERSION},     {"simd", simd_target()},   {"count", setup.count},
                             {"tensor", setup.tensor}, {"data", setup.data},        {"ranks", setup.ranks}, {"threads", setup.threads},
                             {"repeat", setup.repeat}};
  const bool show = setup.json != "-";
  const Table table({{"codec", "", 24}, {"memcpy", "GB/s", 7}, {"encode", "GB/s", 7}, {"dec+add", "GB/s", 7}, {"+1", "GB/s", 7},
                     {"encode", "/memcpy", 8}, {"dec+add", "/memcpy", 8}, {"bits", "/value", 7}, {"ratio", "", 6}, {"error", "", 8}});
  if (show) {
    std::printf("# %llu float32 values (%s), tensors of %llu, %d payloads summed, %d thread%s, %s\n", static_cast<unsigned long long>(setup.count),
                setup.data.c_str(), static_cast<unsigned long long>(setup.tensor), setup.ranks, setup.threads, setup.threads == 1 ? "" : "s", simd_target().c_str());
    table.head();
  }
  for (const auto& codec : chosen) {
    const auto r = codec->traits().whole_tensors ? measure_whole(setup, *codec, sample.values(), workers)
                                                 : Bench(setup, *codec, sample.values(), workers).measure();
    out["results"].push_back(r);
    const auto cell = [&](const char* key) { return number(r[key].get<double>()); };
    if (show)
      table.row({codec->spec(), cell("memcpy_GBps"), cell("encode_GBps"), cell("decode_add_GBps"), cell("decode_add_one_GBps"),
                 cell("encode_vs_memcpy"), cell("decode_add_vs_memcpy"), cell("bits_per_value"), cell("ratio"),
                 scientific(r["relative_error"].get<double>())});
  }
  if (!setup.json.empty()) write_json(setup.json, out);
  return 0;
}

}  // namespace crimp::tools
