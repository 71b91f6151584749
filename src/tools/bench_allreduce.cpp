// crimp bench allreduce: MPI_Allreduce through Crimp beside plain MPI, call by call in the same run, so that noise hits
// both alike.
#include <mpi.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "codec/codec.hpp"
#include "codec/simd.hpp"
#include "collective/algorithms.hpp"
#include "collective/chooser.hpp"
#include "collective/one_shot.hpp"
#include "commands.hpp"
#include "core/convert.hpp"
#include "core/digest.hpp"
#include "core/error.hpp"
#include "core/settings.hpp"
#include "core/types.hpp"
#include "crimp/crimp.h"
#include "cuda_device.hpp"
#include "interface_counter.hpp"
#include "local_payload.hpp"
#include "memory/memory_resource.hpp"
#include "plain_algorithms.hpp"
#include "sample_data.hpp"
#include "schedule/call_sequence.hpp"
#include "simd_option.hpp"
#include "stopwatch.hpp"
#include "table.hpp"

extern char** environ;

namespace crimp::tools {
namespace {

constexpr int kLeastIterations = 3;  // measured even where they take longer than --seconds

struct Setup {
  std::string codec, dtype = "float", data = "normal", device = "host", interface, json, label;
  std::uint64_t min = 4096, max = std::uint64_t{16} << 20, factor = 4;
  int iterations = 20, warm_up = 12;
  double seconds = 5;
  bool plain_algorithms = false, algorithms = false, named = false, halves = false;
};

// What takes turns on one size: every plain algorithm, MPI on halves, then Crimp.
struct Contestant {
  MPI_Comm comm;
  bool crimp;
  bool halves = false;         // the values are cast to float16, MPI adds them, and the sums are cast back
  std::string algorithm = {};  // of Crimp; empty: as the settings say
  std::vector<double> times = {};
  double spent = 0;
  std::uint64_t sent_bytes = 0;  // by this rank's interface, over all calls in `times`
  // Of Crimp only.
  std::vector<std::uint64_t> hashes = {};  // of every measured result
  std::vector<double> total = {};          // the measured results' sum
  std::vector<std::byte> last = {};        // the last call's result
};

struct Errors {
  double one = 0, mean = 0;  // |result - exact| / |exact|: of the last call, and of the mean over the measured calls
  int wrong = 0;             // ranks on which any measured call gave other bits than on rank 0
};

double maximum(double mine) {
  double all = 0;
  MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return all;
}

double sum(double mine) {
  double all = 0;
  MPI_Reduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  return all;
}

// As float, rounded once a hop.
void add_halves(void* in, void* sum, int* count, MPI_Datatype*) {
  static thread_local std::vector<float> sums(4096);
  const auto* from = static_cast<const std::uint16_t*>(in);
  auto* to = static_cast<std::uint16_t*>(sum);
  for (std::size_t left = static_cast<std::size_t>(*count); left > 0;) {
    const std::size_t n = std::min(left, sums.size());
    widen(Dtype::f16, to, sums.data(), n);
    add_widened(Dtype::f16, from, sums.data(), n);
    narrow(Dtype::f16, sums.data(), to, n);
    from += n, to += n, left -= n;
  }
}

class Bench {
 public:
  Bench(const Setup& setup, int rank, int ranks, const CudaDevice* device)
      : setup_(setup), device_(device), rank_(rank), ranks_(ranks),
        dtype_(setup.dtype == "double" ? Dtype::f64 : Dtype::f32), element_(size_of(dtype_)),
        most_(setup.max / element_), values_(most_ * sizeof(float)), send_(most_ * element_, staging()),
        receive_(most_ * element_, staging()) {
    std::vector<Complaint> ignored;  // libcrimp.so says them
    settings_ = read_settings(environ, ignored);
    if (settings_.codec != "auto" && settings_.codec != "none") codec_ = make_codec(settings_.codec);
    if (!setup.interface.empty()) counter_ = std::make_unique<InterfaceCounter>(setup.interface), counter_->sent();
    fill(setup.data, static_cast<std::uint32_t>(rank), values(), most_);
    narrow(dtype_, values(), send_.data(), most_);
    if (device_) {
      send_there_ = Memory(send_.bytes(), device_->memory);
      receive_there_ = Memory(send_.bytes(), device_->memory);
      device_->memory.write(send_there_.data(), send_.data(), send_.bytes());
    }
    MPI_Pcontrol(0);
    plain_ = plain_algorithms(setup.plain_algorithms, &problem_);
    if (!setup.halves) return;
    halves_ = Memory(most_ * sizeof(std::uint16_t));
    half_sums_ = Memory(most_ * sizeof(std::uint16_t));
    MPI_Type_contiguous(2, MPI_BYTE, &half_);
    MPI_Type_commit(&half_);
    MPI_Op_create(add_halves, 1, &sum_of_halves_);
  }

