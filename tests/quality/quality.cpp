// What compression costs in accuracy: every codec of the registry at its default and at one other setting, with and without error feedback.
//
//   error    relative error of the mean after one step: 8 ranks, each with a common gradient plus noise of its own, of the same size
//   convex   softmax regression, full gradients, every rank with images of other classes: the final training loss
//   MLP, CNN stochastic gradient descent on Fashion-MNIST: test accuracy
//
// Ranks are threads; the sums come from Crimp's collectives. No learning rate is tuned for any codec, the optimizer has no momentum of its own.
#include <CLI/CLI.hpp>
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

#include "../apps/idx.hpp"
#include "backend/workers.hpp"
#include "comm/algorithms.hpp"
#include "core/convert.hpp"
#include "crimp/collective.hpp"
#include "network.hpp"
#include "support/data.hpp"
#include "support/thread_transport.hpp"

using namespace crimp;
using namespace crimp::test;

namespace {

// The setting besides the default, where the codec has one worth knowing.
const std::map<std::string, std::string>& other_settings() {
  static const std::map<std::string, std::string> all{
      {"3lc", "3lc:s=1.75"},        {"qsgd", "qsgd:s=4"},          {"terngrad", "terngrad:clip=1e6"}, {"inceptionn", "inceptionn:log2_bound=-6"},
      {"maxmin", "maxmin:bits=2"},  {"sketchml", "sketchml:quantiles=8"}, {"adaq", "adaq:ratio=0.1"}, {"topk", "topk:ratio=0.1"},
      {"randomk", "randomk:ratio=0.1"}, {"threshold", "threshold:v=0.001"}, {"dgc", "dgc:ratio=0.1"}, {"sidco", "sidco:ratio=0.1"},
      {"thc", "thc:bits=2,g=3"},    {"powersgd", "powersgd:r=4"},
      {"fp8", "fp8:format=e5m2"},    {"signum", "signum:momentum=0.5"},
  };
  return all;
}

struct Problem {
  const char* name;
  std::vector<Network::Layer> layers;
  int images, batch, steps;  // batch: images per rank and step
  float rate, l2;
  bool by_label;  // every rank has images of other classes, and all of them in every step
};

struct Result {
  double loss = 0, accuracy = 0, bits = 0;  // bits: sent per value
  bool diverged = false;
};

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist", out, only;
  bool quick = false;
};

constexpr int kRanks = 4;

// One rank's side of the sums of one buffer, step after step, with its memory.
class Sum {
 public:
  Sum(Transport& transport, const Codec& codec, const std::vector<std::size_t>& tensors) : transport_(transport), codec_(codec) {
    std::uint64_t at = 0;
    for (const std::size_t n : tensors) {
      layout_.segments.push_back({"tensor." + std::to_string(layout_.segments.size()), at, n});
      if (codec.memory().kept()) memories_.emplace_back(codec.memory_elements(n));
      at += n;
    }
    layout_.source = Layout::Source::named;
    call_.count = at;
    call_.codec = &codec;
    call_.layout = &layout_;
    call_.algorithm = first_algorithm(codec, transport.size());
    call_.chunk = round_up(at, kPieceElements);
    for (auto& m : memories_) call_.residuals.push_back(m.data());
    arena_.reserve(arena_bytes(call_, transport.size()));
  }
  // Sums in place; false on all ranks where a rank's values left the codec's range, or its payloads the format.
  bool operator()(float* values) {
    call_.in = call_.out = values;
    call_.flags = magnitude(Dtype::f32, values, call_.count) <= static_cast<double>(codec_.traits().max_magnitude) ? std::uint8_t{0} : std::uint8_t{kFlagExact};
    arena_.reset();
    const CollectiveResult result = allreduce_compressed(transport_, &arena_, workers_, call_);
    ++call_.sequence;
    sent_ += result.sent_bytes;
    return !result.flags && !result.error;
  }
  double bits() const { return 8.0 * static_cast<double>(sent_) / (static_cast<double>(call_.count) * call_.sequence); }

