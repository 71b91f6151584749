// What compression costs in accuracy: every codec of the registry at its default and at other settings, with and
// without error feedback, by every kind of algorithm that takes it.
//
//   error    squared error of the sum after one step: of random values that share half of their energy, and of
//   gradients of the MLP in training late     the norm of what all residuals hold at the end of the MLP's training, in
//   gradients convex   softmax regression, full gradients, every rank with images of other classes: the final training
//   loss MLP, CNN stochastic gradient descent on Fashion-MNIST: test accuracy
//
// Ranks are threads; the sums come from Crimp's collectives. No learning rate is tuned for any codec, the optimizer has
// no momentum of its own.
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>

#include "collective/algorithms.hpp"
#include "command_line.hpp"
#include "support/data.hpp"
#include "training.hpp"

using namespace crimp;
using namespace crimp::test;

namespace {

// The settings besides the default, where the codec has some worth knowing. The warm-up is a fifth of the steps.
const std::multimap<std::string, std::string>& other_settings() {
  static const std::multimap<std::string, std::string> all{
      {"3lc", "3lc:s=1.75"},
      {"qsgd", "qsgd:s=4"},
      {"terngrad", "terngrad:clip=1e6"},
      {"inceptionn", "inceptionn:log2_bound=-6"},
      {"maxmin", "maxmin:bits=2"},
      {"sketchml", "sketchml:quantiles=8"},
      {"adaq", "adaq:ratio=0.1"},
      {"topk", "topk:ratio=0.1"},
      {"randomk", "randomk:ratio=0.1"},
      {"threshold", "threshold:v=0.001"},
      {"dgc", "dgc:ratio=0.1"},
      {"dgc", "dgc:ratio=0.001"},
      {"dgc", "dgc:ratio=0.001,warmup=100"},
      {"sidco", "sidco:ratio=0.1"},
      {"thc", "thc:bits=2,g=3"},
      {"powersgd", "powersgd:r=4"},
      {"fp8", "fp8:format=e5m2"},
      {"signum", "signum:momentum=0.5"},
  };
  return all;
}

// The columns: what algorithms do to values. integer_sum has the sums of homomorphic; both are for thc, low_rank is for
// powersgd.
constexpr Way kColumns[] = {{Algorithm::allgather},
                            {Algorithm::two_shot},
                            {Algorithm::allgather, 2},
                            {Algorithm::homomorphic},
                            {Algorithm::low_rank}};
bool runs(const Way& way, const Codec& codec) {
  const auto ways = ways_of(codec, kRanks);
  return std::any_of(ways.begin(), ways.end(),
                     [&](const Way& w) { return w.algorithm == way.algorithm && w.per_node == way.per_node; });
}

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist", out, only;
  bool quick = false;
};

// Inputs of kRanks ranks whose tensors are known.
struct Inputs {
  std::vector<std::size_t> tensors;
  std::vector<std::vector<float>> of;
};
Inputs random_values(std::size_t count) {
  Inputs values{{count}, std::vector<std::vector<float>>(kRanks)};
  const auto common = make_data(Data::laplace, 77, count);
  for (std::size_t r = 0; r < kRanks; ++r) {
    values.of[r] = make_data(Data::laplace, 100 + r, count);
    for (std::size_t i = 0; i < count; ++i)
      values.of[r][i] = 0x1p-7f * (values.of[r][i] + common[i]);  // of the size of gradients
  }
  return values;
}

// |result - sum|^2 / |sum|^2 of one step.
double squared_error(const Codec& codec, const Way& way, const Inputs& values) {
  std::vector<std::vector<float>> results = values.of;
  run_sums(way, kRanks, codec, values.tensors,
           [&](int rank, Sum& sum) { sum(results[static_cast<std::size_t>(rank)].data()); });
  double off = 0, all = 0;
  for (std::size_t i = 0; i < results[0].size(); ++i) {
    double exact = 0;
    for (const auto& v : values.of) exact += static_cast<double>(v[i]);
    off += std::pow(static_cast<double>(results[0][i]) - exact, 2);
    all += exact * exact;
  }
  return off / all;
}

struct Row {
  std::string spec, memory;
  bool usual;                        // the memory that the codec has by default
  std::vector<double> random, real;  // squared errors, by kColumns; negative: it does not run
  Result convex;
  std::vector<std::vector<Result>> mlp, cnn;  // by kColumns, then by seed
  // The first column that runs.
  const std::vector<Result>& first(const std::vector<std::vector<Result>>& of) const {
    return *std::find_if(of.begin(), of.end(), [](const auto& results) { return !results.empty(); });
  }
};