  const std::string& problem() const { return problem_; }
  const std::string& algorithm() const { return settings_.algorithm; }

  // Collective; the result is rank 0's.
  nlohmann::ordered_json measure(std::uint64_t count) {
    // A communicator of its own for each size: to the call sequence of Crimp a change of size is a broken period.
    MPI_Comm crimp_comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &crimp_comm);
    std::vector<Contestant> all;
    for (const auto& p : plain_) all.push_back({.comm = p.comm, .crimp = false});
    if (setup_.halves) all.push_back({.comm = plain_[0].comm, .crimp = false, .halves = true});
    const std::size_t peers = all.size();
    MPI_Comm host;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    int of_host = 0;
    MPI_Comm_size(host, &of_host);
    MPI_Comm_free(&host);
    const int node_size = static_cast<int>(settings_.node_size);
    const auto in_nodes = [&](const AlgorithmEntry& entry) {
      const bool on_host =
          entry.one_exchange || entry.algorithm == Algorithm::node_sum;  // the chooser's for nothing else
      if (on_host && setup_.device != "host") return false;
      if (entry.plan) return true;
      if (entry.algorithm == Algorithm::hierarchical) return node_size != 0;
      return of_host == ranks_ && (node_size == 0 || node_size >= ranks_);
    };
    const auto fits = [&](const AlgorithmEntry& entry) {
      ChoiceQuery query{codec_.get(), count, settings_.chunk, count * element_};
      query.frame_bytes = frame_bytes(*codec_, *Layout::unknown(count), settings_.chunk);
      return entry.fits(query, ranks_);
    };
    // Every algorithm on a communicator of its own, because residuals are the communicator's.
    if (setup_.algorithms && codec_)
      for (const auto& entry : crimp::algorithms()) {
        if (!entry.why_unsupported(*codec_, ranks_).empty() || !in_nodes(entry) || !fits(entry)) continue;
        MPI_Comm comm;
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        all.push_back({.comm = comm, .crimp = true, .algorithm = entry.name});
        MPI_Pcontrol(1);
        crimp_set_algorithm(comm, entry.name);
        MPI_Pcontrol(0);
      }
    all.push_back({.comm = crimp_comm, .crimp = true});

