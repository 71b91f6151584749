// crimp plan: what a step of a training would take with Crimp and without, and what to run; from a model's tensors and
// a cluster, or from the steps that a report or a trace has.
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "advice.hpp"
#include "backend/host_backend.hpp"
#include "codec/codec.hpp"
#include "commands.hpp"
#include "core/error.hpp"
#include "core/output_file.hpp"
#include "core/plain_text.hpp"
#include "exit_code.hpp"
#include "forecast.hpp"
#include "measure_profile.hpp"
#include "memory/workers.hpp"
#include "plan_answer.hpp"
#include "quantities.hpp"
#include "sample_data.hpp"
#include "table.hpp"
#include "traced_plan.hpp"

extern char** environ;

namespace crimp::tools {
namespace {

// Those whose loss docs/quality.md has, one or two of a kind.
constexpr const char* kUsual = "fp16,8bit,qsgd,maxmin:bits=4,thc,1bit,topk:ratio=0.01,3lc,3lc:s=1.75";

struct Options {
  std::string report, model, profile, measure, json, link = "1G", latency = "50us", gradients = "f32", quality,
                                                     caller = "horovod", program = "./your_program";
  std::vector<std::string> codecs;
  int ranks = 4, nodes = 0, cores = 0, threads = 1;
  double compute_ms = 0, add_gb_per_s = 5, most_loss = kChance, seconds = 0.5;
  std::uint64_t most_bytes = std::uint64_t{16} << 20;
  bool one_machine = false, gpu = false, described = false;
};

Error refused(const std::string& what) { return Error(ErrorCode::argument_invalid, what); }

// What separates codecs is a comma that no parameter stands behind: "3lc:s=1,entropy=1" is one.
std::vector<std::string> codecs_of(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const std::string& text : texts)
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find(',', at), text.size());
      std::string one = text.substr(at, end - at);
      const std::size_t equals = one.find('='), colon = one.find(':');
      if (!out.empty() && at > 0 && equals != one.npos && colon > equals) out.back() += "," + one;
      else if (!one.empty()) out.push_back(std::move(one));
      at = end + 1;
    }
  if (out.empty()) throw refused("--codecs names none; legal is a list, as in 3lc,8bit,topk:ratio=0.01");
  for (std::string& one : out) one = make_codec(one)->spec();
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::map<std::string, CodecCost> timed_codecs(const std::vector<std::string>& specs) {
  std::map<std::string, CodecCost> out;
  Workers workers(1);
  HostBackend backend(workers);
  std::vector<float> sample(kSampleElements);
  fill("normal", 0, sample.data(), sample.size());
  for (const std::string& spec : specs) {
    const auto codec = make_codec(spec);
    out[spec] = codec->traits().whole_tensors ? CodecCost{} : time_codec(*codec, sample, 0, backend);
  }
  return out;
}

ClusterShape shape_of(const Options& o) {
  ClusterShape shape;
  const auto rate = parse_rate(o.link);
  const auto latency = parse_time(o.latency);
  if (!rate) throw refused("--link is '" + o.link + "'; legal is a rate, as 10G or 100mbit");
  if (!latency) throw refused("--latency is '" + o.latency + "'; legal is a time, as 50us or 1ms");
  shape.ranks = o.ranks;
  shape.nodes = o.nodes ? o.nodes : o.ranks;
  if (shape.nodes > shape.ranks)
    throw refused("--nodes " + std::to_string(shape.nodes) + " is larger than --ranks " + std::to_string(shape.ranks) +
                  "; legal is up to as many nodes as ranks");
  shape.bytes_per_s = *rate / 8;
  shape.latency_s = *latency;
  shape.add_bytes_per_s = 1e9 * o.add_gb_per_s;
  shape.cores = o.cores;
  shape.threads = o.threads;
  shape.one_machine = o.one_machine;
  return shape;
}

