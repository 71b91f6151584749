// Data-parallel training on Fashion-MNIST with plain MPI: every gradient tensor is summed by one MPI_Allreduce, in the
// same order in every step. The program knows nothing of Crimp; it is what Crimp is preloaded under.
#include <cblas.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <numbers>
#include <numeric>
#include <string>

#include "idx.hpp"
#include "mlp.hpp"

namespace {

struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist", log;
  std::vector<int> hidden{2048, 1792};
  int epochs = 3, batch = 64, train = 0, steps = 0, evaluations = 9;
  double lr = 0.05, momentum = 0.9, warmup = 0.05, time_limit = 0;
  std::uint64_t seed = 1;
  bool exchange = true;
};

struct Dataset {
  Idx images, labels;
  Dataset(const std::string& stem, int limit)
      : images(read_idx(stem + "-images-idx3-ubyte.gz", limit)),
        labels(read_idx(stem + "-labels-idx1-ubyte.gz", limit)) {
    if (images.count != labels.count) throw std::runtime_error(stem + ": as many labels as images expected");
  }
  // Copies one image with mean 0 and variance 1 (over the training set).
  void pixels(int i, float* to) const {
    std::transform(images.item(i), images.item(i) + images.item_bytes, to,
                   [](std::uint8_t p) { return (p / 255.0f - 0.286f) / 0.353f; });
  }
};

// Linear warm-up, then a half cosine down to 0.
double learning_rate(const Options& o, int step, int steps) {
  const double warm = std::max(1.0, o.warmup * steps);
  if (step < warm) return o.lr * (step + 1) / warm;
  return o.lr * 0.5 * (1 + std::cos(std::numbers::pi * (step - warm) / std::max(1.0, steps - warm)));
}

// Correct test images on this rank's part of the test set.
int evaluate(Mlp& mlp, const Dataset& test, int rank, int ranks) {
  constexpr int rows_max = 250;
  std::vector<std::uint8_t> labels(rows_max);
  int correct = 0;
  const int end = int(std::int64_t(test.images.count) * (rank + 1) / ranks);
  for (int first = int(std::int64_t(test.images.count) * rank / ranks); first < end; first += rows_max) {
    const int rows = std::min(rows_max, end - first);
    float* input = mlp.input(rows);
    for (int r = 0; r < rows; ++r) {
      test.pixels(first + r, input + std::size_t(r) * test.images.item_bytes);
      labels[r] = *test.labels.item(first + r);
    }
    mlp.forward(rows);
    correct += mlp.score(labels.data(), rows, 1).correct;
  }
  return correct;
}

std::uint64_t fnv1a(std::span<const float> values) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const std::byte b : std::as_bytes(values)) hash = (hash ^ std::uint64_t(b)) * 0x100000001b3;
  return hash;
}

