// What was done with each tensor that is known by a name: the first ones that come, up to a bound; of the others calls
// are counted.
#pragma once
#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace crimp {

// Not thread-safe.
class TensorLog {
 public:
  static constexpr std::size_t kListed = 512;  // tensors
  static constexpr std::size_t kCodecs = 8;    // of a tensor, that are told apart; the last one counts the others
  static constexpr std::size_t kSamples = 32;  // of a tensor's residual

  // Whether one is taken in the call behind so many of the tensor's: in calls 1, 2, 4, 8 and so on. Where they are no
  // longer counted none is.
  static constexpr bool samples(std::uint32_t calls) {
    return calls < ~std::uint32_t{0} && std::has_single_bit(calls + 1);
  }
  // How much the codec has left of a tensor so far, and how much came: Euclidean norms of this rank's values.
  struct Sample {
    std::uint64_t call;  // of the tensor, from 1
    double at_s;         // since the job's origin
    double norm;         // of the residual (or momentum) behind the call
    double values_norm;  // of the gradients that the call brought
  };
  struct Tensor {
    const char* source;  // who named it: name_of(Layout::Source)
    std::uint64_t elements = 0, calls = 0;
    double bytes_in = 0, sent_bytes = 0;  // of calls of several tensors shared out by elements
    struct Codec {
      std::string spec;
      std::uint64_t calls;
    };
    std::vector<Codec> codecs;
    const char* memory = "";  // the kind of feedback, by its name; empty: nothing was sampled
    std::vector<Sample> samples;
  };

  // A call brought it. Throws std::bad_alloc, and then it is counted in part at most.
  void called(std::string_view name, const char* source, std::uint64_t elements, std::string_view codec,
              double bytes_in, double sent_bytes);
  // Of a tensor that called() was told of; else nothing. Beyond kSamples the last one is replaced.
  void sampled(std::string_view name, const char* memory, const Sample&);

  const auto& tensors() const { return tensors_; }
  std::uint64_t unlisted_calls() const { return unlisted_calls_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
  };
  std::unordered_map<std::string, Tensor, Hash, std::equal_to<>> tensors_;
  std::uint64_t unlisted_calls_ = 0;
};

}  // namespace crimp