// Threads share the work of one rank.
std::map<std::string, CodecCost> with_threads(std::map<std::string, CodecCost> costs, const Options& o) {
  for (auto& [_, c] : costs)
    for (double* s : {&c.encode_s, &c.decode_s, &c.scan_s, &c.add_s}) *s = o.gpu ? 0 : *s / o.threads;
  return costs;
}

ForecastSettings settings_of(const Options& o, Caller caller) {
  ForecastSettings with;
  std::vector<Complaint> complaints;
  with.settings = read_settings(environ, complaints);
  for (const Complaint& c : complaints)
    if (c.illegal) throw refused(c.text);
  if (!o.quality.empty())
    for (const Option& option : option_table())
      if (option.name == std::string("CRIMP_QUALITY") && !option.set(with.settings, o.quality))
        throw refused("--quality is '" + o.quality + "'; legal is: " + option.legal);
  switch (caller) {
    case Caller::horovod: with.merge = {"auto", "off", "all", "bytes=8M", "bytes=32M"}; break;
    case Caller::ddp: with.merge = {"bytes=25M"}; break;
    case Caller::program: with.merge = {"off"}; break;
  }
  return with;
}

// Between which rates the answer turns, by the codec that is shortest here; only of a cluster that is described.
std::optional<double> even_rate(const ClusterShape& here, const std::map<std::string, CodecCost>& costs,
                                const PlanAnswer& answer, const ForecastSettings& with, const AdviceQuery& query) {
  const Forecast* best = nullptr;
  for (const Forecast& row : answer.rows) {
    const auto risk = risk_of(row, answer.rows);
    if (row.algorithm == "auto" && risk && !risk->diverged && risk->points <= query.most_loss &&
        (!best || row.step_s < best->step_s))
      best = &row;
  }
  if (!best) return {};
  ForecastSettings quick = with;
  if (answer.step.tensors.size() > 200) std::erase(quick.merge, "auto");
  const auto pays = [&](double bytes_per_s) {
    ClusterShape there = here;
    there.bytes_per_s = bytes_per_s;
    const ClusterProfile profile = profile_of(there, costs);
    const auto step_s = [&](const std::string& codec, const std::string& algorithm) {
      double least = INFINITY;
      for (const std::string& merge : quick.merge)
        least = std::min(least, forecast(profile, answer.step, quick, codec, algorithm, merge).step_s);
      return least;
    };
    return step_s("none", "mpi") >= kLeastGain * step_s(best->codec, "auto");
  };
  double slow = 1e6 / 8, fast = 1e13 / 8;
  if (!pays(slow) || pays(fast)) return {};
  for (int i = 0; i < 12; ++i) (pays(std::sqrt(slow * fast)) ? slow : fast) = std::sqrt(slow * fast);
  return 8 * std::sqrt(slow * fast);
}

// A traced step, seen as a model's: its units in their order, ready when they were.
StepShape shape_of(const Traced& traced, const Options& o) {
  StepShape step;
  step.overlaps = !traced.trace.stalls;
  step.value_bytes = 4;
  std::size_t tensor = 0;
  for (std::size_t i = 0; i < traced.trace.units.size(); ++i) {
    const auto& unit = traced.trace.units[i];
    step.tensors.push_back({unit.tensors == 1 ? traced.trace.tensors[tensor]
                                              : fmt::format("tensors {} to {}", tensor, tensor + unit.tensors - 1),
                            std::max<std::uint64_t>(1, unit.bytes / 4)});
    step.ready_s.push_back(unit.ready_s);
    step.compute_s = std::max(step.compute_s, unit.ready_s);
    tensor += unit.tensors;
  }
  if (o.compute_ms > 0) step.compute_s = 1e-3 * o.compute_ms;
  return step;
}