void train(const Options& o) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const Dataset training(o.data + "/train", o.train), test(o.data + "/t10k", 0);
  std::vector<int> widths{training.images.item_bytes};
  widths.insert(widths.end(), o.hidden.begin(), o.hidden.end());
  widths.push_back(10);
  Mlp mlp(widths, o.seed);

  const int global_batch = o.batch * ranks, epoch_steps = training.images.count / global_batch;
  if (epoch_steps < 1) throw std::runtime_error("fewer training images than one batch over all ranks");
  const int schedule_steps = o.epochs * epoch_steps,
            last = o.steps > 0 ? std::min(o.steps, schedule_steps) : schedule_steps;
  const int every = std::max(1, epoch_steps / std::max(1, o.evaluations));
  std::FILE* log = rank == 0 && !o.log.empty() ? std::fopen(o.log.c_str(), "w") : nullptr;
  if (rank == 0 && !o.log.empty() && !log) throw std::runtime_error(o.log + ": cannot be written");
  if (log) std::fputs("step,wall_s,loss,accuracy\n", log);
  if (rank == 0)
    std::printf("%zu parameters, %d ranks, batch %d, %d steps of %d epochs\n", mlp.weights().size(), ranks,
                global_batch, last, o.epochs);

  std::vector<int> order(std::size_t(training.images.count));
  std::vector<std::uint8_t> labels(std::size_t(o.batch));
  std::vector<double> times;  // seconds per step on this rank
  double wall = 0, loss = 0, accuracy = 0;
  int since = 0;              // steps since the last evaluation
  double said = MPI_Wtime();  // time of the last line of progress
  for (int step = 0; step < last; ++step) {
    const int in_epoch = step % epoch_steps;
    if (in_epoch == 0) {  // the same order on all ranks
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), std::mt19937_64(o.seed * 1000003 + std::uint64_t(step / epoch_steps)));
    }
    const double start = MPI_Wtime();
    float* input = mlp.input(o.batch);
    for (int r = 0; r < o.batch; ++r) {
      const int image = order[std::size_t(in_epoch * global_batch + rank * o.batch + r)];
      training.pixels(image, input + std::size_t(r) * training.images.item_bytes);
      labels[std::size_t(r)] = *training.labels.item(image);
    }
    mlp.forward(o.batch);
    loss += mlp.score(labels.data(), o.batch, 1.0f / float(global_batch)).loss;
    mlp.backward(o.batch, [&](std::span<float> gradient) {
      if (!o.exchange) return;
      MPI_Allreduce(MPI_IN_PLACE, gradient.data(), int(gradient.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    mlp.update(float(learning_rate(o, step, schedule_steps)), float(o.momentum));
    times.push_back(MPI_Wtime() - start);
    wall += times.back();
    ++since;

    if ((step + 1) % every != 0 && step + 1 != last) {
      if (rank == 0 && MPI_Wtime() - said > 5) {
        std::printf("step %5d/%d  %7.1f s  %6.0f ms/step\n", step + 1, last, wall, 1e3 * wall / (step + 1));
        std::fflush(stdout);
        said = MPI_Wtime();
      }
      continue;
    }
    const bool late = rank == 0 && o.time_limit > 0 && wall > o.time_limit;
    double sums[] = {loss, double(evaluate(mlp, test, rank, ranks)), late ? 1.0 : 0.0};
    MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    accuracy = sums[1] / test.images.count;
    if (rank == 0) {
      const double mean = sums[0] / (double(since) * global_batch);
      std::printf("step %5d/%d  %7.1f s  %6.0f ms/step  loss %.4f  test accuracy %.2f %%\n", step + 1, last, wall,
                  1e3 * wall / (step + 1), mean, 100 * accuracy);
      std::fflush(stdout);
      said = MPI_Wtime();
      if (log) std::fprintf(log, "%d,%.4f,%.5f,%.4f\n", step + 1, wall, mean, accuracy), std::fflush(log);
    }
    loss = since = 0;
    if (sums[2] > 0) break;
  }
  if (log) std::fclose(log);

  const std::uint64_t hash = fnv1a(mlp.weights());
  std::vector<std::uint64_t> hashes(std::size_t(ranks), 0);
  MPI_Gather(&hash, 1, MPI_UINT64_T, hashes.data(), 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
  if (rank != 0) return;
  const std::size_t steps = times.size();
  std::nth_element(times.begin(), times.begin() + std::ptrdiff_t(steps / 2), times.end());
  const bool identical = std::all_of(hashes.begin(), hashes.end(), [&](std::uint64_t h) { return h == hash; });
  std::printf(
      "{\"params\": %zu, \"ranks\": %d, \"steps\": %zu, \"step_ms\": %.2f, \"accuracy\": %.4f, \"wall_s\": %.2f, "
      "\"weights_hash\": \"%016" PRIx64 "\", \"identical\": %s}\n",
      mlp.weights().size(), ranks, steps, 1e3 * times[steps / 2], accuracy, wall, hash, identical ? "true" : "false");
}

}  // namespace

int main(int argc, char** argv) {
  openblas_set_num_threads(1);  // one rank, one core
  MPI_Init(&argc, &argv);
  Options o;
  CLI::App app{"Trains a multi-layer perceptron on Fashion-MNIST, data-parallel over MPI"};
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", o.epochs, "passes over the training images")->check(CLI::PositiveNumber);
  app.add_option("--batch", o.batch, "images per rank and step")->check(CLI::PositiveNumber);
  app.add_option("--lr", o.lr, "peak learning rate");
  app.add_option("--momentum", o.momentum, "momentum of SGD");
  app.add_option("--warmup", o.warmup, "part of the steps in which the learning rate rises")
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--seed", o.seed, "of weights and of the order of the images");
  app.add_option("--train", o.train, "use the first N training images only (0: all)");
  app.add_option("--hidden", o.hidden, "widths of the hidden layers")->delimiter(',');
  app.add_option("--steps", o.steps, "stop after N steps of the schedule (0: all)");
  app.add_flag("!--no-exchange", o.exchange,
               "no gradient is summed: every rank trains for itself, and a step takes what it takes without a network");
  app.add_option("--evaluations", o.evaluations, "test runs per epoch; their time is not counted");
  app.add_option("--time-limit", o.time_limit,
                 "stop at the first test run after so many seconds of training (0: never)");
  app.add_option("--log", o.log, "CSV file: step,wall_s,loss,accuracy");
  app.add_option("--data", o.data, "folder of the IDX files");
  int status = 0;
  try {
    app.parse(argc, argv);
    train(o);
  } catch (const CLI::ParseError& e) {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) app.exit(e);
    status = e.get_exit_code();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "fashion_mnist: %s\n", e.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}
