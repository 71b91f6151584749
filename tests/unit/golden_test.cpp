// Golden files: bytes that must never change. GOLDEN_WRITE=1 in the environment writes the files anew from what this
// build makes.
#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "codec/payload.hpp"
#include "memory/workers.hpp"
#include "support/compare.hpp"
#include "support/data.hpp"
#include "support/golden_files.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("golden") {
  namespace {

  std::string hash(const void* data, std::size_t bytes) {
    char text[20];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(XXH3_64bits(data, bytes)));
    return text;
  }
  std::string hash(const std::vector<float>& v) { return hash(v.data(), v.size() * sizeof(float)); }

  struct Input {
    std::string data;
    std::uint64_t seed;
    std::size_t count;
  };
  std::vector<float> make(const Input& in, std::uint64_t rank = 0) {
    return in.data == "example37" ? example37() : make_data(data_named(in.data), in.seed + rank, in.count);
  }

  struct Encoded {
    std::vector<std::uint8_t> body;
    std::vector<float> residual;
  };

  ChunkPartition shape_of(const std::string& groups, std::size_t count) {
    ChunkPartition partition;
    const std::size_t step = groups == "tensor" ? count : 10240;
    for (std::size_t at = 0; at < count; at += step) partition.add_group(std::min(step, count - at));
    return partition;
  }

  // Two steps: the second one's input carries the first one's residual.
  Encoded encode(const Codec& codec, const ChunkPartition& partition, const std::vector<float>& values, int steps,
                 std::uint32_t rank) {
    Workers workers(1);
    Encoded e{{}, std::vector<float>(values.size())};
    const bool two = codec.feedback().arrays() == 2;
    std::vector<float> momentum(two ? values.size() : 0), scratch(scratch_elements(codec, values.size(), true));
    for (int step = 0; step < steps; ++step) {
      std::vector<FeedbackView> feedback;
      for (const auto& g : partition.groups()) {
        float *const residual = e.residual.data() + g.offset, *const second =
                                                                  two ? momentum.data() + g.offset : nullptr;
        feedback.push_back({residual, residual, second, second});
      }
      e.body.resize(partition.body_bound(codec));
      e.body.resize(encode_body(codec, partition, values.data(), feedback, {0, static_cast<std::uint32_t>(step), rank},
                                e.body.data(), scratch.data(), workers));
    }
    return e;
  }

  // The right-hand side of a line.
  std::string value_of(const std::vector<std::string>& key) {
    if (key.at(0) == "input") return hash(make({key.at(1), std::stoull(key.at(2)), std::stoull(key.at(3))}));
    const auto codec = make_codec(key.at(1));
    const Input input{key.at(3), std::stoull(key.at(4)), std::stoull(key.at(5))};
    const ChunkPartition partition = shape_of(key.at(2), input.count);
    if (key[0] == "bytes") return hex(encode(*codec, partition, make(input), 1, 0).body);
    if (key[0] != "body") throw std::invalid_argument("golden line of unknown kind " + key[0]);
    const Encoded first = encode(*codec, partition, make(input), 2, 0);
    Workers workers(1);
    std::vector<Encoded> ranks{first, encode(*codec, partition, make(input, 1), 2, 1),
                               encode(*codec, partition, make(input, 2), 2, 2)};
    std::vector<BodyView> views(3);
    for (std::size_t r = 0; r < 3; ++r) REQUIRE(views[r].open(*codec, partition, ranks[r].body) == "");
    std::vector<float> sum(input.count);
    REQUIRE(decode_add(*codec, partition, views, {0, 1, 0}, sum.data(), false, workers) == -1);
    return std::to_string(first.body.size()) + " " + hash(first.body.data(), first.body.size()) + " " +
           hash(first.residual) + " " + hash(sum);
  }

  // Returns the codecs that lines of the file speak of.
  std::set<std::string> check_file(const std::filesystem::path& path) {
    const std::string name = path.filename();
    std::set<std::string> spoken_of;
    const bool write = std::getenv("GOLDEN_WRITE") != nullptr;
    std::ifstream in(path);
    REQUIRE_MESSAGE(in.good(), "no golden file " << path);
    std::string all, line;
    int cases = 0;
    while (std::getline(in, line)) {
      if (line.empty() || line[0] == '#') {
        all += line + "\n";
        continue;
      }
      const auto equals = line.find(" = ");
      REQUIRE_MESSAGE(equals != line.npos, "not 'key = value': " << line);
      const std::string text = line.substr(0, equals), expected = line.substr(equals + 3);
      std::istringstream words(text);
      std::vector<std::string> key;
      for (std::string word; words >> word;) key.push_back(word);
      const std::string got = value_of(key);
      if (key[0] != "input") spoken_of.insert(make_codec(key[1])->traits().name);
      if (!write) CHECK_MESSAGE(got == expected, name << ": " << text << " = " << got << ", expected " << expected);
      all += text + " = " + got + "\n";
      ++cases;
    }
    CHECK(cases > 0);
    in.close();
    if (write) std::ofstream(path) << all;
    return spoken_of;
  }

  }  // namespace

  TEST_CASE("generated inputs") { check_file(CRIMP_GOLDEN_DIR "/inputs.txt"); }

  TEST_CASE("bytes, residuals and sums are those of the golden files, and every codec has lines in one") {
    std::set<std::string> spoken_of;
    for (const auto& file : golden_files()) spoken_of.merge(check_file(file));
    for (const auto& info : codecs())
      if (!info.traits.whole_tensors)
        CHECK_MESSAGE(spoken_of.contains(info.traits.name), info.name << " has no golden lines");
  }
}