int measure(const Options& o) {
  prepare_profile();
  std::vector<Complaint> ignored;  // libcrimp.so says them
  const Settings settings = read_settings(environ, ignored);
  const ProfileSetup setup{codecs_of(o.codecs.empty() ? std::vector<std::string>{kUsual} : o.codecs), o.most_bytes,
                           o.seconds};
  MPI_Init(nullptr, nullptr);
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  int code = 0;
  if (ranks < 2) {
    std::fprintf(
        stderr,
        "crimp: plan --measure needs two ranks or more: crimp run -np 4 -- crimp plan --measure cluster.json\n");
    code = kArguments;
  } else {
    const ClusterProfile profile = measure_profile(setup, settings);
    if (rank == 0) try {
        write_json(o.measure, profile.json());
        std::printf("%s: %d ranks on %d nodes, %zu codecs. Next: crimp plan --model MODEL --profile %s --compute MS\n",
                    o.measure.c_str(), profile.ranks, profile.nodes, profile.codecs.size(), o.measure.c_str());
      } catch (const std::runtime_error&) {
        std::fprintf(stderr, "crimp: --measure: '%s' could not be written\n", o.measure.c_str());
        code = kNotSo;
      }
    MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
  }
  MPI_Finalize();
  return code;
}

int forecast_model(Options& o, const std::optional<Traced>& traced) {
  const Caller caller = o.caller == "ddp" ? Caller::ddp : o.caller == "program" ? Caller::program : Caller::horovod;
  const ForecastSettings with = settings_of(o, caller);
  const int value_bytes = o.gradients == "f32" ? 4 : 2;
  PlanAnswer a;
  if (traced) a.step = shape_of(*traced, o);
  else {
    const TensorList list = read_tensors(o.model);
    if (!list.no_gradient.empty() && o.json != "-")
      std::printf("%zu tensors of the file have no gradient (integers, statistics, nothing in them): left out, as %s\n",
                  list.no_gradient.size(), plain_text(list.no_gradient.front()).c_str());
    a.step = StepShape::of(list, 1e-3 * o.compute_ms, caller != Caller::program, value_bytes);
  }
  std::optional<ClusterShape> shape;
  std::map<std::string, CodecCost> costs;
  ClusterProfile& profile = a.profile;
  a.from = o.profile;
  a.cores = o.cores;
  a.one_machine = o.one_machine;
  a.most_loss = o.most_loss;
  a.caller = o.caller;
  a.traced = traced.has_value();
  a.traced_ranks = traced ? traced->ranks : 0;
  if (!o.profile.empty()) {
    profile = ClusterProfile::read(o.profile);
    o.ranks = profile.ranks;
    if (!o.codecs.empty()) {
      const auto wanted = codecs_of(o.codecs);
      for (const std::string& codec : wanted)
        if (!profile.codecs.contains(codec)) throw refused("'" + o.profile + "' was not measured with " + codec);
      std::erase_if(profile.codecs,
                    [&](const auto& of) { return std::find(wanted.begin(), wanted.end(), of.first) == wanted.end(); });
    }
    for (const auto& [spec, _] : profile.codecs) make_codec(spec);
  } else {
    shape = shape_of(o);
    costs = with_threads(timed_codecs(codecs_of(o.codecs.empty() ? std::vector<std::string>{kUsual} : o.codecs)), o);
    profile = profile_of(*shape, costs);
    a.bits_per_s = 8 * shape->bytes_per_s;
    a.latency_s = shape->latency_s;
    a.bounds_only = o.gpu;
  }
  a.rows = forecasts(profile, a.step, with, &a.left_out);
  const AdviceQuery query{o.most_loss, caller, o.threads, o.quality, o.program, o.ranks};
  a.advice = advise(a.rows, a.step, query);
  if (shape && !o.gpu) a.even_bits_per_s = even_rate(*shape, costs, a, with, query);
  const std::string said = verdict(a);
  if (o.json != "-") {
    print(a);
    std::printf("\n%s\n  %s\n", plain_text(said, "\n").c_str(), plain_text(a.advice.line).c_str());
  }
  if (!o.json.empty()) write_json(o.json, json_of(a, said));
  return 0;
}

