#include "tensor_list.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_set>

#include "core/error.hpp"
#include "core/plain_text.hpp"

namespace crimp::tools {
namespace {

using Json = nlohmann::json;

std::runtime_error bad(const std::string& why) { return std::runtime_error(why); }

// What a state dict has beside the parameters (PyTorch's batch norms).
bool is_statistic(std::string_view name) {
  for (const std::string_view end : {"running_mean", "running_var", "num_batches_tracked"})
    if (name.ends_with(end)) return true;
  return false;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

enum class Kind { none, real, whole };
Kind kind_of(std::string_view type) {
  std::string name = lower(type);
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name.starts_with("f8_") || name.starts_with("float8_")) return Kind::real;
  for (const char* real : {"float32", "float", "f32", "float16", "half", "f16", "bfloat16", "bf16", "float64", "double",
                           "f64", "fp32", "fp16", "fp64"})
    if (name == real) return Kind::real;
  for (const char* whole : {"int64", "long", "i64", "int32", "int", "i32", "int16", "i16", "int8", "i8", "uint8", "u8",
                            "uint16", "u16", "uint32", "u32", "uint64", "u64", "bool"})
    if (name == whole) return Kind::whole;
  return Kind::none;
}

std::string printable(std::string_view text) {
  return plain_text(text.substr(0, 60)) + (text.size() > 60 ? "..." : "");
}

class Builder {
 public:
  // Throws where the name has been, or all together would be too many.
  void add(std::string name, std::uint64_t count, bool gradient) {
    if (name.empty()) throw bad("a tensor without a name");
    if (!names_.insert(name).second) throw bad("the name '" + printable(name) + "' twice");
    if (names_.size() > kMostTensors) throw bad(fmt::format("more than {} tensors", kMostTensors));
    if (!gradient || count == 0 || is_statistic(name)) {
      list_.no_gradient.push_back(std::move(name));
      return;
    }
    if (count > kMostElements - all_) throw bad(fmt::format("more than {} elements", kMostElements));
    all_ += count;
    list_.tensors.push_back({std::move(name), count});
  }
  TensorList take() {
    if (list_.tensors.empty())
      throw bad("no tensor that has a gradient; legal is a line a tensor, as in 'conv1.weight 64x3x7x7'");
    return std::move(list_);
  }

 private:
  TensorList list_;
  std::unordered_set<std::string> names_;
  std::uint64_t all_ = 0;
};

// Of sizes; each at most kMostElements. False: beyond that.
bool multiply(std::uint64_t& product, std::uint64_t by) {
  if (by != 0 && product > kMostElements / by) return false;
  product *= by;
  return true;
}

// 64x3x7x7, 64,3,7,7 or 9408, each at least 1. 0: it is none.
std::uint64_t count_of(std::string_view size) {
  std::uint64_t product = 1;
  const char *at = size.data(), *const end = at + size.size();
  for (;;) {
    std::uint64_t extent = 0;
    const auto [next, status] = std::from_chars(at, end, extent);
    if (status != std::errc() || extent == 0 || !multiply(product, extent)) return 0;
    if (next == end) return product;
    if (*next != 'x' && *next != ',') return 0;
    at = next + 1;
  }
}

std::vector<std::string_view> words(std::string_view line) {
  constexpr std::string_view kBlanks = " \t\r\v\f";
  std::vector<std::string_view> out;
  for (std::size_t at = line.find_first_not_of(kBlanks); at != line.npos; at = line.find_first_not_of(kBlanks, at)) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    out.push_back(line.substr(at, end - at));
    at = end;
  }
  return out;
}

// A safetensors file begins with the length of its header, which begins with a brace.
bool is_safetensors(std::string_view begin) { return begin.size() >= 9 && begin[8] == '{'; }

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  return value;
}

}  // namespace

std::uint64_t TensorList::elements() const {
  std::uint64_t all = 0;
  for (const TensorSize& tensor : tensors) all += tensor.count;
  return all;
}

std::uint64_t TensorList::largest() const {
  std::uint64_t most = 0;
  for (const TensorSize& tensor : tensors) most = std::max(most, tensor.count);
  return most;
}

