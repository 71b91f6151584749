#include "measure_profile.hpp"

#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "backend/host_backend.hpp"
#include "blocking_transport.hpp"
#include "codec/codec.hpp"
#include "collective/algorithms.hpp"
#include "collective/measure.hpp"
#include "core/error.hpp"
#include "crimp/crimp.h"
#include "gradient_pool.hpp"
#include "memory/workers.hpp"
#include "stopwatch.hpp"

namespace crimp::tools {
namespace {

constexpr std::uint64_t kPlainSizes[] = {256, 4096}, kFirst = 64 << 10;  // bytes; then four times as much each
// In a step each call finds other values, residuals and sums than the one before, hence cold caches: calls take turns
// with so many tensors, in so many bytes together.
constexpr std::uint64_t kTogether = std::uint64_t{64} << 20;
constexpr std::uint64_t kMostTurns = 32;
// What a codec of variable size sends of a tensor grows while its residual fills, which takes some calls.
constexpr std::uint64_t kFilling = 8;
constexpr double kTooLong = 2;   // seconds of a call, beyond which longer ones follow from those measured
constexpr double kTrain = 0.05;  // of the calls that are timed together
constexpr int kMostCalls = 64, kTrains = 3;

// Rank 0's.
double told(double mine) {
  MPI_Bcast(&mine, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
  return mine;
}

double longest(double mine) {
  double all = 0;
  PMPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return all;
}

std::uint64_t turns_of(std::uint64_t bytes) { return std::clamp<std::uint64_t>(kTogether / bytes, 1, kMostTurns); }

// Seconds of a call in a train of them, which uses up what credit a link lends short ones. call(n): the n-th.
template <class Call>
double call_s(double seconds, std::uint64_t warm_up, Call call) {
  std::uint64_t number = 0;
  while (number < warm_up) call(number++);
  const double first = told(longest(timed([&] { call(number++); })));
  const int calls = std::clamp(static_cast<int>(kTrain / first), 2, kMostCalls);
  std::vector<double> trains;
  double spent = 0;
  for (int i = 0; i < kTrains && (i == 0 || told(spent) < seconds); ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double took = longest(timed([&] {
      for (int k = 0; k < calls; ++k) call(number++);
    }));
    spent += took;
    trains.push_back(took / calls);
  }
  return told(median(trains));
}

std::vector<std::uint64_t> sizes(std::uint64_t most) {
  std::vector<std::uint64_t> all;
  for (std::uint64_t size = kFirst; size < most; size *= 4) all.push_back(size);
  all.push_back(std::max(most, 2 * kFirst));
  return all;
}

int count_nodes() {
  MPI_Comm node;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  int rank = 0;
  MPI_Comm_rank(node, &rank);
  int leads = rank == 0, all = 0;
  PMPI_Allreduce(&leads, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Comm_free(&node);
  return all;
}

}  // namespace

void prepare_profile() {
  // Each call gets its codec and algorithm by crimp_set_codec and crimp_set_algorithm; nothing else may decide.
  for (const auto& [name, value] : {std::pair{"CRIMP_CODEC", "fp16"}, {"CRIMP_CONTROL", "off"}, {"CRIMP_MERGE", "off"}})
    setenv(name, value, 1);
}

ClusterProfile measure_profile(const ProfileSetup& setup, const Settings& settings) {
  ClusterProfile out;
  out.measured = true;
  BlockingTransport transport(MPI_COMM_WORLD);
  out.ranks = transport.size();
  out.nodes = count_nodes();
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(mpi, &length);
  out.mpi = std::string(mpi).substr(0, std::string(mpi).find_first_of(",\n"));
  const auto say = [&](const char* what) {
    if (transport.rank() == 0) std::fprintf(stderr, "crimp plan: measuring %s\n", what);
  };
  MPI_Pcontrol(0);
  say("the network");
  out.network = measure_network(transport, {});
  const auto all_sizes = sizes(setup.most_bytes);
  const std::uint64_t room = std::max(kTogether, all_sizes.back()) / sizeof(float);
  const GradientPool values(room, transport.rank());
  std::vector<float> sums(room);
  say("plain MPI");
  const auto plain_s = [&](std::uint64_t bytes) {
    const std::uint64_t count = bytes / sizeof(float), turns = turns_of(bytes);
    return call_s(setup.seconds, 1, [&](std::uint64_t call) {
      const std::uint64_t at = call % turns * count;
      PMPI_Allreduce(values.of(call) + at, sums.data() + at, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                     MPI_COMM_WORLD);
    });
  };
  for (const std::uint64_t bytes : kPlainSizes) out.network.plain.add(static_cast<double>(bytes), plain_s(bytes));
  for (const std::uint64_t bytes : all_sizes) {
    const double s = plain_s(bytes);
    out.network.plain.add(static_cast<double>(bytes), s);
    if (s > kTooLong) break;
  }
  out.network.plain = steadied(out.network.plain);
  Workers workers(settings.threads);
  HostBackend backend(workers);
  const std::span sample(values.of(0), std::min<std::size_t>(kSampleElements, sums.size()));
  for (const std::string& name : setup.codecs) {
    const auto codec = make_codec(name);
    say(codec->spec().c_str());
    auto& of = out.codecs[codec->spec()];
    if (!codec->traits().whole_tensors)
      of.cost = measure_codec(transport, *codec, [&] { return time_codec(*codec, sample, 0, backend); });
    for (const AlgorithmEntry& entry : algorithms()) {
      if (!entry.why_unsupported(*codec, out.ranks).empty() ||
          (!entry.plan && (out.nodes == out.ranks || out.nodes == 1)) || entry.one_exchange ||
          entry.algorithm == Algorithm::node_sum)
        continue;
      MPI_Comm comm;
      MPI_Comm_dup(MPI_COMM_WORLD, &comm);
      MPI_Pcontrol(1);
      int failed = crimp_set_codec(comm, "*", codec->spec().c_str());
      if (failed == MPI_SUCCESS) failed = crimp_set_algorithm(comm, entry.name);
      Curve& curve = of.calls[entry.name];
      for (const std::uint64_t bytes : all_sizes) {
        const std::uint64_t count = bytes / sizeof(float), turns = turns_of(bytes);
        std::vector<std::string> names;
        for (std::uint64_t turn = 0; turn < turns; ++turn)
          names.push_back("tensor" + std::to_string(turn) + " of " + std::to_string(bytes));
        const double s =
            call_s(setup.seconds, codec->traits().fixed_size ? turns : kFilling * turns, [&](std::uint64_t call) {
              const std::uint64_t turn = call % turns, at = turn * count;
              const crimp_segment segment{names[turn].c_str(), count};
              failed |= crimp_allreduce(values.of(call / turns) + at, sums.data() + at, count, CRIMP_FLOAT32, comm,
                                        &segment, 1);
            });
        curve.add(static_cast<double>(bytes), s);
        if (s > kTooLong && curve.points().size() > 1) break;
      }
      curve = steadied(curve);
      MPI_Pcontrol(0);
      MPI_Comm_free(&comm);
      if (failed != MPI_SUCCESS)
        throw Error(ErrorCode::transport_failed,
                    "calls with " + codec->spec() + " failed: MPI's code " + std::to_string(failed));
    }
  }
  return out;
}

}  // namespace crimp::tools