    Contestant unread{.comm = MPI_COMM_NULL, .crimp = false};  // plain MPI's results
    unread.total.resize(count);
    unread.last.resize(count * element_);
    for (auto& c : all) {
      c.total.resize(c.crimp ? count : 0);
      c.last.resize(c.crimp ? count * element_ : 0);
      for (int i = 0; i < (c.crimp ? warm_up() : 1); ++i) c.spent = time_of(c, count, nullptr);
      if (!c.crimp || !c.algorithm.empty() || settings_.algorithm != "auto") continue;
      for (int i = 0; i < static_cast<int>(Chooser::kEarly) + Trials::kMostCalls; ++i)
        c.spent = time_of(c, count, nullptr);
      double longest = maximum(c.spent);
      MPI_Bcast(&longest, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
      if (longest > 2 * Trials::kShort) continue;
      for (int i = 0; i < static_cast<int>(Trials::kMost) * Trials::kShortRounds; ++i)
        c.spent = time_of(c, count, nullptr);
    }
    std::vector<std::size_t> turns(all.size());
    std::iota(turns.begin(), turns.end(), 0);
    for (std::size_t round = 0;; ++round) {
      // Rank 0's clock decides for all who goes on.
      std::vector<int> go(all.size());
      int any = 0;
      for (std::size_t i = 0; i < all.size(); ++i) any |= go[i] = goes_on(all[i]);
      MPI_Bcast(go.data(), static_cast<int>(go.size()), MPI_INT, 0, MPI_COMM_WORLD);
      MPI_Bcast(&any, 1, MPI_INT, 0, MPI_COMM_WORLD);
      if (!any) break;
      // In another order each round: who follows a long exchange, or the reading of a result, finds other caches and
      // other link credit.
      std::shuffle(turns.begin(), turns.end(), std::mt19937(static_cast<unsigned>(round)));
      for (const std::size_t i : turns) {
        Contestant& c = all[i];
        if (!go[i]) continue;
        c.times.push_back(time_of(c, count, &c.sent_bytes));
        c.spent += c.times.back();
        // Whoever follows on the reading of a result is timed otherwise, on cores that ranks share by a half: all are
        // read.
        note_result(c.crimp ? c : unread, count);
      }
    }
    std::vector<Errors> errors(all.size());
    for (std::size_t i = peers; i < all.size(); ++i) errors[i] = errors_of(all[i], count);
    for (auto& c : all)
      if (c.crimp) MPI_Comm_free(&c.comm);
    return describe(count, all, peers, errors);
  }

 private:
  float* values() const { return reinterpret_cast<float*>(values_.data()); }
  MemoryResource& staging() const { return device_ ? device_->plugin.pinned() : host_memory(); }
  bool goes_on(const Contestant& c) const {
    const int n = static_cast<int>(c.times.size());
    return n < setup_.iterations && (n < kLeastIterations || c.spent < setup_.seconds);
  }

  // Calls until Crimp takes a repeated call for the same tensor; until then a codec that needs a residual is replaced.
  int proof() const { return setup_.named ? 0 : std::max<int>(settings_.periods, PeriodEvidence::kMinMatches + 1); }
  int warm_up() const { return std::max(setup_.warm_up, proof()); }

  double time_of(const Contestant& c, std::uint64_t count, std::uint64_t* sent_bytes) {
    MPI_Pcontrol(c.crimp ? 1 : 0);
    const std::uint64_t before = counter_ && sent_bytes ? counter_->sent() : 0;
    MPI_Barrier(c.comm);
    const bool there = device_ && c.crimp, staged = device_ && !c.crimp;
    const Memory &send = there ? send_there_ : send_, &receive = there ? receive_there_ : receive_;
    const double took = timed([&] {
      if (staged) device_->memory.read(send_.data(), send_there_.data(), count * element_);
      if (c.crimp && setup_.named) {
        const crimp_segment tensor{"tensor", count};
        crimp_allreduce(send.data(), receive.data(), count, static_cast<crimp_dtype>(dtype_), c.comm, &tensor, 1);
      } else if (c.halves) {
        narrow(Dtype::f16, reinterpret_cast<const float*>(send.data()), halves_.data(), count);
        MPI_Allreduce(halves_.data(), half_sums_.data(), static_cast<int>(count), half_, sum_of_halves_, c.comm);
        widen(Dtype::f16, half_sums_.data(), reinterpret_cast<float*>(receive.data()), count);
      } else {
        MPI_Allreduce(send.data(), receive.data(), static_cast<int>(count),
                      dtype_ == Dtype::f64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM, c.comm);
      }
      if (staged) device_->memory.write(receive_there_.data(), receive_.data(), count * element_);
    });
    if (counter_ && sent_bytes) {
      MPI_Barrier(c.comm);  // what others still send for this call counts for it
      *sent_bytes += counter_->sent() - before;
    }
    MPI_Pcontrol(0);
    return took;
  }

