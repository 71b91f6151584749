// Codec texts: "name:key=value,key=value".
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codec/codec.hpp"

namespace crimp {

// The values of one codec text. Every failure throws Error{codec_unknown} that names the text, the value and what is
// legal.
class SpecValues {
 public:
  // Throws on a key that the codec does not have, and on a value that its row does not allow.
  SpecValues(std::string_view text, const CodecInfo& info);
  // The value in the text, or the row's default. Throws where the codec has no such parameter.
  template <class T>
  T operator[](const Parameter<T>& row) const {
    return static_cast<T>(value(row));
  }
  FeedbackPolicy feedback(const Codec::Traits&) const;
  // The codec's own parameters and the memory where it is not the codec's default, all values in their shortest form.
  std::string canonical(const Codec::Traits&) const;
  // The codec's own parameters.
  std::vector<std::pair<std::string_view, double>> own() const;
  // For what a row cannot say.
  [[noreturn]] void refuse(const CodecParameter&, std::string_view legal) const;
  [[noreturn]] void refuse(const CodecParameter& row) const { refuse(row, legal_text(row)); }

 private:
  double value(const CodecParameter&) const;
  double read(const CodecParameter&) const;

  std::string text_;
  const CodecInfo& info_;
  std::map<std::string, std::string, std::less<>> given_;
  std::map<std::string_view, double> values_;
};

// What every codec's text may hold besides its own parameters. The default of `memory` is the codec's.
inline constexpr std::string_view kMemoryWords[] = {"none", "residual", "momentum", "average"};
inline constexpr Parameter<FeedbackKind> kMemory{
    {.key = "memory", .words = kMemoryWords, .help = "what is kept of a gradient for later calls"}};
inline constexpr Parameter<float> kDecay{
    {.key = "decay", .default_value = 1, .least = 0, .most = 1, .above_least = true, .help = "weight of the residual"}};
inline constexpr Parameter<float> kGamma{
    {.key = "gamma",
     .default_value = 1,
     .least = 0,
     .most = 1,
     .above_least = true,
     .help = "weight of the gradient beside the residual; the result is so many times the sum"}};
inline constexpr Parameter<float> kMomentum{{.key = "momentum",
                                             .default_value = 0.9,
                                             .least = 0,
                                             .most = 1,
                                             .below_most = true,
                                             .help = "of the memories momentum and average"}};
inline constexpr auto kNesterov = flag_parameter("nesterov", false, "Nesterov's momentum, of the memory momentum");
inline constexpr auto kForce =
    flag_parameter("force", false, "1 allows a memory with which the codec is known to diverge");
std::span<const CodecParameter> common_parameters();  // these
// Of codecs whose default memory is momentum, one of their own.
inline constexpr Parameter<float> kClip{
    {.key = "clip",
     .default_value = 0,
     .least = 0,
     .most = 0x1p100,
     .help =
         "most of the Euclidean norm of a tensor's sum over the ranks: each rank's gradient is scaled to a norm of at most clip / sqrt(ranks) before it is accumulated "
         "(section 3.2; of each tensor, because no call sees all of them); 0: no clipping"}};

}  // namespace crimp
