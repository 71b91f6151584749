// Lists of tensors and safetensors headers, among them those that somebody has made to break a reader.
#include "tensor_list.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <stdexcept>

#include "core/error.hpp"

using namespace crimp;
using namespace crimp::tools;

TEST_SUITE("tensor_list") {
  namespace {

  using Tensors = std::vector<TensorSize>;

  std::string complaint_of(const std::function<void()>& work) {
    try {
      work();
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  }
  std::string of_list(std::string_view text) {
    return complaint_of([&] { parse_tensor_list(text); });
  }
  std::string of_header(std::string_view text, std::uint64_t data = 1000) {
    return complaint_of([&] { parse_safetensors_header(text, data); });
  }
  bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

  class File {
   public:
    explicit File(const std::string& bytes) {
      const int fd = mkstemp(name_);
      REQUIRE(fd >= 0);
      close(fd);
      std::ofstream(name_, std::ios::binary) << bytes;
    }
    ~File() { std::remove(name_); }
    std::string complaint() const {
      return complaint_of([&] { read_tensors(name_); });
    }
    const char* name() const { return name_; }

   private:
    char name_[32] = "/tmp/crimp-tensors-XXXXXX";
  };

  std::string length(std::uint64_t n) {
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(n >> (8 * i));
    return bytes;
  }

  }  // namespace

  TEST_CASE("counts, shapes, types and comments") {
    const TensorList list = parse_tensor_list(
        "# a model\r\nconv.weight 64x3x7x7 float32\n  fc.weight\t10,20 # dense\n\nfc.bias 10\nlast 5 BF16\n"
        "steps 1 int64\nbn.running_mean 64\nmy layer 7 float");
    CHECK(list.tensors ==
          Tensors{{"conv.weight", 64 * 3 * 7 * 7}, {"fc.weight", 200}, {"fc.bias", 10}, {"last", 5}, {"my layer", 7}});
    CHECK(list.no_gradient == std::vector<std::string>{"steps", "bn.running_mean"});
    CHECK(list.elements() == 9408 + 200 + 10 + 5 + 7);
    CHECK(list.largest() == 9408);
    CHECK(parse_tensor_list("a 1125899906842624").elements() == std::uint64_t{1} << 50);
  }

  TEST_CASE("lists that are none") {
    CHECK(has(of_list(""), "no tensor that has a gradient"));
    CHECK(has(of_list("# nothing\n\n"), "no tensor that has a gradient"));
    CHECK(has(of_list("n 1 int64"), "no tensor that has a gradient"));
    CHECK(has(of_list("a 10\na 20"), "line 2: the name 'a' twice"));
    CHECK(has(of_list("a\x1b[2J 10\na\x1b[2J 20"), "line 2: the name 'a?[2J' twice"));  // not the terminal's to obey
    for (const char* line : {"a", "a 0", "a 3x0x2", "a -1", "a 1.5", "a 3x", "a x3", "a 3,,4", "a float32", "a 1e6",
                             "a 99999999999999999999", "a 1125899906842625", "a 4294967296x4294967296"}) {
      CAPTURE(line);
      CHECK(has(of_list(std::string("ok 5\n") + line), "line 2: "));
    }
    CHECK(has(of_list("a 1125899906842624\nb 1"), "line 2: more than 1125899906842624 elements"));
    CHECK(has(of_list(std::string("a\0b 5", 5)), "no text"));
    CHECK(has(of_list("\x01\x02\x03"), "'?\?\?'"));
    std::string many;
    for (std::uint64_t i = 0; i <= kMostTensors; ++i) many += std::to_string(i) + " 1\n";
    CHECK(has(of_list(many), "more than 100000 tensors"));
  }

  TEST_CASE("a safetensors header, in the order of its values") {
    const TensorList list = parse_safetensors_header(
        R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
           "a": {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}, "n": {"dtype": "I64", "shape": [], "data_offsets": [32, 40]},
           "none": {"dtype": "F32", "shape": [0, 7], "data_offsets": [40, 40]}, "s": {"dtype": "F32", "shape": [], "data_offsets": [40, 44]}})",
        44);
    CHECK(list.tensors == Tensors{{"b", 6}, {"a", 4}, {"s", 1}});
    CHECK(list.no_gradient == std::vector<std::string>{"n", "none"});
  }

  TEST_CASE("headers that are none") {
    const auto one = [](const std::string& of) { return R"({"a": {)" + of + "}}"; };
    CHECK(of_header(one(R"("dtype": "F32", "shape": [2], "data_offsets": [0, 8])")) == "");
    for (const char* of :
         {R"("dtype": "F32", "shape": [2])", R"("dtype": "F32", "data_offsets": [0, 8])",
          R"("shape": [2], "data_offsets": [0, 8])", R"("dtype": 32, "shape": [2], "data_offsets": [0, 8])",
          R"("dtype": "Q4", "shape": [2], "data_offsets": [0, 8])",
          R"("dtype": "F32", "shape": [-2], "data_offsets": [0, 8])",
          R"("dtype": "F32", "shape": [2.5], "data_offsets": [0, 8])",
          R"("dtype": "F32", "shape": 2, "data_offsets": [0, 8])",
          R"("dtype": "F32", "shape": [2], "data_offsets": [0])",
          R"("dtype": "F32", "shape": [2], "data_offsets": [8, 0])",
          R"("dtype": "F32", "shape": [2], "data_offsets": [0, 1001])",
          R"("dtype": "F32", "shape": [2000], "data_offsets": [0, 8])",
          R"("dtype": "F32", "shape": [4294967296, 4294967296, 4294967296], "data_offsets": [0, 8])",
          R"("dtype": "F32", "shape": [18446744073709551616], "data_offsets": [0, 8])",
          R"("dtype": "F32", "shape": [[[[2]]]], "data_offsets": [0, 8])"}) {
      CAPTURE(of);
      CHECK(of_header(one(of)) != "");
    }
    for (const char* text :
         {"", "{", "[]", "7", "{\"a\": 1}", "{\"a\": []}", "nonsense", "{}", "{\"__metadata__\": {}}"})
      CHECK(of_header(text) != "");
    const std::string tensor = R"("a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]})";
    CHECK(has(of_header("{" + tensor + ", " + tensor + "}"), "the name 'a' twice"));
    CHECK(of_header(std::string(100'000, '[')) != "");
    CHECK(of_header("{\"a\": " + std::string(100'000, '{')) != "");
  }

  TEST_CASE("files") {
    const std::string header = R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})";
    const File good(length(header.size()) + header + std::string(8, 'x'));
    CHECK(read_tensors(good.name()).tensors == Tensors{{"a", 2}});
    CHECK(read_tensors(File("a 2\n").name()).tensors == Tensors{{"a", 2}});
    CHECK(has(File(length(header.size()) + header + std::string(7, 'x')).complaint(), "outside of the file"));
    for (const std::uint64_t n :
         {std::uint64_t{1} << 63, ~std::uint64_t{0}, std::uint64_t{100'000'001}, std::uint64_t{header.size() + 9}})
      CHECK(has(File(length(n) + header + std::string(8, 'x')).complaint(), "a header of"));
    CHECK(has(File(length(header.size()) + header.substr(0, 20)).complaint(), "a header of"));
    CHECK(has(File(std::string("PK\x03\x04", 4) + "zip").complaint(), "python3 -m crimp.model"));
    CHECK(has(File("").complaint(), "no tensor"));
    CHECK(has(complaint_of([] { read_tensors("/nonexistent/model"); }), "cannot be read"));
    CHECK(complaint_of([] { read_tensors("/tmp"); }) != "");
  }
}
