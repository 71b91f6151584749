// A multi-layer perceptron (ReLU, softmax cross-entropy) in fp32, trained by SGD with momentum. No communication in
// here.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

class Mlp {
 public:
  struct Score {
    double loss = 0;  // sum over the rows
    int correct = 0;
  };

  // widths: inputs, hidden layers ..., classes. Equal seeds give equal weights everywhere.
  Mlp(std::vector<int> widths, std::uint64_t seed)
      : widths_(std::move(widths)), activations_(widths_.size()), deltas_(widths_.size()) {
    for (std::size_t l = 0; l + 1 < widths_.size(); ++l) {
      layers_.push_back({parameters_, parameters_ + std::size_t(widths_[l]) * widths_[l + 1]});
      parameters_ = layers_.back().bias + widths_[l + 1];
    }
    weights_.resize(parameters_);
    gradients_.resize(parameters_);
    velocity_.resize(parameters_);
    std::mt19937_64 random(seed);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      std::normal_distribution<float> he(0.0f, std::sqrt(2.0f / float(widths_[l])));
      std::generate(&weights_[layers_[l].matrix], &weights_[layers_[l].bias], [&] { return he(random); });
    }
  }

  std::span<const float> weights() const { return weights_; }

  // Where the caller puts `rows` inputs before forward().
  float* input(int rows) { return grow(activations_[0], rows * widths_[0]); }

  void forward(int rows) {
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const int in = widths_[l], out = widths_[l + 1];
      float* y = grow(activations_[l + 1], rows * out);
      const float* bias = &weights_[layers_[l].bias];
      for (int r = 0; r < rows; ++r) std::copy_n(bias, out, y + std::size_t(r) * out);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, out, in, 1, activations_[l].data(), in,
                  &weights_[layers_[l].matrix], out, 1, y, out);
      if (l + 1 < layers_.size())
        for (float* v = y; v != y + std::size_t(rows) * out; ++v) *v = std::max(*v, 0.0f);
    }
  }

  // Scores the logits of forward() and leaves scale * d(sum of losses)/d(logits) for backward().
  Score score(const std::uint8_t* labels, int rows, float scale) {
    Score score;
    const int classes = widths_.back();
    float* delta = grow(deltas_.back(), rows * classes);
    for (int r = 0; r < rows; ++r, delta += classes) {
      const float* z = activations_.back().data() + std::size_t(r) * classes;
      const float* top = std::max_element(z, z + classes);
      double sum = 0;
      for (int c = 0; c < classes; ++c) sum += delta[c] = std::exp(z[c] - *top);
      for (int c = 0; c < classes; ++c) delta[c] = scale * (delta[c] / float(sum) - (c == labels[r] ? 1.0f : 0.0f));
      score.loss += std::log(sum) - double(z[labels[r]] - *top);
      score.correct += top - z == labels[r];
    }
    return score;
  }

  // Calls reduce(std::span<float>) for every gradient tensor as soon as it is known: last layer first, matrix before
  // bias.
  template <class Reduce>
  void backward(int rows, Reduce&& reduce) {
    for (std::size_t l = layers_.size(); l-- > 0;) {
      const int in = widths_[l], out = widths_[l + 1];
      const float* delta = deltas_[l + 1].data();
      const std::span matrix(&gradients_[layers_[l].matrix], std::size_t(in) * out),
          bias(&gradients_[layers_[l].bias], std::size_t(out));
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, in, out, rows, 1, activations_[l].data(), in, delta, out, 0,
                  matrix.data(), out);
      std::fill(bias.begin(), bias.end(), 0.0f);
      for (int r = 0; r < rows; ++r)
        for (int o = 0; o < out; ++o) bias[o] += delta[std::size_t(r) * out + o];
      if (l > 0) {
        float* before = grow(deltas_[l], rows * in);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, in, out, 1, delta, out, &weights_[layers_[l].matrix],
                    out, 0, before, in);
        for (std::size_t i = 0; i < std::size_t(rows) * in; ++i) before[i] = activations_[l][i] > 0 ? before[i] : 0.0f;
      }
      reduce(matrix);
      reduce(bias);
    }
  }

  void update(float rate, float momentum) {
    for (std::size_t i = 0; i < parameters_; ++i) {
      velocity_[i] = momentum * velocity_[i] + gradients_[i];
      weights_[i] -= rate * velocity_[i];
    }
  }

 private:
  struct Layer {
    std::size_t matrix, bias;  // offsets into weights_, gradients_, velocity_
  };

  static float* grow(std::vector<float>& buffer, int floats) {
    if (buffer.size() < std::size_t(floats)) buffer.resize(std::size_t(floats));
    return buffer.data();
  }

  std::vector<int> widths_;
  std::vector<Layer> layers_;
  std::size_t parameters_ = 0;
  std::vector<float> weights_, gradients_, velocity_;
  std::vector<std::vector<float>> activations_, deltas_;  // rows x width, one per level
};