 private:
  Transport& transport_;
  const Codec& codec_;
  Layout layout_;
  CollectiveCall call_{};
  std::vector<std::vector<float>> memories_;
  Arena arena_;
  Workers workers_{1};
  std::uint64_t sent_ = 0;
};

struct Dataset {
  Idx images, labels;
  explicit Dataset(const std::string& stem) : images(read_idx(stem + "-images-idx3-ubyte.gz")), labels(read_idx(stem + "-labels-idx1-ubyte.gz")) {}
  // Images first, first + 1, ... of `order` with mean 0 and variance 1 (over the training set).
  void batch(const std::vector<int>& order, int first, int rows, float* to, std::vector<std::uint8_t>& to_labels) const {
    to_labels.resize(static_cast<std::size_t>(rows));
    for (int r = 0; r < rows; ++r) {
      const int i = order[static_cast<std::size_t>(first + r) % order.size()];
      const std::uint8_t* image = images.item(i);
      for (int p = 0; p < images.item_bytes; ++p) *to++ = (static_cast<float>(image[p]) / 255.0f - 0.286f) / 0.353f;
      to_labels[static_cast<std::size_t>(r)] = *labels.item(i);
    }
  }
};

Result train(const Problem& problem, const Codec& codec, const Dataset& training, const Dataset& test) {
  std::vector<int> order(static_cast<std::size_t>(std::min(problem.images, training.images.count)));
  std::iota(order.begin(), order.end(), 0);
  if (problem.by_label)
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return *training.labels.item(a) < *training.labels.item(b); });
  std::vector<int> test_order(static_cast<std::size_t>(test.images.count));
  std::iota(test_order.begin(), test_order.end(), 0);

  std::vector<Result> results(kRanks);
  run_ranks(kRanks, [&](ThreadTransport& transport) {
    Result& mine = results[static_cast<std::size_t>(transport.rank())];
    Network network(28, problem.layers, 1);
    Sum sum(transport, codec, network.tensors());
    std::vector<std::uint8_t> labels;
    auto shuffled = order;
    const int global = problem.batch * kRanks, per_epoch = static_cast<int>(order.size()) / global;
    for (int step = 0; step < problem.steps; ++step) {
      if (!problem.by_label && step % per_epoch == 0) {  // the same order on all ranks
        std::mt19937_64 random(static_cast<std::uint64_t>(step) + 7);
        std::shuffle(shuffled.begin(), shuffled.end(), random);
      }
      const int first = problem.by_label ? transport.rank() * problem.batch : step % per_epoch * global + transport.rank() * problem.batch;
      training.batch(shuffled, first, problem.batch, network.input(problem.batch), labels);
      network.forward(problem.batch);
      network.score(labels.data(), problem.batch, 1.0f / static_cast<float>(problem.batch));
      network.backward(problem.batch);
      if (!sum(network.gradients().data())) {
        mine.diverged = true;
        return;
      }
      const double angle = std::numbers::pi * step / problem.steps;
      const float rate = problem.rate * 0.5f * (1.0f + static_cast<float>(std::cos(angle)));
      auto& w = network.weights();
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * (network.gradients()[i] / kRanks + problem.l2 * w[i]);
    }
    mine.bits = sum.bits();
    // The loss over this rank's training images, or the accuracy on its part of the test images.
    const Dataset& data = problem.by_label ? training : test;
    const auto& indices = problem.by_label ? order : test_order;
    const int begin = static_cast<int>(indices.size()) * transport.rank() / kRanks, end = static_cast<int>(indices.size()) * (transport.rank() + 1) / kRanks;
    for (int at = begin; at < end; at += 250) {
      const int rows = std::min(250, end - at);
      data.batch(indices, at, rows, network.input(rows), labels);
      network.forward(rows);
      const auto score = network.score(labels.data(), rows, 1);
      mine.loss += score.loss / static_cast<double>(indices.size());
      mine.accuracy += static_cast<double>(score.correct) / static_cast<double>(indices.size());
    }
    if (transport.rank() == 0)
      for (const float x : network.weights()) mine.loss += 0.5 * static_cast<double>(problem.l2 * x * x);
  });
  Result all = results[0];
  for (int r = 1; r < kRanks; ++r) {
    all.loss += results[static_cast<std::size_t>(r)].loss;
    all.accuracy += results[static_cast<std::size_t>(r)].accuracy;
  }
  all.diverged = all.diverged || !std::isfinite(all.loss);
  return all;
}