  double result(const void* from, std::uint64_t i) const {
    return dtype_ == Dtype::f64 ? static_cast<const double*>(from)[i]
                                : static_cast<double>(static_cast<const float*>(from)[i]);
  }

  void note_result(Contestant& c, std::uint64_t count) {
    if (device_) device_->memory.read(receive_.data(), receive_there_.data(), count * element_);
    c.hashes.push_back(digest(std::string_view(reinterpret_cast<const char*>(receive_.data()), count * element_)));
    for (std::uint64_t i = 0; i < count; ++i) c.total[i] += result(receive_.data(), i);
    std::memcpy(c.last.data(), receive_.data(), count * element_);
  }

  // Collective.
  Errors errors_of(const Contestant& c, std::uint64_t count) {
    constexpr std::uint64_t kStep = std::uint64_t{1} << 18;
    const auto calls = static_cast<double>(c.times.size());
    std::vector<double> mine(std::min(count, kStep)), exact(mine.size());
    double one = 0, mean = 0, norm = 0;
    for (std::uint64_t at = 0; at < count; at += kStep) {
      const std::uint64_t n = std::min(kStep, count - at);
      for (std::uint64_t i = 0; i < n; ++i) mine[i] = static_cast<double>(values()[at + i]);
      MPI_Allreduce(mine.data(), exact.data(), static_cast<int>(n), MPI_DOUBLE, MPI_SUM, plain_[0].comm);
      for (std::uint64_t i = 0; i < n; ++i) {
        const double a = result(c.last.data(), at + i) - exact[i], b = c.total[at + i] / calls - exact[i];
        one += a * a;
        mean += b * b;
        norm += exact[i] * exact[i];
      }
    }
    std::vector<std::uint64_t> first = c.hashes;
    MPI_Bcast(first.data(), static_cast<int>(first.size()), MPI_UINT64_T, 0, MPI_COMM_WORLD);
    const int wrong = static_cast<int>(sum(first != c.hashes));
    return norm == 0 ? Errors{0, 0, wrong} : Errors{std::sqrt(one / norm), std::sqrt(mean / norm), wrong};
  }

  // peers: who is not Crimp.
  nlohmann::ordered_json describe(std::uint64_t count, const std::vector<Contestant>& all, std::size_t peers,
                                  const std::vector<Errors>& errors) {
    const std::uint64_t bytes = count * element_;
    const double bus = 2.0 * (ranks_ - 1) / ranks_;
    const auto speeds = [&](nlohmann::ordered_json& to, const std::string& who, double s) {
      to[who + "_us"] = 1e6 * s;
      to[who + "_algbw_GBps"] = 1e-9 * static_cast<double>(bytes) / s;
      to[who + "_busbw_GBps"] = 1e-9 * static_cast<double>(bytes) / s * bus;
    };
    nlohmann::ordered_json out{{"bytes", bytes}, {"count", count}};
    std::size_t best = 0;
    std::vector<double> times, traffic;
    for (const auto& c : all) {
      times.push_back(maximum(median(c.times)));
      traffic.push_back(sum(static_cast<double>(c.sent_bytes)) / static_cast<double>(c.times.size()));
    }
    int wrong = errors.back().wrong;
    for (std::size_t i = peers; i + 1 < all.size(); ++i) {
      out["algorithms_us"][all[i].algorithm] = 1e6 * times[i];
      out["algorithms_error_of_mean"][all[i].algorithm] = errors[i].mean;
      wrong = std::max(wrong, errors[i].wrong);
    }
    for (std::size_t i = 1; i < plain_.size(); ++i)
      if (times[i] < times[best]) best = i;
    speeds(out, "plain", times[0]);
    if (plain_.size() > 1) {
      for (std::size_t i = 0; i < plain_.size(); ++i) out["plain_algorithms_us"][plain_[i].name] = 1e6 * times[i];
      out["plain_best"] = plain_[best].name;
      speeds(out, "plain_best", times[best]);
    }
    if (setup_.halves) speeds(out, "halves", times[plain_.size()]);
    speeds(out, "crimp", times.back());
    out["speedup"] = times[0] / times.back();
    if (plain_.size() > 1) out["speedup_over_best"] = times[best] / times.back();
    out["iterations"] = all.back().times.size();

    const bool compressed = codec_ && settings_.enable && count >= settings_.min_count;
    out["compressed"] = compressed;
    out["payload_ratio"] = 1.0;
    if (compressed && rank_ == 0) {
      const LocalCalls same{values(), count, warm_up() - proof(), static_cast<int>(all.back().times.size())};
      out["payload_ratio"] = static_cast<double>(bytes) / payload_bytes(*codec_, settings_, ranks_, same);
    }
    if (counter_) {
      out["plain_traffic_bytes"] = traffic[0];
      out["crimp_traffic_bytes"] = traffic.back();
      out["traffic_ratio"] = traffic.back() > 0 ? traffic[0] / traffic.back() : 0;
    }
    out["relative_error"] = errors.back().one;
    out["relative_error_of_mean"] = errors.back().mean;
    out["wrong_ranks"] = wrong;
    return out;
  }