TensorList parse_tensor_list(std::string_view text) {
  Builder list;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t newline = text.find('\n');
    std::string_view line = text.substr(0, newline);
    text = newline == text.npos ? std::string_view() : text.substr(newline + 1);
    line = line.substr(0, line.find('#'));
    auto of = words(line);
    if (of.empty()) continue;
    try {
      if (line.find('\0') != line.npos) throw bad("bytes that are no text");
      Kind kind = Kind::real;
      if (of.size() > 2 && kind_of(of.back()) != Kind::none) {
        kind = kind_of(of.back());
        of.pop_back();
      }
      const std::uint64_t count = of.size() < 2 ? 0 : count_of(of.back());
      if (count == 0)
        throw bad("'" + printable(line) +
                  "'; legal is NAME COUNT [TYPE] or NAME SHAPE [TYPE], as in 'conv1.weight 64x3x7x7 float32', with "
                  "sizes from 1 to 2^50");
      const std::string_view name(
          of.front().data(),
          static_cast<std::size_t>(of[of.size() - 2].data() + of[of.size() - 2].size() - of.front().data()));
      list.add(std::string(name), count, kind == Kind::real);
    } catch (const std::runtime_error& e) {
      throw bad(fmt::format("line {}: {}", number, e.what()));
    }
  }
  return list.take();
}

TensorList parse_safetensors_header(std::string_view text, std::uint64_t data_bytes) {
  // Nested no deeper than a header is, and no key twice, which the parser would not say.
  std::unordered_set<std::string> keys;
  std::string twice;
  bool deep = false;
  const Json header = Json::parse(
      text,
      [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth > 3) deep = true;
        if (event == Json::parse_event_t::key && depth == 1 && !keys.insert(value.get<std::string>()).second)
          twice = value.get<std::string>();
        return !deep;
      },
      false);
  if (deep || !header.is_object()) throw bad("a header that is no JSON of tensors");
  if (!twice.empty()) throw bad("the name '" + printable(twice) + "' twice");
  struct Place {
    std::uint64_t at;
    TensorSize tensor;
    bool gradient;
  };
  std::vector<Place> places;
  for (const auto& [name, of] : header.items()) {
    if (name == "__metadata__") continue;
    try {
      const Json &type = of.at("dtype"), &shape = of.at("shape"), &offsets = of.at("data_offsets");
      if (!type.is_string() || kind_of(type.get<std::string>()) == Kind::none || !shape.is_array() ||
          !offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
          !offsets[1].is_number_unsigned())
        throw bad("");
      std::uint64_t count = 1;
      for (const Json& extent : shape)
        if (!extent.is_number_unsigned() || !multiply(count, extent.get<std::uint64_t>())) throw bad("");
      const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
      // Of any type at least a byte an element.
      if (begin > end || end > data_bytes || end - begin < count) throw bad("");
      places.push_back({begin, {name, count}, kind_of(type.get<std::string>()) == Kind::real});
    } catch (const std::exception&) {
      throw bad("a tensor '" + printable(name) +
                "' whose 'dtype', 'shape' and 'data_offsets' make no sense, or lie outside of the file");
    }
  }
  // The parser has sorted the names; the file's order is that of the values.
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.at < b.at; });
  Builder list;
  for (Place& place : places) list.add(std::move(place.tensor.name), place.tensor.count, place.gradient);
  return list.take();
}

TensorList read_tensors(const std::string& file) {
  const auto refuse = [&](const std::string& why) {
    return Error(ErrorCode::argument_invalid, "--model: '" + file + "' " + why);
  };
  std::ifstream in(file, std::ios::binary);
  std::string begin(9, '\0');
  if (!in || !in.seekg(0, std::ios::end)) throw refuse("cannot be read");
  const auto size = static_cast<std::uint64_t>(in.tellg());
  if (size > std::uint64_t{1} << 62) throw refuse("cannot be read: it is no file");
  in.seekg(0);
  in.read(begin.data(), 9);
  begin.resize(static_cast<std::size_t>(in.gcount()));
  if (begin.starts_with("PK\x03\x04") || begin.starts_with("\x80\x02"))
    throw refuse(
        "is a checkpoint of PyTorch, whose pickles only PyTorch reads. To have its shapes as a list: python3 -m "
        "crimp.model " +
        file + " >model.txt");
  try {
    if (is_safetensors(begin)) {
      const std::uint64_t header = little_endian(begin);
      if (header > kMostHeaderBytes || header > size - 8)
        throw bad(fmt::format("a header of {} bytes; legal are {} at most, and no more than the file has", header,
                              kMostHeaderBytes));
      std::string text(header, '\0');
      in.clear();
      in.seekg(8);
      if (!in.read(text.data(), static_cast<std::streamsize>(header))) throw bad("a header that cannot be read");
      return parse_safetensors_header(text, size - 8 - header);
    }
    if (size > kMostListBytes) throw bad(fmt::format("{} bytes; a list has {} at most", size, kMostListBytes));
    in.clear();
    in.seekg(0);
    std::string text(size, '\0');
    if (!in.read(text.data(), static_cast<std::streamsize>(size))) throw bad("text that cannot be read");
    return parse_tensor_list(text);
  } catch (const std::runtime_error& e) {
    throw refuse(std::string("has ") + e.what());
  }
}

}  // namespace crimp::tools