// A codec's settings, each with the memories that make sense for it.
std::vector<std::shared_ptr<const Codec>> settings_of(const CodecInfo& info) {
  std::vector<std::string> specs{std::string(info.name)};
  const auto others = other_settings().equal_range(specs[0]);
  for (auto it = others.first; it != others.second; ++it) specs.push_back(it->second);
  std::vector<std::shared_ptr<const Codec>> all;
  const bool cast = info.traits.wire_id <= 3;
  for (const std::string& spec : specs) {
    all.push_back(make_codec(spec));
    if (cast || info.traits.memory == FeedbackKind::average) continue;
    const std::string memory = info.traits.memory != FeedbackKind::none ? "memory=none"
                               : info.traits.diverges_with_residual     ? "memory=residual,force=1"
                                                                        : "memory=residual";
    try {
      all.push_back(make_codec(spec + (spec.find(':') == spec.npos ? ":" : ",") + memory));
    } catch (const Error&) {
      // a memory that the codec refuses
    }
  }
  return all;
}

std::string number(const char* format, double x) {
  char text[32];
  std::snprintf(text, sizeof text, format, x);
  return text;
}
std::string loss_of(const Result& r) { return r.diverged || r.loss > 100 ? "diverged" : number("%.3f", r.loss); }
double mean_accuracy(const std::vector<Result>& seeds) {
  double sum = 0;
  for (const Result& r : seeds) sum += r.diverged ? 0 : r.accuracy / static_cast<double>(seeds.size());
  return sum;
}
// The mean over the seeds, and how far they are apart.
std::string accuracy_of(const std::vector<Result>& seeds) {
  if (seeds.empty()) return "";
  double low = 1, high = 0;
  for (const Result& r : seeds) {
    if (r.diverged) return "diverged";
    low = std::min(low, r.accuracy), high = std::max(high, r.accuracy);
  }
  return number("%.1f", 100 * mean_accuracy(seeds)) +
         (seeds.size() > 1 ? " (" + number("%.1f", 100 * (high - low)) + ")" : "");
}
std::string late_of(const std::vector<Result>& seeds) {
  return seeds.empty() || seeds[0].diverged ? "" : number("%.1f", seeds[0].late);
}
std::string error_of(double e) { return e < 0 ? "" : number(e < 1e-3 ? "%.1e" : "%.2g", e); }

// "topk:ratio=0.01,memory=none" without the memory.
std::string setting(const std::string& spec) {
  const auto at = spec.find("memory=");
  return at == spec.npos ? spec : spec.substr(0, at - 1);
}

// What the field knows, checked on the table. Facts about codecs that this build does not have are left out.
struct Fact {
  std::string text;
  bool holds;
};
std::vector<Fact> known_facts(const std::vector<Row>& rows) {
  std::vector<Fact> facts;
  const auto pairs = [&](const char* codec, const auto& say) {
    for (const Row& without : rows)
      for (const Row& with : rows)
        if (with.spec.starts_with(codec) && with.memory == "residual" && without.memory == "none" &&
            setting(with.spec) == setting(without.spec))
          say(with, without);
  };
  const auto figures = [](const Row& with, const Row& without) {
    return ": convex " + loss_of(with.convex) + " with, " + loss_of(without.convex) + " without; MLP " +
           accuracy_of(with.first(with.mlp)) + " and " + accuracy_of(without.first(without.mlp)) + "; CNN " +
           accuracy_of(with.first(with.cnn)) + " and " + accuracy_of(without.first(without.cnn));
  };
  const auto mlp = [](const Row& row) { return mean_accuracy(row.first(row.mlp)); };
  const auto both = [&](const Row& row) { return mlp(row) + mean_accuracy(row.first(row.cnn)); };
  for (const char* codec : {"topk", "randomk"})
    pairs(codec, [&](const Row& with, const Row& without) {
      facts.push_back({"Error feedback rescues `" + setting(with.spec) + "`" + figures(with, without),
                       with.convex.loss < without.convex.loss && both(with) > both(without) + 0.01});
    });
  pairs("qsgd:s=4", [&](const Row& with, const Row& without) {
    facts.push_back(
        {"Error feedback spoils `" + setting(with.spec) + "`" + figures(with, without),
         with.convex.diverged || with.convex.loss > 1.2 * without.convex.loss || mlp(with) < mlp(without) - 0.1});
  });
  for (const Row& without : rows)
    for (const Row& with : rows)
      if (without.spec.starts_with("dgc:ratio=0.001") && with.spec.starts_with("dgc:ratio=0.001") && without.usual &&
          with.usual && without.spec.find("warmup=0") != without.spec.npos &&
          with.spec.find("warmup=0") == with.spec.npos)
        facts.push_back({"A warm-up rescues `" + setting(without.spec) + "`" + figures(with, without),
                         mlp(with) > mlp(without) + 0.02 && both(with) > both(without) + 0.04});
  for (const Row& row : rows)
    if (row.spec.starts_with("signsgd") && row.memory == "none")
      facts.push_back({"SignSGD does not converge at the others' learning rate: convex " + loss_of(row.convex) +
                           " (exact " + loss_of(rows[0].convex) + "), CNN " + accuracy_of(row.first(row.cnn)) + " (" +
                           accuracy_of(rows[0].first(rows[0].cnn)) + ")",
                       row.convex.diverged || row.convex.loss > 1.2 * rows[0].convex.loss});
  return facts;
}

