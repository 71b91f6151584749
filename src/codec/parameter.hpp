// A codec's parameter is one row, in the header that its host code and its kernels share. Texts are read and refused by
// the row, the canonical text and the documentation are written from it, and host code and kernels ask for its value by
// it: a misspelt key does not compile.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace crimp {

struct CodecParameter {
  std::string_view key = {};
  double default_value = 0;  // where there are words: the index of one
  double least = 0, most = 0;
  bool above_least = false, below_most = false;  // the bound itself is not legal
  double step = 0;                               // legal are its multiples (1: whole numbers); 0: any float32
  std::span<const std::string_view> words = {};  // legal is one of these, there is no range
  std::string_view also = {};                    // what else is asked of a value: the codec checks it
  std::string_view help = {};
};

// T: what host code and kernels read it as. Of words an enum with their order, or bool of 0 and 1.
template <class T>
struct Parameter : CodecParameter {};

inline constexpr std::string_view kFlagWords[] = {"0", "1"};
constexpr Parameter<bool> flag_parameter(std::string_view key, bool default_value, std::string_view help) {
  return {{.key = key, .default_value = default_value ? 1.0 : 0.0, .words = kFlagWords, .help = help}};
}

// "0.25 <= s < 2", "a whole number, 1 to 8", "piece or tensor".
std::string legal_text(const CodecParameter&);
// The shortest text that reads back as the same value.
std::string value_text(const CodecParameter&, double value);
std::string spec_number(double);  // the shortest text that reads back as the same float

// Whether a codec's scale is a piece's or that of the whole group, which its select() then finds.
enum class ScaleOf { piece, tensor };
inline constexpr std::string_view kScaleWords[] = {"piece", "tensor"};
inline constexpr Parameter<ScaleOf> kScaleOf{
    {.key = "scale",
     .words = kScaleWords,
     .help =
         "what has a scale: 10,240 elements; or a tensor's part in a chunk (with two_shot: in a rank's share of a chunk), the whole tensor where CRIMP_CHUNK reaches"}};

}  // namespace crimp
