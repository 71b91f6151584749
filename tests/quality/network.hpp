// Small convolutional networks in fp32 (ReLU, softmax cross-entropy). A layer is a convolution without padding by
// im2col and one matrix product; a kernel as large as its input makes it a dense layer, a network of one such layer a
// softmax regression. No communication in here.
//
// Images lie as rows x height x width x channels.
#pragma once

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

class Network {
 public:
  struct Layer {
    int kernel, stride, channels;  // channels: outputs per place
  };
  struct Score {
    double loss = 0;  // sum over the rows
    int correct = 0;
  };

  // side: height and width of the inputs, which have one channel. Equal seeds give equal weights everywhere.
  Network(int side, const std::vector<Layer>& layers, std::uint64_t seed) {
    int in = side, channels = 1;
    std::mt19937_64 random(seed);
    for (const Layer& l : layers) {
      Stage s{
          in, channels, l.kernel, l.stride, (in - l.kernel) / l.stride + 1, l.channels, l.kernel * l.kernel * channels,
          0,  0};
      s.matrix = weights_.size();
      s.bias = s.matrix + static_cast<std::size_t>(s.patch) * static_cast<std::size_t>(s.out_channels);
      tensors_.push_back(s.bias - s.matrix);
      tensors_.push_back(static_cast<std::size_t>(s.out_channels));
      weights_.resize(s.bias + tensors_.back());
      std::normal_distribution<float> he(0.0f, std::sqrt(2.0f / static_cast<float>(s.patch)));
      const bool zero = layers.size() == 1;  // a regression starts at zero
      for (std::size_t i = s.matrix; i < s.bias; ++i) weights_[i] = zero ? 0.0f : he(random);
      stages_.push_back(s);
      in = s.out;
      channels = s.out_channels;
    }
    gradients_.resize(weights_.size());
    values_.resize(stages_.size() + 1);
    columns_.resize(stages_.size());
    deltas_.resize(stages_.size() + 1);
  }

  std::vector<float>& weights() { return weights_; }
  std::vector<float>& gradients() { return gradients_; }
  const std::vector<std::size_t>& tensors() const { return tensors_; }  // their elements, in order

  // Where the caller puts `rows` inputs before forward().
  float* input(int rows) { return room(values_[0], rows, stages_[0].in * stages_[0].in); }

  void forward(int rows) {
    for (std::size_t l = 0; l < stages_.size(); ++l) {
      const Stage& s = stages_[l];
      const int places = rows * s.out * s.out;
      const float* x = values_[l].data();
      if (s.kernel < s.in) {
        float* to = room(columns_[l], places, s.patch);
        patches(s, rows, [&](std::size_t from, std::size_t n) {
          std::copy_n(x + from, n, to);
          to += n;
        });
        x = columns_[l].data();
      }
      float* y = room(values_[l + 1], places, s.out_channels);
      for (int p = 0; p < places; ++p)
        std::copy_n(&weights_[s.bias], s.out_channels, y + static_cast<std::ptrdiff_t>(p) * s.out_channels);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, places, s.out_channels, s.patch, 1, x, s.patch,
                  &weights_[s.matrix], s.out_channels, 1, y, s.out_channels);
      if (l + 1 < stages_.size())
        for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(places) * s.out_channels; ++i)
          y[i] = std::max(y[i], 0.0f);
    }
  }

  // Scores the logits of forward() and leaves scale * d(sum of losses)/d(logits) for backward().
  Score score(const std::uint8_t* labels, int rows, float scale) {
    Score score;
    const int classes = stages_.back().out_channels;
    float* delta = room(deltas_.back(), rows, classes);
    for (int r = 0; r < rows; ++r, delta += classes) {
      const float* z = values_.back().data() + static_cast<std::ptrdiff_t>(r) * classes;
      const float* top = std::max_element(z, z + classes);
      double sum = 0;
      for (int c = 0; c < classes; ++c) sum += static_cast<double>(delta[c] = std::exp(z[c] - *top));
      for (int c = 0; c < classes; ++c)
        delta[c] = scale * (delta[c] / static_cast<float>(sum) - (c == labels[r] ? 1.0f : 0.0f));
      score.loss += std::log(sum) - static_cast<double>(z[labels[r]] - *top);
      score.correct += top - z == labels[r];
    }
    return score;
  }

  // Fills gradients().
  void backward(int rows) {
    for (std::size_t l = stages_.size(); l-- > 0;) {
      const Stage& s = stages_[l];
      const int places = rows * s.out * s.out;
      const float* x = s.kernel < s.in ? columns_[l].data() : values_[l].data();
      const float* delta = deltas_[l + 1].data();
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, s.patch, s.out_channels, places, 1, x, s.patch, delta,
                  s.out_channels, 0, &gradients_[s.matrix], s.out_channels);
      std::fill_n(&gradients_[s.bias], s.out_channels, 0.0f);
      for (int p = 0; p < places; ++p)
        for (int c = 0; c < s.out_channels; ++c)
          gradients_[s.bias + static_cast<std::size_t>(c)] +=
              delta[static_cast<std::ptrdiff_t>(p) * s.out_channels + c];
      if (l == 0) break;
      const int inputs = s.in * s.in * s.channels;
      float* before = room(deltas_[l], rows, inputs);
      float* by_column = s.kernel < s.in ? room(columns_[l], places, s.patch) : before;
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, places, s.patch, s.out_channels, 1, delta, s.out_channels,
                  &weights_[s.matrix], s.out_channels, 0, by_column, s.patch);
      if (s.kernel < s.in) {
        std::fill_n(before, static_cast<std::ptrdiff_t>(rows) * inputs, 0.0f);
        patches(s, rows, [&](std::size_t to, std::size_t n) {
          for (std::size_t i = 0; i < n; ++i) before[to + i] += by_column[i];
          by_column += n;
        });
      }
      for (std::ptrdiff_t i = 0; i < static_cast<std::ptrdiff_t>(rows) * inputs; ++i)
        if (!(values_[l][static_cast<std::size_t>(i)] > 0)) before[i] = 0.0f;
    }
  }

 private:
  struct Stage {
    int in, channels, kernel, stride, out, out_channels, patch;
    std::size_t matrix, bias;  // offsets into weights_ and gradients_
  };

  static float* room(std::vector<float>& buffer, int rows, int width) {
    const auto floats = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
    if (buffer.size() < floats) buffer.resize(floats);
    return buffer.data();
  }

  // fn(offset, n) for every contiguous run of every patch, in the order of the columns.
  template <class Fn>
  static void patches(const Stage& s, int rows, Fn&& fn) {
    const auto width = static_cast<std::size_t>(s.in * s.channels),
               run = static_cast<std::size_t>(s.kernel * s.channels);
    for (int row = 0; row < rows; ++row)
      for (int y = 0; y < s.out; ++y)
        for (int x = 0; x < s.out; ++x)
          for (int k = 0; k < s.kernel; ++k)
            fn((static_cast<std::size_t>(row) * static_cast<std::size_t>(s.in) +
                static_cast<std::size_t>(y * s.stride + k)) *
                       width +
                   static_cast<std::size_t>(x * s.stride * s.channels),
               run);
  }

  std::vector<Stage> stages_;
  std::vector<std::size_t> tensors_;
  std::vector<float> weights_, gradients_;
  std::vector<std::vector<float>> values_, columns_, deltas_;  // per level: rows x width
};