// Options that a form of the command does not take would be ignored.
void refuse_given(const std::vector<std::pair<const char*, CommandLine::Option>>& options,
                  std::initializer_list<std::string_view> names, const std::string& why) {
  for (const auto& [name, option] : options)
    if (option.given() && std::count(names.begin(), names.end(), std::string_view(name)))
      throw refused(std::string(name) + " " + why);
}

void check_form(const Options& o, const std::vector<std::pair<const char*, CommandLine::Option>>& given, bool report) {
  constexpr const char* kMeasures = "is not taken with --measure, which measures the cluster that it is started on";
  constexpr const char* kSays = "is not taken with a report or a trace, which says it itself";
  constexpr const char* kReplays =
      "is of a forecast, and a report or a trace alone is shown by its own times; describe a cluster (--link, ..., or --profile), or leave it out";
  if (!o.measure.empty()) {
    refuse_given(given,
                 {"--compute", "--caller", "--gradients", "--quality", "--max-loss", "--program", "--json", "--model",
                  "--profile"},
                 kMeasures);
    if (report || o.described || o.gpu || o.one_machine)
      throw refused(
          "--measure measures the cluster that it is started on: leave out the report, and options from --ranks to --gpu");
    return;
  }
  refuse_given(given, {"--max", "--seconds"}, "is of --measure alone");
  if (report) refuse_given(given, {"--caller", "--gradients"}, kSays);
  if (!report || !o.profile.empty() || o.described) return;
  refuse_given(given, {"--compute", "--codecs", "--quality", "--max-loss", "--program"}, kReplays);
  if (o.gpu || o.one_machine) throw refused(std::string(o.gpu ? "--gpu " : "--one-machine ") + kReplays);
}

int replay(const Options& o) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  bool first = true;
  for (const Traced& traced : traces_in(o.report)) {
    if (!std::exchange(first, false) && o.json != "-") std::printf("\n");
    out.push_back(show(traced, o.json != "-"));
  }
  if (!o.json.empty()) write_json(o.json, out);
  return 0;
}

}  // namespace