  const Setup& setup_;
  const CudaDevice* device_;  // null: buffers in host memory
  int rank_, ranks_;
  Dtype dtype_;
  std::size_t element_;
  std::uint64_t most_;
  Memory values_, send_, receive_;
  // In device memory; plain MPI then gets the others, and its time contains the copies.
  Memory send_there_, receive_there_;
  Memory halves_, half_sums_;
  MPI_Datatype half_ = MPI_DATATYPE_NULL;
  MPI_Op sum_of_halves_ = MPI_OP_NULL;
  Settings settings_;
  std::shared_ptr<const Codec> codec_;
  std::unique_ptr<InterfaceCounter> counter_;
  std::vector<PlainAlgorithm> plain_;
  std::string problem_;
};

std::vector<std::string> cells(const nlohmann::ordered_json& r, const std::string& plain, bool traffic) {
  const auto cell = [&](const std::string& key) { return number(r[key].get<double>()); };
  const bool best = plain != "plain";
  return {std::to_string(r["bytes"].get<std::uint64_t>()),
          std::to_string(r["count"].get<std::uint64_t>()),
          best ? r["plain_best"].get<std::string>() : "default",
          cell(plain + "_us"),
          cell(plain + "_algbw_GBps"),
          cell(plain + "_busbw_GBps"),
          cell("crimp_us"),
          cell("crimp_algbw_GBps"),
          cell("crimp_busbw_GBps"),
          cell(best ? "speedup_over_best" : "speedup"),
          traffic                       ? cell("traffic_ratio")
          : r["compressed"].get<bool>() ? cell("payload_ratio")
                                        : "pass",
          scientific(r["relative_error"].get<double>()),
          scientific(r["relative_error_of_mean"].get<double>()),
          std::to_string(r["wrong_ranks"].get<int>())};
}

int go(const Setup& setup, const CudaDevice* device) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks < 2) {
    std::fprintf(stderr, "crimp: bench allreduce needs two ranks or more: crimp run -np 4 -- crimp bench allreduce\n");
    return 2;
  }
  Bench bench(setup, rank, ranks, device);
  if (rank == 0 && !bench.problem().empty())
    std::fprintf(stderr, "crimp: --plain-algorithms: %s; only the default is measured\n", bench.problem().c_str());
  const bool best = setup.plain_algorithms && bench.problem().empty(), show = rank == 0 && setup.json != "-";
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(mpi, &length);
  nlohmann::ordered_json out{{"bench", "allreduce"},
                             {"crimp", CRIMP_VERSION},
                             {"mpi", std::string(mpi).substr(0, std::string(mpi).find(','))},
                             {"simd", simd_target()},
                             {"ranks", ranks},
                             {"codec", setup.codec},
                             {"dtype", setup.dtype},
                             {"data", setup.data},
                             {"layout", setup.named ? "named" : "periodic"},
                             {"label", setup.label}};
  if (device) out["device"] = device->json();
  const Table table({{"size", "bytes", 11},
                     {"count", "", 10},
                     {"plain", "algorithm", 18},
                     {"plain", "us", 9},
                     {"algbw", "GB/s", 7},
                     {"busbw", "GB/s", 7},
                     {"crimp", "us", 9},
                     {"algbw", "GB/s", 7},
                     {"busbw", "GB/s", 7},
                     {"speed-up", "", 8},
                     {setup.interface.empty() ? "payload" : "traffic", "ratio", 7},
                     {"error", "one call", 8},
                     {"error", "of mean", 8},
                     {"#wrong", "", 6}});
  if (show) {
    std::printf("# %d ranks, %s, %s values, codec %s, %s; times: medians, the slowest rank's\n", ranks,
                setup.dtype.c_str(), setup.data.c_str(), setup.codec.c_str(),
                setup.named ? "a named tensor" : "tensor known by repetition");
    if (device)
      std::printf(
          "# buffers in the memory of %s, which all ranks share; plain: copied to pinned host memory, MPI, copied back\n",
          device->name.c_str());
    table.head();
  }
  int wrong = 0;
  for (std::uint64_t bytes = setup.min; bytes <= setup.max; bytes *= setup.factor) {
    const auto r = bench.measure(bytes / (setup.dtype == "double" ? 8 : 4));
    wrong += r["wrong_ranks"].get<int>();
    out["sizes"].push_back(r);
    if (show && setup.algorithms && r.contains("algorithms_us")) {
      std::printf("# %" PRIu64 " bytes, us: plain %.0f", r["bytes"].get<std::uint64_t>(), r["plain_us"].get<double>());
      for (const auto& [name, us] : r["algorithms_us"].items())
        std::printf(", %s %.0f", name.c_str(), us.get<double>());
      std::printf(", CRIMP_ALGORITHM=%s %.0f\n", bench.algorithm().c_str(), r["crimp_us"].get<double>());
    }
    if (show) table.row(cells(r, best ? "plain_best" : "plain", !setup.interface.empty()));
  }
  if (show)
    std::printf(
        "# %s. Errors are relative to the exact sum; the mean is over the measured calls. #wrong: ranks whose bits differ\n",
        setup.interface.empty() ? "payload ratio: rank 0's calls encoded once more; pass: left to MPI, too small"
                                : "traffic ratio: bytes that the ranks' interfaces sent, plain over Crimp");
  if (rank == 0 && !setup.json.empty()) try {
      write_json(setup.json, out);
    } catch (const std::exception& e) {  // the others wait
      std::fprintf(stderr, "crimp bench: %s\n", e.what());
      wrong = std::max(wrong, 1);
    }
  MPI_Bcast(&wrong, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return wrong ? 1 : 0;
}

// Known before MPI_Init, so that a complaint is said once.
bool says_complaints() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  return true;
}

}  // namespace