// |mean of what is decoded - mean| / |mean| after one step of 8 ranks.
double error_of_the_mean(const Codec& codec, std::size_t count) {
  constexpr std::size_t ranks = 8;
  constexpr float kSize = 0x1p-7f;  // as gradients are
  const auto common = make_data(Data::laplace, 77, count);
  std::vector<std::vector<float>> values(ranks);
  std::vector<double> exact(count);
  for (std::size_t r = 0; r < ranks; ++r) {
    values[r] = make_data(Data::laplace, 100 + r, count);
    for (std::size_t i = 0; i < count; ++i) exact[i] += static_cast<double>(values[r][i] = kSize * (values[r][i] + common[i]));
  }
  run_ranks(static_cast<int>(ranks), [&](ThreadTransport& transport) { Sum(transport, codec, {count})(values[static_cast<std::size_t>(transport.rank())].data()); });
  double off = 0, all = 0;
  for (std::size_t i = 0; i < count; ++i) {
    off += std::pow(static_cast<double>(values[0][i]) - exact[i], 2);
    all += exact[i] * exact[i];
  }
  return std::sqrt(off / all);
}

struct Row {
  std::string spec, memory;
  double error = 0;
  Result convex, mlp, cnn;
};

// A codec's settings, each with the memories that make sense for it.
std::vector<std::shared_ptr<const Codec>> settings_of(const CodecInfo& info) {
  std::vector<std::string> specs{std::string(info.name)};
  if (const auto it = other_settings().find(specs[0]); it != other_settings().end()) specs.push_back(it->second);
  std::vector<std::shared_ptr<const Codec>> all;
  const bool cast = info.traits.wire_id <= 3;
  for (const std::string& spec : specs) {
    all.push_back(make_codec(spec));
    if (cast || info.traits.memory == MemoryKind::average) continue;
    const std::string memory = info.traits.memory != MemoryKind::none         ? "memory=none"
                               : info.traits.diverges_with_residual ? "memory=residual,force=1"
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
std::string accuracy_of(const Result& r) { return r.diverged ? "diverged" : number("%.1f", 100 * r.accuracy); }

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
        if (with.spec.starts_with(codec) && with.memory == "residual" && without.memory == "none" && setting(with.spec) == setting(without.spec)) say(with, without);
  };
  const auto figures = [](const Row& with, const Row& without) {
    return ": convex " + loss_of(with.convex) + " with, " + loss_of(without.convex) + " without; MLP " + accuracy_of(with.mlp) + " and " +
           accuracy_of(without.mlp) + "; CNN " + accuracy_of(with.cnn) + " and " + accuracy_of(without.cnn);
  };
  const auto score = [](const Result& r) { return r.diverged ? 0.0 : r.accuracy; };
  for (const char* codec : {"topk", "randomk"})
    pairs(codec, [&](const Row& with, const Row& without) {
      facts.push_back({"Error feedback rescues `" + setting(with.spec) + "`" + figures(with, without),
                       with.convex.loss < without.convex.loss && score(with.mlp) + score(with.cnn) > score(without.mlp) + score(without.cnn) + 0.01});
    });
  pairs("qsgd:s=4", [&](const Row& with, const Row& without) {
    facts.push_back({"Error feedback spoils `" + setting(with.spec) + "`" + figures(with, without),
                     with.convex.diverged || with.convex.loss > 1.2 * without.convex.loss || score(with.mlp) < score(without.mlp) - 0.1});
  });
  for (const Row& row : rows)
    if (row.spec.starts_with("signsgd") && row.memory == "none")
      facts.push_back({"SignSGD does not converge at the others' learning rate: convex " + loss_of(row.convex) + " (exact " + loss_of(rows[0].convex) + "), CNN " +
                           accuracy_of(row.cnn) + " (" + accuracy_of(rows[0].cnn) + ")",
                       row.convex.diverged || row.convex.loss > 1.2 * rows[0].convex.loss});
  return facts;
}