std::string document(const std::vector<Row>& rows, const std::vector<Problem>& problems,
                     const std::vector<Fact>& facts) {
  std::ostringstream to;
  to << "# Quality of the codecs\n\nMade by `scripts/quality.sh`. " << kRanks
     << " ranks, no learning rate tuned for any codec, no momentum in the optimizer.\n\n"
     << "Algorithms: `allgather`; `two_shot`; `hierarchical`: two nodes of two ranks, allgather between their leaders; sums: `homomorphic` (`integer_sum` has the same results) for thc, `low_rank` for "
        "powersgd.\n\n"
     << "## Accuracy\n\n- bits: sent per value and rank in the training of the CNN by the first algorithm, headers included.\n";
  const char* what[] = {"final training loss", "test accuracy in %", "test accuracy in %"};
  for (std::size_t p = 0; p < problems.size(); ++p)
    to << "- " << problems[p].name << ": " << what[p] << " after " << problems[p].steps << " steps of "
       << problems[p].batch << " images per rank, rate " << problems[p].rate << " falling to 0 along half a cosine"
       << (problems[p].seeds > 1
               ? "; mean of " + std::to_string(problems[p].seeds) + " seeds, and in brackets how far they are apart"
               : "")
       << ".\n";
  to << "- late: the norm of what all residuals hold at the end of the MLP's training, in norms of its last gradient; by allgather and by two_shot.\n"
     << "- Convex and memories that are not the codec's own: by the first algorithm, one seed.\n"
     << "\n| codec | memory | bits | convex: loss | MLP: allgather | two_shot | hierarchical | sums | CNN: allgather | two_shot | sums | late: allgather | two_shot |\n"
     << "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  const auto cells = [&](const std::vector<std::vector<Result>>& of, std::size_t algorithms) {
    for (std::size_t c = 0; c < algorithms; ++c) to << " | " << accuracy_of(of[c]);
    to << " | " << accuracy_of(of[3].empty() ? of[4] : of[3]);
  };
  for (const Row& r : rows) {
    to << "| `" << setting(r.spec) << "` | " << r.memory << " | " << number("%.2f", r.first(r.cnn)[0].bits) << " | "
       << loss_of(r.convex);
    cells(r.mlp, 3);
    cells(r.cnn, 2);  // what hierarchical does the MLP shows
    const bool keeps = r.memory == "residual" || r.memory == "momentum";
    to << " | " << (keeps ? late_of(r.first(r.mlp)) : "") << " | " << (keeps ? late_of(r.mlp[1]) : "") << " |\n";
  }
  to << "\n## Error of one step\n\nSquared error of the sum, relative to the sum, before any memory has filled. random: ranks share half of their values' energy. real: gradients of the MLP after half of its "
        "training. said: the factor of `crimp info --algorithms`, two_shot over allgather, which is for ranks that share nothing.\n"
     << "\n| codec | random: allgather | two_shot | hierarchical | sums | real: allgather | two_shot | hierarchical | sums | said |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const Row& r : rows) {
    if (!r.usual) continue;
    to << "| `" << setting(r.spec) << "`";
    for (const auto* errors : {&r.random, &r.real}) {
      for (std::size_t c = 0; c < 3; ++c) to << " | " << error_of((*errors)[c]);
      to << " | " << error_of(std::max((*errors)[3], (*errors)[4]));
    }
    to << " | "
       << (r.random[1] < 0 ? "" : number("%.2g", entry_of(Algorithm::two_shot).error(*make_codec(r.spec), kRanks)))
       << " |\n";
  }
  to << "\n## Known facts, reproduced\n\n";
  for (const Fact& f : facts) to << "- " << f.text << (f.holds ? "" : " - NOT REPRODUCED") << ".\n";
  return to.str();
}

}  // namespace

