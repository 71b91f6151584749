// Trainings of small networks on Fashion-MNIST whose gradients are summed by one codec and algorithm.
#pragma once
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "../apps/idx.hpp"
#include "network.hpp"
#include "support/sum.hpp"

namespace crimp::test {

struct Problem {
  const char* name;
  std::vector<Network::Layer> layers;
  int images, batch, steps;  // batch: images per rank and step
  float rate, l2;
  bool by_label;      // every rank has images of other classes, and all of them in every step
  int tests = 10000;  // test images
  int seeds = 1;      // of codecs with their usual memory
};

struct Result {
  double loss = 0, accuracy = 0, bits = 0;  // bits: sent per value
  double late = 0;                          // what all memories hold at the end, in norms of the last sum
  bool diverged = false;
};

inline constexpr int kRanks = 4;

struct Dataset {
  Idx images, labels;
  explicit Dataset(const std::string& stem)
      : images(read_idx(stem + "-images-idx3-ubyte.gz")), labels(read_idx(stem + "-labels-idx1-ubyte.gz")) {}
  // Images first, first + 1, ... of `order` with mean 0 and variance 1 (over the training set).
  void batch(const std::vector<int>& order, int first, int rows, float* to,
             std::vector<std::uint8_t>& to_labels) const {
    to_labels.resize(static_cast<std::size_t>(rows));
    for (int r = 0; r < rows; ++r) {
      const int i = order[static_cast<std::size_t>(first + r) % order.size()];
      const std::uint8_t* image = images.item(i);
      for (int p = 0; p < images.item_bytes; ++p) *to++ = (static_cast<float>(image[p]) / 255.0f - 0.286f) / 0.353f;
      to_labels[static_cast<std::size_t>(r)] = *labels.item(i);
    }
  }
};

// Each rank's gradients in one step of a training, for errors on real values.
struct Kept {
  int step = -1;
  std::vector<std::vector<float>> gradients = std::vector<std::vector<float>>(kRanks);
};

inline Result train(const Problem& problem, const Codec& codec, const Way& way, std::uint64_t seed,
                    const Dataset& training, const Dataset& test, Kept* kept = nullptr) {
  std::vector<int> order(static_cast<std::size_t>(std::min(problem.images, training.images.count)));
  std::iota(order.begin(), order.end(), 0);
  if (problem.by_label)
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return *training.labels.item(a) < *training.labels.item(b); });
  std::vector<int> test_order(static_cast<std::size_t>(std::min(problem.tests, test.images.count)));
  std::iota(test_order.begin(), test_order.end(), 0);

  std::vector<Result> results(kRanks);
  Kept last{problem.steps - 1};
  std::vector<std::vector<double>> held(kRanks);
  const auto tensors = Network(28, problem.layers, seed).tensors();
  run_sums(way, kRanks, codec, tensors, [&](int rank, Sum& sum) {
    const auto r = static_cast<std::size_t>(rank);
    Result& mine = results[r];
    Network network(28, problem.layers, seed);
    std::vector<std::uint8_t> labels;
    auto shuffled = order;
    const int global = problem.batch * kRanks, per_epoch = static_cast<int>(order.size()) / global;
    for (int step = 0; step < problem.steps; ++step) {
      if (!problem.by_label && step % per_epoch == 0) {  // the same order on all ranks
        std::mt19937_64 random(static_cast<std::uint64_t>(step) + 6 + seed);
        std::shuffle(shuffled.begin(), shuffled.end(), random);
      }
      const int first = problem.by_label ? rank * problem.batch : step % per_epoch * global + rank * problem.batch;
      training.batch(shuffled, first, problem.batch, network.input(problem.batch), labels);
      network.forward(problem.batch);
      network.score(labels.data(), problem.batch, 1.0f / static_cast<float>(problem.batch));
      network.backward(problem.batch);
      for (Kept* of : {&last, kept})
        if (of && of->step == step) of->gradients[r] = network.gradients();
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
    held[r].resize(network.weights().size());
    sum.add_held(held[r].data());
    // The loss over this rank's training images, or the accuracy on its part of the test images.
    const Dataset& data = problem.by_label ? training : test;
    const auto& indices = problem.by_label ? order : test_order;
    const int begin = static_cast<int>(indices.size()) * rank / kRanks,
              end = static_cast<int>(indices.size()) * (rank + 1) / kRanks;
    for (int at = begin; at < end; at += 250) {
      const int rows = std::min(250, end - at);
      data.batch(indices, at, rows, network.input(rows), labels);
      network.forward(rows);
      const auto score = network.score(labels.data(), rows, 1);
      mine.loss += score.loss / static_cast<double>(indices.size());
      mine.accuracy += static_cast<double>(score.correct) / static_cast<double>(indices.size());
    }
    if (rank == 0)
      for (const float x : network.weights()) mine.loss += 0.5 * static_cast<double>(problem.l2 * x * x);
  });
  Result all = results[0];
  for (int r = 1; r < kRanks; ++r) {
    all.loss += results[static_cast<std::size_t>(r)].loss;
    all.accuracy += results[static_cast<std::size_t>(r)].accuracy;
  }
  all.diverged = all.diverged || !std::isfinite(all.loss);
  if (all.diverged) return all;
  double waiting = 0, energy = 0;
  for (std::size_t i = 0; i < held[0].size(); ++i) {
    double of = 0, sum = 0;
    for (std::size_t r = 0; r < kRanks; ++r) of += held[r][i], sum += static_cast<double>(last.gradients[r][i]);
    waiting += of * of;
    energy += sum * sum;
  }
  all.late = std::sqrt(waiting / energy);
  return all;
}

}  // namespace crimp::test