int bench_allreduce(Arguments arguments) {
  Setup setup;
  std::vector<Complaint> ignored;  // libcrimp.so says them
  const Settings given = read_settings(environ, ignored);
  setup.codec = given.codec;
  if (setup.codec.empty() || setup.codec == "auto") setup.codec = "3lc";
  CommandLine app(
      "Times MPI_Allreduce through Crimp and plain, in turns in the same run. To be started by crimp run or mpirun:\n"
      "  crimp run -np 4 -- crimp bench allreduce --codec 3lc --max 64M\n"
      "Without CRIMP_ALGORITHM every call is compressed, by the first algorithm that can (--algorithms: by all, and by the chooser).\n"
      "algbw = bytes / time, busbw = algbw * 2(n-1)/n as in nccl-tests, 1 GB = 1e9 bytes.",
      "crimp bench allreduce");
  const auto size = [&](const char* name, std::uint64_t& to, const char* help) {
    app.option(name, to, help).sizes().within(std::uint64_t{8}, std::uint64_t{1} << 32);
  };
  app.option("--codec", setup.codec, "Codec, sets CRIMP_CODEC (without: as CRIMP_CODEC says, else 3lc)");
  size("--min", setup.min, "Smallest buffer in bytes (4k)");
  size("--max", setup.max, "Largest buffer in bytes (16M)");
  app.option("--factor", setup.factor, "From one size to the next (4)").within(2, 1 << 20);
  app.option("--iters", setup.iterations, "Measured calls (20)").within(1, 1000000);
  app.option("--warm-up", setup.warm_up,
             "Calls of Crimp before anything is measured; until then tensors are unknown (12, at least 8)")
      .within(1, 1000000);
  app.option("--seconds", setup.seconds, "Most time for one algorithm at one size; at least 3 calls are measured (5)");
  app.option("--dtype", setup.dtype, "float or double (float)").one_of({"float", "double"});
  app.option("--data", setup.data, "normal, laplace or sparse (normal)").one_of(kDistributions);
  app.option("--device", setup.device,
             "Where the buffers are: host, cuda or cuda:N; plain MPI is then staged through pinned host memory (host)")
      .check([](const std::string& text) {
        return text == "host" || names_cuda_device(text) ? ""
                                                         : "'" + text + "' is no device; legal: host, cuda, cuda:N";
      });
  app.flag("--named", setup.named, "Name the tensor (crimp_allreduce) instead of having Crimp recognise it");
  app.flag("--plain-algorithms", setup.plain_algorithms,
           "Compare with the best of Open MPI's own allreduce algorithms");
  app.flag("--halves", setup.halves, "Time MPI on the values cast to float16 as well (in the JSON; float, host)");
  app.flag("--algorithms", setup.algorithms,
           "Time each algorithm that can run the codec beside what CRIMP_ALGORITHM says (auto: the chooser)");
  app.option("--interface", setup.interface, "Count the bytes that this network interface sends, on every rank");
  app.option("--label", setup.label, "Goes into the JSON as it is");
  const SimdOption simd(app);
  const auto json = app.option("--json", setup.json, "Write JSON to a file, or in place of the table").value_optional();
  const bool speaks = says_complaints();
  if (const auto code = app.parse(arguments, !speaks)) return *code;
  simd.apply();
  if (json.given() && setup.json.empty()) setup.json = "-";
  std::optional<CudaDevice> device;
  try {
    setup.codec = make_codec(setup.codec)->spec();
    if (setup.halves && (setup.dtype != "float" || setup.device != "host"))
      throw Error(ErrorCode::argument_invalid, "--halves casts floats in host memory; leave --dtype and --device out");
    if (setup.min > setup.max) throw Error(ErrorCode::argument_invalid, "--min is larger than --max");
    if (setup.device != "host") device.emplace(open_cuda_device(setup.device));
  } catch (const Error&) {
    if (!speaks) return 2;
    throw;
  }

  setenv("CRIMP_CODEC", setup.codec.c_str(), 1);
  // What is asked for is Crimp's time, also where the chooser would leave a call to MPI.
  std::string algorithm = "auto";
  for (const auto& entry : crimp::algorithms())
    if (!setup.algorithms && algorithm == "auto" && entry.why_unsupported(*make_codec(setup.codec), 2).empty())
      algorithm = entry.name;
  setenv("CRIMP_ALGORITHM", (given.algorithm == "auto" ? algorithm : given.algorithm).c_str(), 0);
  if (setup.plain_algorithms) request_plain_algorithms();
  MPI_Init(nullptr, nullptr);
  const int code = go(setup, device ? &*device : nullptr);
  MPI_Finalize();
  return code;
}

}  // namespace crimp::tools
