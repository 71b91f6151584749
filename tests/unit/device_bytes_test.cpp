// The bytes of device memory that kernels move, counted by the shadow (tests/support/simt/shadow.hpp): the figures of
// docs/gpu.md, "Bytes per element and pass", and behind each what payload, tables and sample may add.
#include <doctest/doctest.h>

#include <string>

#include "core/convert.hpp"
#include "support/data.hpp"
#include "support/device_run.hpp"
#include "support/simt/shadow.hpp"

using namespace crimp;
using namespace crimp::test;

TEST_SUITE("device_bytes") {
  TEST_CASE("bytes that selecting codecs move") {
    constexpr std::size_t kCount = 16 * kPieceElements;
    const struct {
      std::string spec;
      double values, more;
    } kinds[] = {
        {"threshold:v=3", 12, 1},      {"randomk", 12, 0.5},  {"topk", 8 + 12, 1}, {"topk:memory=none", 4 + 4, 1},
        {"topk:ratio=0.3", 8 + 12, 6}, {"dgc", 12 + 20, 1.5}, {"adaq", 8 + 12, 1}, {"sidco", 24 + 12, 0.5}};
    for (const auto& kind : kinds)
      for (const Data data : {Data::laplace, Data::constant}) {
        CAPTURE(kind.spec);
        CAPTURE(name_of(data));
        if (data == Data::constant && !kind.spec.starts_with("topk")) continue;
        const auto codec = make_codec(kind.spec);
        ChunkPartition partition;
        partition.add_group(kCount);
        const auto arrays = static_cast<std::size_t>(codec->feedback().arrays());
        ChunkMemory memory{std::vector<float>(arrays > 0 ? kCount : 0), std::vector<float>(arrays > 1 ? kCount : 0)};
        const std::uint64_t before = simt::moved_bytes();
        const auto body =
            device_encode(*codec, *make_device_codec(*codec), partition, make_data(data, 1, kCount), memory, {0, 1, 0});
        const double moved = static_cast<double>(simt::moved_bytes() - before) / kCount;
        MESSAGE(kind.spec << ", " << name_of(data) << ": " << moved << " bytes an element");
        CHECK(moved >= kind.values);
        CHECK(moved <= kind.values + kind.more);
      }
    CHECK(simt::take_reports() == "");
  }

  TEST_CASE("values and sums of 16 bits take two bytes") {
    constexpr std::size_t kCount = 16 * kPieceElements;
    for (const std::string spec : {"fp32", "8bit", "3lc:zero_run=0", "qsgd", "thc", "efsignsgd", "natural"})
      for (const Dtype type : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::f64}) {
        CAPTURE(spec);
        CAPTURE(std::string(name_of(type)));
        const auto codec = make_codec(spec);
        const auto device = make_device_codec(*codec);
        ChunkPartition partition;
        partition.add_group(kCount);
        const auto arrays = static_cast<std::size_t>(codec->feedback().arrays());
        ChunkMemory memory{std::vector<float>(arrays > 0 ? kCount : 0), {}};
        const auto values = make_data(Data::laplace, 1, kCount);
        std::vector<std::uint8_t> raw(kCount * size_of(type));
        narrow(type, values.data(), raw.data(), kCount);
        std::uint64_t before = simt::moved_bytes();
        const auto body = device_encode(*codec, *device, partition, ConstValues(raw.data(), type), memory, {0, 1, 0});
        const auto per_element = [&] { return static_cast<double>(simt::moved_bytes() - before) / kCount; };
        const double element = static_cast<double>(size_of(type)), payload = static_cast<double>(body.size()) / kCount;
        double most = element + 8.0 * static_cast<double>(arrays) + payload;
        CHECK(per_element() >= most - 0.01);
        CHECK(per_element() <= most + 0.1);
        before = simt::moved_bytes();
        const std::vector<std::vector<std::uint8_t>> bodies{body, body};
        device_decode_to(type, *codec, *device, partition, bodies, {0, 1, 0}, raw, false);
        most = element + 2 * payload;
        CHECK(per_element() >= most - 0.01);
        CHECK(per_element() <= most + 0.1);
      }
    CHECK(simt::take_reports() == "");
  }
}