int plan(Arguments arguments) {
  Options o;
  CommandLine app(
      "Says what a step of a training would take on a cluster with each codec, algorithm and merge plan, what to run, and whether it pays:\n"
      "  crimp plan --model model.txt --ranks 16 --link 10G --compute 120     a cluster by its figures; codecs are timed here\n"
      "  crimp run -np 4 -- crimp plan --measure cluster.json                 measures one, to be started on it\n"
      "  crimp plan --model model.txt --profile cluster.json --compute 120    the same by what was measured\n"
      "  crimp plan report.json [--profile cluster.json]                      the steps that a report or a trace has, under every merge plan",
      "crimp plan");
  const auto report = app.option("report", o.report, "What CRIMP_REPORT or CRIMP_TRACE wrote");
  const auto model = app.option(
      "--model", o.model,
      "Tensors: lines of 'name count' or 'name 64x3x7x7', or a safetensors file; of PyTorch's checkpoints: python3 -m crimp.model");
  const auto profile =
      app.option("--profile", o.profile, "What --measure wrote, in place of the options from --ranks to --gpu");
  app.option("--measure", o.measure, "Measure this cluster into a file: network, codecs, and calls by every algorithm");
  const std::vector<CommandLine::Option> shape{
      app.option("--ranks", o.ranks, "Ranks (4; with a report as many as it has)").within(2, 1 << 20),
      app.option("--nodes", o.nodes, "Nodes that they are on (one each)").within(1, 1 << 20),
      app.option("--link", o.link, "Rate of a node's link: 1G, 100mbit, 25G (1G)"),
      app.option("--latency", o.latency, "Time of a message: 50us, 1ms (50us)"),
      app.option("--cores", o.cores, "Cores of a node, which its ranks share (0: one for every thread)")
          .within(0, 1 << 20),
      app.option("--threads", o.threads, "CRIMP_THREADS (1)").within(1, 256),
      app.option("--add", o.add_gb_per_s, "GB/s at which plain MPI adds (5)").positive()};
  app.flag("--one-machine", o.one_machine, "All nodes share those cores, as hosts in namespaces of one machine do");
  app.flag("--gpu", o.gpu, "Gradients are on GPUs, for whose codecs nothing was measured: bounds only");
  const auto compute =
      app.option("--compute", o.compute_ms, "Milliseconds of a step's forward and backward pass, without any exchange")
          .within(0.0, 1e9);
  const auto caller =
      app.option(
             "--caller", o.caller,
             "horovod: tensors can be merged; ddp: buckets of 25 MB; program: a call a tensor, behind all computing (horovod)")
          .one_of({"horovod", "ddp", "program"});
  const auto gradients =
      app.option("--gradients", o.gradients, "Their type: f32, f16 or bf16 (f32)").one_of({"f32", "f16", "bf16"});
  const auto codecs = app.option("--codecs", o.codecs, std::string("Codecs to compare (") + kUsual + ")");
  const auto quality = app.option("--quality", o.quality, "As CRIMP_QUALITY (3)");
  const auto most_loss =
      app.option("--max-loss", o.most_loss, "Points of accuracy that a codec may have lost where it was measured (0.5)")
          .within(-100.0, 100.0);
  const auto program = app.option("--program", o.program, "What the line at the end starts (./your_program)");
  const auto most = app.option("--max", o.most_bytes, "Longest call of --measure, in bytes (16M)")
                        .sizes()
                        .within(std::uint64_t{1} << 17, std::uint64_t{1} << 30);
  const auto per_size =
      app.option("--seconds", o.seconds, "About so many for each size and algorithm of --measure (0.5)").positive();
  const auto write = app.option("--json", o.json, "Write JSON to a file, or in place of the tables").value_optional();
  const std::vector<std::pair<const char*, CommandLine::Option>> given{
      {"--model", model},         {"--profile", profile}, {"--compute", compute},  {"--caller", caller},
      {"--gradients", gradients}, {"--codecs", codecs},   {"--quality", quality},  {"--max-loss", most_loss},
      {"--program", program},     {"--max", most},        {"--seconds", per_size}, {"--json", write}};
  if (const auto code = app.parse(arguments)) return *code;
  if (write.given() && o.json.empty()) o.json = "-";
  // A slip of the hand would cost the report.
  for (const std::string* input : {&o.report, &o.profile, &o.model})
    if (!input->empty() && !o.json.empty() && o.json != "-" && OutputFile(o.json).is(OutputFile(*input)))
      throw refused("--json: '" + o.json + "' is what is read, '" + *input + "'; take another name");
  o.described = std::any_of(shape.begin(), shape.end(), [](const auto& option) { return option.given(); });
  check_form(o, given, report.given());
  if (!o.measure.empty()) return measure(o);
  if (report.given() + !o.model.empty() != 1)
    throw Error(
        ErrorCode::argument_invalid,
        "crimp plan needs the file that CRIMP_REPORT or CRIMP_TRACE wrote, or --model with a list of tensors; one of them");
  if (!o.profile.empty() && (o.described || o.gpu || o.one_machine))
    throw refused(
        "--profile says what the cluster is; leave out --ranks, --nodes, --link, --latency, --cores, --threads, --add, --one-machine and --gpu");
  if (!report.given()) return forecast_model(o, {});
  if (o.profile.empty() && !o.described) return replay(o);
  const auto traces = traces_in(o.report);
  if (traces.front().horovod == false) o.caller = "program";
  if (!shape.front().given() && traces.front().ranks > 1) o.ranks = traces.front().ranks;
  return forecast_model(o, traces.front());
}

}  // namespace crimp::tools