std::string document(const std::vector<Row>& rows, const std::vector<Problem>& problems, const std::vector<Fact>& facts) {
  std::ostringstream to;
  to << "# Quality of the codecs\n\nMade by `scripts/quality.sh`. " << kRanks << " ranks, no learning rate tuned for any codec, no momentum in the optimizer.\n\n"
     << "- bits: sent per value and rank in the training of the CNN, headers included.\n"
     << "- error: of the mean of 8 ranks after one step, relative to the mean; the ranks share a gradient and add noise of the same size.\n";
  const char* what[] = {"final training loss", "test accuracy in %", "test accuracy in %"};
  for (std::size_t p = 0; p < problems.size(); ++p)
    to << "- " << problems[p].name << ": " << what[p] << " after " << problems[p].steps << " steps of " << problems[p].batch << " images per rank, rate "
       << problems[p].rate << " falling to 0 along half a cosine.\n";
  to << "\n| codec | memory | bits | error | convex: loss | MLP: % | CNN: % |\n|---|---|---:|---:|---:|---:|---:|\n";
  for (const Row& r : rows)
    to << "| `" << setting(r.spec) << "` | " << r.memory << " | " << number("%.2f", r.cnn.bits) << " | " << number(r.error < 0.01 ? "%.1e" : "%.3f", r.error)
       << " | " << loss_of(r.convex) << " | " << accuracy_of(r.mlp) << " | " << accuracy_of(r.cnn) << " |\n";
  to << "\n## Known facts, reproduced\n\n";
  for (const Fact& f : facts) to << "- " << f.text << (f.holds ? "" : " - NOT REPRODUCED") << ".\n";
  return to.str();
}

}  // namespace

int main(int argc, char** argv) {
  openblas_set_num_threads(1);  // a rank, a core
  Options o;
  CLI::App app{"Relative error and convergence of all codecs, as a Markdown table"};
  app.add_option("--data", o.data, "folder of the IDX files");
  app.add_option("--out", o.out, "file for the table; else it is printed");
  app.add_option("--codec", o.only, "only codecs whose name begins so, and none");
  app.add_flag("--quick", o.quick, "few steps: does everything run?");
  CLI11_PARSE(app, argc, argv);

  std::vector<Problem> problems{
      {"convex (softmax regression, ranks with different classes, full gradients)", {{28, 1, 10}}, 2000, 500, 300, 0.02f, 1e-3f, true},
      {"MLP (784-128-10)", {{28, 1, 128}, {1, 1, 10}}, 60000, 32, 1000, 0.1f, 0, false},
      {"CNN (two convolutions, two dense layers)", {{5, 2, 16}, {3, 2, 32}, {5, 1, 64}, {1, 1, 10}}, 60000, 32, 1000, 0.1f, 0, false},
  };
  if (o.quick)
    for (Problem& p : problems) p.steps = p.by_label ? 40 : 10, p.batch /= 4;
  try {
    const Dataset training(o.data + "/train"), test(o.data + "/t10k");
    std::vector<Row> rows;
    const auto start = std::chrono::steady_clock::now();
    for (const CodecInfo& info : codecs()) {
      if (info.name != "none" && !std::string(info.name).starts_with(o.only)) continue;
      for (const auto& codec : settings_of(info)) {
        Row row{codec->spec(), name_of(codec->memory().kind), error_of_the_mean(*codec, o.quick ? 20480 : 262144), {}, {}, {}};
        Result* const results[] = {&row.convex, &row.mlp, &row.cnn};
        for (std::size_t p = 0; p < problems.size(); ++p) *results[p] = train(problems[p], *codec, training, test);
        std::fprintf(stderr, "%6.1f s  %-44s %-9s error %.3g  convex %s  MLP %s  CNN %s\n",
                     std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), row.spec.c_str(), row.memory.c_str(), row.error,
                     loss_of(row.convex).c_str(), accuracy_of(row.mlp).c_str(), accuracy_of(row.cnn).c_str());
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