int main(int argc, char** argv) {
  openblas_set_num_threads(1);  // a rank, a core
  Options o;
  tools::CommandLine app("Relative error and convergence of all codecs, as a Markdown table");
  app.option("--data", o.data, "folder of the IDX files");
  app.option("--out", o.out, "file for the table; else it is printed");
  app.option("--codec", o.only, "only codecs whose name begins so, and fp32");
  app.flag("--quick", o.quick, "few steps: does everything run?");
  if (const auto code = app.parse({argv + 1, argv + argc})) return *code;

  std::vector<Problem> problems{
      {"convex (softmax regression, ranks with different classes, full gradients)",
       {{28, 1, 10}},
       2000,
       500,
       300,
       0.02f,
       1e-3f,
       true},
      {"MLP (784-128-10)", {{28, 1, 128}, {1, 1, 10}}, 60000, 32, 500, 0.1f, 0, false, 10000, 3},
      {"CNN (two convolutions, two dense layers)",
       {{5, 2, 16}, {3, 2, 32}, {5, 1, 64}, {1, 1, 10}},
       60000,
       32,
       500,
       0.1f,
       0,
       false},
  };
  if (o.quick)
    for (Problem& p : problems) p.steps = p.by_label ? 40 : 10, p.batch /= 4, p.tests = 400, p.seeds = 1;
  try {
    const Dataset training(o.data + "/train"), test(o.data + "/t10k");
    std::vector<Row> rows;
    const auto start = std::chrono::steady_clock::now();
    const Inputs random = random_values(o.quick ? 20480 : 262144);
    Kept kept{problems[1].steps / 2};
    train(problems[1], *make_codec("fp32"), {Algorithm::allgather}, 1, training, test, &kept);
    const Inputs real{Network(28, problems[1].layers, 1).tensors(), kept.gradients};
    for (const CodecInfo& info : codecs()) {
      if (info.name != "fp32" && !std::string(info.name).starts_with(o.only)) continue;
      for (const auto& codec : settings_of(info)) {
        Row row{codec->spec(),
                name_of(codec->feedback().kind),
                codec->feedback().kind == info.traits.memory,
                {},
                {},
                {},
                {},
                {}};
        const Way first = ways_of(*codec, kRanks).front();
        row.convex = train(problems[0], *codec, first, 1, training, test);
        for (const Way& column : kColumns) {
          const bool can = runs(column, *codec), main = column.algorithm == first.algorithm && column.per_node == 0;
          row.random.push_back(can ? squared_error(*codec, column, random) : -1);
          row.real.push_back(can ? squared_error(*codec, column, real) : -1);
          const auto seeds = [&](const Problem& problem) {
            std::vector<Result> all;
            for (int seed = 1; can && seed <= (row.usual ? (column.per_node ? 1 : problem.seeds)
                                               : main    ? 1
                                                         : 0);
                 ++seed)
              all.push_back(train(problem, *codec, column, static_cast<std::uint64_t>(seed), training, test));
            return all;
          };
          row.mlp.push_back(seeds(problems[1]));
          row.cnn.push_back(column.per_node ? std::vector<Result>{} : seeds(problems[2]));
        }
        std::fprintf(stderr, "%6.1f s  %-44s %-9s error %s %s  convex %s  MLP %s, %s  CNN %s, %s\n",
                     std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), row.spec.c_str(),
                     row.memory.c_str(), error_of(row.random[0]).c_str(), error_of(row.random[1]).c_str(),
                     loss_of(row.convex).c_str(), accuracy_of(row.first(row.mlp)).c_str(),
                     accuracy_of(row.mlp[1]).c_str(), accuracy_of(row.first(row.cnn)).c_str(),
                     accuracy_of(row.cnn[1]).c_str());
        rows.push_back(std::move(row));
      }
    }
    const auto facts = known_facts(rows);
    const std::string text = document(rows, problems, facts);
    if (o.out.empty()) {
      std::fputs(text.c_str(), stdout);
    } else if (!(std::ofstream(o.out) << text)) {
      throw std::runtime_error(o.out + ": cannot be written");
    }
    // Few steps show no convergence.
    return !o.quick && std::any_of(facts.begin(), facts.end(), [](const Fact& f) { return !f.holds; }) ? 1 : 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "crimp_quality: %s\n", e.what());
    return 1;
  }
}
